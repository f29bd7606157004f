package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// These queries find work that was lost by a crash or a lost message. They only read. The reconcilers act on the
// findings by compare-and-set, so any number of dispatchers may find the same run.

// Glance reports what PastDeadline, UnconfirmedKills, ReplanOverdue, BoundBoots, ReleaseOrphans, CountLiveRuns, WaitingKeys and Vacuum may
// find. It also reads the clock.
func (s *Store) Glance(ctx context.Context) (engine.Glance, error) {
	sent := time.Now()
	g, err := s.q.Glance(ctx, vacuumDead)
	if err != nil {
		return engine.Glance{}, pgerr.Translate(err)
	}
	s.noteClock(sent, g.Now)
	return engine.Glance{
		Deadlines: g.Deadlines, Kills: g.Kills, Retries: g.Retries, Bound: g.Bound, Held: g.Held, Live: g.Live,
		Waiting: g.Waiting, Dead: g.Dead, ManyDead: g.ManyDead,
	}, nil
}

// Silent returns bound runs of groups for which it has been unknown for the given time whether their instance accepted them.
func (s *Store) Silent(ctx context.Context, groups []string, after time.Duration, limit int) ([]engine.LiveRun, error) {
	rows, err := s.q.SilentRuns(ctx, sqlcgen.SilentRunsParams{After: after, Groups: groups, Batch: int32(limit)})
	return liveRuns(rows), pgerr.Translate(err)
}

// lookAllEvery is how often BoundBoots reads all bound runs. Otherwise it reads only runs that were due some time ago,
// and misses others only if the clock was set back.
const lookAllEvery = 10 * time.Second

// BoundBoots returns the boots that unfinished runs are bound to, with the number of runs that are silent for
// silentAfter. It reads runs that were due longer ago than that and, every lookAllEvery, all runs.
func (s *Store) BoundBoots(ctx context.Context, silentAfter time.Duration) ([]BoundBoot, error) {
	dueAgo := silentAfter
	if look, now := s.lastLook.Load(), time.Now().UnixNano(); now-look > int64(lookAllEvery) && s.lastLook.CompareAndSwap(look, now) {
		dueAgo = -100 * 365 * 24 * time.Hour
	}
	rows, err := s.q.BoundInstances(ctx, sqlcgen.BoundInstancesParams{SilentAfter: silentAfter, DueAgo: dueAgo})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make([]BoundBoot, len(rows))
	for i, r := range rows {
		out[i] = BoundBoot{Group: r.GroupName, Instance: r.Instance, BootID: r.BootID, Runs: int(r.Runs), Silent: int(r.Silent), Running: int(r.Running), Overdue: int(r.Overdue), Kept: r.Kept}
	}
	return out, nil
}

// RunsOf returns runs that are bound to a boot, by id, starting after the given id.
func (s *Store) RunsOf(ctx context.Context, b BoundBoot, after domain.RunID, limit int) ([]engine.LiveRun, error) {
	rows, err := s.q.RunsOfBoot(ctx, sqlcgen.RunsOfBootParams{
		GroupName: b.Group, Instance: b.Instance, BootID: b.BootID, After: after, Batch: int32(limit),
	})
	return liveRuns(rows), pgerr.Translate(err)
}

// PastDeadline returns waiting runs whose start deadline has passed.
func (s *Store) PastDeadline(ctx context.Context, limit int) ([]engine.LiveRun, error) {
	rows, err := s.q.PastDeadline(ctx, int32(limit))
	return liveRuns(rows), pgerr.Translate(err)
}

// PastGiveUp returns runs of a group whose timeout and grace period have passed without a result.
func (s *Store) PastGiveUp(ctx context.Context, group string, limit int) ([]engine.LiveRun, error) {
	rows, err := s.q.PastGiveUp(ctx, sqlcgen.PastGiveUpParams{GroupName: group, Batch: int32(limit)})
	return liveRuns(rows), pgerr.Translate(err)
}

// UnconfirmedKills returns unfinished runs whose kill was requested at least after ago.
func (s *Store) UnconfirmedKills(ctx context.Context, after time.Duration, limit int) ([]engine.LiveRun, error) {
	rows, err := s.q.UnconfirmedKills(ctx, sqlcgen.UnconfirmedKillsParams{After: after, Batch: int32(limit)})
	return liveRuns(rows), pgerr.Translate(err)
}

// Replan makes attempts that wait for their River job ready to be claimed by a ring, and wakes the schedulers. Repeats
// change nothing. It returns the number of attempts it changed.
func (s *Store) Replan(ctx context.Context, runs []domain.RunID, attempts []int) (int, error) {
	var n int
	err := s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) (err error) {
		n, err = replan(ctx, tx, q, runs, attempts)
		return err
	})
	return n, err
}

// ReplanTx is Replan inside the transaction that completes a River job.
func (s *Store) ReplanTx(ctx context.Context, tx pgx.Tx, run domain.RunID, attempt int) error {
	_, err := replan(ctx, tx, s.q.WithTx(tx), []domain.RunID{run}, []int{attempt})
	return pgerr.Translate(err)
}

func replan(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, runs []domain.RunID, attempts []int) (int, error) {
	p := sqlcgen.ReplanRetryParams{Ids: runs}
	for _, a := range attempts {
		p.Attempts = append(p.Attempts, int32(a))
	}
	if err := q.LockRunIDs(ctx, runs); err != nil {
		return 0, err
	}
	rows, err := q.ReplanRetry(ctx, p)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return len(rows), notify(ctx, tx)
}

// ReplanOverdue re-plans retries whose River job was not processed by their due instant, and returns their number.
func (s *Store) ReplanOverdue(ctx context.Context, limit int) (int, error) {
	rows, err := s.q.OverdueRetries(ctx, int32(limit))
	if err != nil || len(rows) == 0 {
		return 0, pgerr.Translate(err)
	}
	ids := make([]domain.RunID, len(rows))
	attempts := make([]int, len(rows))
	for i, r := range rows {
		ids[i], attempts[i] = r.ID, int(r.Attempt)
	}
	return s.Replan(ctx, ids, attempts)
}

// GoOnChains plans the next fire of fixed_delay jobs that have neither a next fire nor a live run.
func (s *Store) GoOnChains(ctx context.Context, limit int) (int, error) {
	jobs, err := s.q.LostChains(ctx, int32(limit))
	if err != nil || len(jobs) == 0 {
		return 0, pgerr.Translate(err)
	}
	err = s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) error {
		if _, err := q.LockDue(ctx, jobs); err != nil {
			return err
		}
		return s.chainNext(ctx, q, jobs, s.Now())
	})
	return len(jobs), err
}

// ReleaseOrphans releases the next held run of each slot without an owner, and returns the runs to fire.
func (s *Store) ReleaseOrphans(ctx context.Context, limit int) ([]engine.Due, error) {
	rows, err := s.q.UnheldHeld(ctx, int32(limit))
	if err != nil || len(rows) == 0 {
		return nil, pgerr.Translate(err)
	}
	var out []engine.Due
	err = s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) error {
		out = nil
		var keys []slotKey
		for _, r := range rows {
			keys = append(keys, slotKey{domain.JobID(r.JobID), r.HeldOn})
		}
		slots, err := lockSlots(ctx, q, keys, false)
		if err != nil {
			return err
		}
		if err := slots.forget(ctx, q); err != nil {
			return err
		}
		var ids []domain.RunID
		for _, r := range rows {
			k := slotKey{domain.JobID(r.JobID), r.HeldOn}
			owner, exists := slots.owners[k]
			if exists && !owner.IsZero() && owner != r.ID {
				continue // another run took it meanwhile
			}
			if exists && k.instance == "" {
				slots.set(k, r.ID) // in scope instance, the run is routed again and takes a slot then
			}
			ids = append(ids, r.ID)
		}
		if err := slots.save(ctx, q); err != nil {
			return err
		}
		released, err := q.Release(ctx, ids)
		for _, r := range released {
			run := liveRun(r)
			out = append(out, run.Due())
		}
		return err
	})
	return out, err
}

// ReturnStrays makes queued, unbound runs without an entry in runs_waiting wait again, and returns their number.
func (s *Store) ReturnStrays(ctx context.Context, limit int) (int, error) {
	rows, err := s.q.LateWaiting(ctx, int32(limit))
	if err != nil || len(rows) == 0 {
		return 0, pgerr.Translate(err)
	}
	err = s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) error {
		var wait waitingRows
		for _, r := range rows {
			def, err := s.one(ctx, q, versionKey{domain.JobID(r.JobID), int(r.JobVersion)})
			if domain.CodeOf(err) == domain.NotFound {
				continue // no instance can run it without its definition, and it must not block the others
			}
			if err != nil {
				return err
			}
			wait.add(&engine.LiveRun{
				ID: r.ID, JobID: domain.JobID(r.JobID), JobVersion: int(r.JobVersion), Group: r.GroupName, DueAt: r.DueAt, Pin: orZero(r.Pin),
			}, &def.Definition, s.Now())
		}
		return wait.insert(ctx, q)
	})
	return len(rows), err
}

// RequestKill requests the end of an unfinished run. A run without an instance ends at once. For a run with an
// instance, the request is kept until the instance confirms it. The error is NotFound, or Conflict if the run is final.
func (s *Store) RequestKill(ctx context.Context, id domain.RunID, reason domain.Reason, by string) (Kill, error) {
	var out Kill
	why := explain.Of(explain.KilledBy, by)
	err := s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		out = Kill{}
		rows, err := q.LiveRuns(ctx, []domain.RunID{id})
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return finalOrUnknown(ctx, q, id)
		}
		r := rows[0]
		if r.Instance == nil {
			out.Result, err = s.settle(ctx, tx, q, []engine.Ended{{
				RunID: id, Attempt: int(r.Attempt), Outcome: domain.OutcomeCancelled, Reason: reason,
				Why: why, FinishedAt: s.Now(),
			}})
			if err == nil && out.Result.Dispositions[0] != engine.Settled {
				return domain.WrapError(domain.Unavailable, "another transaction is changing the run; try again", errRepeat)
			}
			return err
		}
		marked, err := q.RequestKill(ctx, sqlcgen.RequestKillParams{
			Ids: []domain.RunID{id}, Whys: []string{why.English()}, WhyNotes: []string{string(why)}, Reason: ptr(string(reason)),
		})
		out.Bound = liveRuns(marked)
		if err == nil && len(marked) == 0 {
			return finalOrUnknown(ctx, q, id)
		}
		if err == nil && marked[0].Instance == nil { // the run was unbound meanwhile, so no instance would confirm the kill
			return domain.WrapError(domain.Unavailable, "another transaction is changing the run; try again", errRepeat)
		}
		return err
	})
	return out, err
}

func finalOrUnknown(ctx context.Context, q *sqlcgen.Queries, id domain.RunID) error {
	past, err := q.HistoryOutcomes(ctx, []domain.RunID{id})
	if err != nil {
		return err
	}
	if len(past) == 0 {
		return domain.NewError(domain.NotFound, fmt.Sprintf("there is no run %s", id))
	}
	return domain.NewError(domain.Conflict, fmt.Sprintf("the run has ended already: it is %s", past[0].State))
}

// StoreLogs stores chunks of run logs, and adds their text to the log bytes of their groups. A chunk that already exists
// does not change, and does not count again.
func (s *Store) StoreLogs(ctx context.Context, chunks []LogChunk) error {
	var p sqlcgen.StoreLogsParams
	for _, c := range chunks {
		p.RunIds = append(p.RunIds, c.RunID)
		p.Attempts = append(p.Attempts, int32(c.Attempt))
		p.FirstLines = append(p.FirstLines, c.First)
		p.LastLines = append(p.LastLines, c.Last)
		p.Chunks = append(p.Chunks, c.Lines)
		p.Groups = append(p.Groups, c.Group)
		p.TextBytes = append(p.TextBytes, c.TextBytes)
	}
	return s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) error { return q.StoreLogs(ctx, p) })
}

// GroupsOf returns the groups of runs; unknown runs are missing in the result.
func (s *Store) GroupsOf(ctx context.Context, runs []domain.RunID) (map[domain.RunID]string, error) {
	rows, err := s.q.GroupsOfRuns(ctx, runs)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make(map[domain.RunID]string, len(rows))
	for _, r := range rows {
		out[r.ID] = r.GroupName
	}
	return out, nil
}

// Vacuum cleans the hot tables if they have many dead rows, or if they were not cleaned for vacuumEvery. Call it if they have any. Autovacuum
// would come too late: these tables turn over completely within seconds, and queries for due runs read through dead
// rows. Vacuum skips tables that another process is cleaning.
func (s *Store) Vacuum(ctx context.Context, many bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, vacuumMax)
	defer cancel()
	last := s.lastVacuum.Load()
	now := time.Now().UnixNano()
	long := now-last > int64(vacuumEvery)
	if long && !s.lastVacuum.CompareAndSwap(last, now) {
		return nil
	}
	if many || long {
		_, err = s.pool.Exec(ctx, `VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF, PARALLEL 0) runs_live, runs_waiting`)
	}
	if err == nil && long {
		// These tables have a row for every job. Their indexes are only cleaned when a good part of the rows is dead.
		_, err = s.pool.Exec(ctx, `VACUUM (SKIP_LOCKED, TRUNCATE OFF, PARALLEL 0) job_due, block_slots`)
	}
	return pgerr.Translate(err)
}

const (
	vacuumMax   = 2 * time.Minute
	vacuumEvery = 10 * time.Second
	vacuumDead  = 50_000 // dead rows in excess of half the live rows: about 20 MB
)
