package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/plan"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// StrandedAfter is how long past due a planned run is when another scheduler takes it over. It is shorter than the
// misfire tolerance, so that the death of a scheduler makes fires late but not missed.
const StrandedAfter = 2 * time.Second

// Quiet reports whether TendPauses, PlanDue, ClaimNear and PlanStranded would find nothing now, with one statement. It may be false although they
// would. It also reads the clock.
func (s *Store) Quiet(ctx context.Context) (bool, error) {
	begun := s.Now()
	sent := time.Now()
	look, err := s.q.Busy(ctx, sqlcgen.BusyParams{Horizon: s.plan.Horizon, StrandedAfter: StrandedAfter})
	if err = pgerr.Translate(err); err != nil {
		s.clock.planned(begun, err)
		return false, err
	}
	s.noteClock(sent, look.Now)
	if !look.Busy {
		s.clock.planned(begun, nil)
	}
	return !look.Busy, nil
}

// PlanDue takes up to batch jobs that are due within the horizon, those due first, plans their runs and ledger entries,
// and advances them. If near is set, it takes and plans jobs no further ahead than plan.Settings.Near. Schedulers share
// the due jobs by SKIP LOCKED.
func (s *Store) PlanDue(ctx context.Context, batch int, near bool) (Planned, error) {
	set := s.plan
	if near {
		set = set.Nearby()
	}
	begun := s.Now()
	out, err := s.planDue(ctx, batch, set, true)
	if wasPlanned(err) {
		out, err = s.planDue(ctx, batch, set, false)
	}
	s.clock.planned(begun, err)
	return out, err
}

// planDue implements PlanDue. If byCopy is set, new runs are written by COPY, which is faster but fails if one of them
// already exists.
func (s *Store) planDue(ctx context.Context, batch int, set plan.Settings, byCopy bool) (Planned, error) {
	var out Planned
	err := s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		rows, err := q.LockDueJobs(ctx, sqlcgen.LockDueJobsParams{Horizon: set.Horizon, Batch: int32(batch)})
		if err != nil || len(rows) == 0 {
			return err
		}
		jobs := make([]lockedJob, len(rows))
		for i, r := range rows {
			jobs[i] = lockedJob{
				key:  versionKey{domain.JobID(r.JobID), int(r.Version)},
				next: orZero(r.NextFireTime).UTC(), decided: orZero(r.DecidedThrough).UTC(), paused: r.Paused,
			}
		}
		if err := s.addStranded(ctx, q, jobs, rows[0].Now); err != nil {
			return err
		}
		out, err = s.decide(ctx, tx, q, jobs, rows[0].Now, set, byCopy)
		out.Jobs = len(rows)
		if len(rows) == batch {
			out.Next = orZero(rows[batch-1].NextDueAt).UTC()
		}
		return err
	})
	return out, err
}

// PlanStranded decides about jobs whose planned runs were not admitted within the tolerance, because their scheduler died or
// Postgres was down. It decides about stranded and unplanned fire times together, so that fire_once fires once. It plans later
// fire times only up to plan.Settings.Near, because other jobs may be as late.
func (s *Store) PlanStranded(ctx context.Context, batch int) (Planned, error) {
	var out Planned
	ids, err := s.q.StrandedJobs(ctx, sqlcgen.StrandedJobsParams{Tolerance: s.plan.Tolerance, Batch: int32(batch)})
	if err != nil || len(ids) == 0 {
		return out, pgerr.Translate(err)
	}
	err = s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		rows, err := q.LockJobs(ctx, ids)
		if err != nil || len(rows) == 0 {
			return err
		}
		jobs := make([]lockedJob, len(rows))
		at := make(map[int64]int, len(rows))
		for i, r := range rows {
			jobs[i] = lockedJob{
				key:     versionKey{domain.JobID(r.JobID), int(r.Version)},
				decided: orZero(r.DecidedThrough).UTC(), disabled: r.NextDueAt == nil, paused: r.Paused,
			}
			if r.NextDueAt != nil {
				jobs[i].next = orZero(r.NextFireTime).UTC()
			}
			at[r.JobID] = i
		}
		if err := s.lockStranded(ctx, q, jobs, at); err != nil {
			return err
		}
		out, err = s.decide(ctx, tx, q, jobs, rows[0].Now, s.plan.Nearby(), false)
		out.Jobs = len(rows)
		return err
	})
	return out, err
}

// lockedJob is a job whose job_due row is locked by the transaction.
type lockedJob struct {
	key      versionKey
	next     time.Time
	decided  time.Time
	stranded []plan.Stranded
	disabled bool
	paused   bool // the job itself, not only its group, has pauses that matter
	closing  bool // its version ends now
}

// addStranded adds the stranded runs of those jobs whose next fire time was missed. A misfire policy that saw stranded
// and unplanned fire times separately would serve both.
func (s *Store) addStranded(ctx context.Context, q *sqlcgen.Queries, jobs []lockedJob, now time.Time) error {
	late := make(map[int64]int)
	for i, j := range jobs {
		if !j.next.IsZero() && j.next.Before(now.Add(-s.plan.Tolerance)) { // if its due instant was not missed, nothing is lost
			late[int64(j.key.job)] = i
		}
	}
	if len(late) == 0 {
		return nil
	}
	return s.lockStranded(ctx, q, jobs, late)
}

// lockStranded locks the stranded runs of the jobs in at and adds them to jobs. The values of at are indexes into jobs.
func (s *Store) lockStranded(ctx context.Context, q *sqlcgen.Queries, jobs []lockedJob, at map[int64]int) error {
	rows, err := q.StrandedRuns(ctx, sqlcgen.StrandedRunsParams{
		JobIds: slices.Sorted(maps.Keys(at)), Tolerance: s.plan.Tolerance,
	})
	for _, r := range rows {
		j := &jobs[at[r.JobID]]
		j.stranded = append(j.stranded, plan.Stranded{RunID: r.ID, FireTime: orZero(r.FireTime).UTC()})
	}
	return err
}

// decideBudget bounds the time for the decisions of one batch. Meanwhile the transaction holds its locks, and Postgres
// ends it if it is idle for a second. The next batch decides about the remaining jobs.
const decideBudget = 150 * time.Millisecond

// decide runs the pure decision for each job and writes the result. The caller holds the jobs' locks.
func (s *Store) decide(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, jobs []lockedJob, now time.Time, set plan.Settings, byCopy bool) (Planned, error) {
	keys := make([]versionKey, len(jobs))
	for i, j := range jobs {
		keys[i] = j.key
	}
	defs, err := s.load(ctx, q, keys)
	if err != nil {
		return Planned{}, err
	}
	w := planWriter{unseen: now, reach: s.plan.Horizon + s.plan.Ahead + time.Second, byCopy: byCopy}
	since := now
	var paused []int64
	for _, j := range jobs {
		if j.paused {
			paused = append(paused, int64(j.key.job))
		}
		if !j.next.IsZero() && j.next.Before(since) {
			since = j.next
		}
	}
	known, err := pausesSince(ctx, q, paused, since.Add(-w.reach))
	if err != nil {
		return Planned{}, err
	}
	faults, err := s.disturbances(ctx, q, now)
	if err != nil {
		return Planned{}, err
	}
	begun := time.Now()
	for i, j := range jobs {
		if i > 0 && time.Since(begun) > decideBudget {
			w.out.More = true
			break
		}
		def := defs[j.key]
		var compiled *schedule.Schedule
		if def != nil {
			compiled, _ = s.compiled(def)
		}
		if compiled == nil {
			// A stored schedule may no longer compile, for example if its zone was removed from the zone database. It
			// must not stop the other jobs: the job gets no next fire time, and the console shows the reason.
			w.advance(j, plan.Decision{DecidedThrough: j.decided})
			continue
		}
		pauses := known.Of(j.key.job, def.Group)
		d := plan.Decide(plan.Job{
			ID: j.key.job, Schedule: compiled, Misfire: def.Misfire, NextFire: j.next, Decided: j.decided, Stranded: j.stranded,
			Paused: pauses, Closing: j.closing, Disturbed: faults,
		}, now.UTC(), set)
		w.replanned = def.validFrom
		for _, p := range pauses {
			for _, at := range []time.Time{p.From, p.To} { // To may be later than the present
				if at.After(w.replanned) {
					w.replanned = at
				}
			}
		}
		if w.out.Runs == nil {
			w.expect(len(d.Runs) * len(jobs)) // most jobs of a batch were planned up to the same second before
		}
		w.add(j, def, d)
		if d.ParkedBy != nil {
			w.park.JobIds = append(w.park.JobIds, int64(j.key.job))
			w.park.Groups = append(w.park.Groups, d.ParkedBy.Group)
		}
		if !d.NextDue.IsZero() && !d.NextDue.After(now.Add(set.Horizon)) {
			w.out.More = true // one decision did not cover the job's whole outage
		}
	}
	now = now.UTC().Truncate(time.Millisecond)
	out, err := w.write(ctx, tx, q, now)
	if err != nil {
		return out, err
	}
	return out, s.tellNotes(ctx, tx, q, &w.alerts, now)
}

// planWriter collects the decisions about many jobs and writes each kind by one statement.
type planWriter struct {
	out Planned
	// known are runs that may already exist, live or in the history. A run that is due after unseen, the present,
	// cannot have finished, except by a kill before it was due. Such a fire time is planned again only by an edit, or
	// when a pause begins, ends or gets another end. Before that, planning went no further ahead than reach. All other
	// runs are fresh.
	known     sqlcgen.InsertScheduledParams
	fresh     plannedRuns
	byCopy    bool // false: all runs are written as known
	unseen    time.Time
	reach     time.Duration
	replanned time.Time // when the current job was last planned again
	missed    sqlcgen.InsertMissedParams
	due       sqlcgen.AdvanceDueParams
	alerts    alertNotes
	park      sqlcgen.ParkDueParams
	revive    []domain.RunID
	drop      []domain.RunID
}

// expect reserves capacity for about runs runs.
func (w *planWriter) expect(runs int) {
	const most = 10_000
	runs = min(runs, most)
	w.out.Runs = slices.Grow(w.out.Runs, runs)
	if w.byCopy {
		w.fresh = slices.Grow(w.fresh, runs)
	}
}

func (w *planWriter) add(j lockedJob, def *definition, d plan.Decision) {
	for i := range d.Runs {
		r := &d.Runs[i]
		if w.byCopy && !r.DueAt.Before(w.unseen) && !r.DueAt.Before(w.replanned.Add(w.reach)) {
			w.fresh = append(w.fresh, plannedRun{key: j.key, group: def.Group, plain: def.Plain(), run: r, rungAt: w.unseen})
		} else {
			w.known.Ids = append(w.known.Ids, r.ID)
			w.known.JobIds = append(w.known.JobIds, int64(j.key.job))
			w.known.Versions = append(w.known.Versions, int32(j.key.version))
			w.known.Groups = append(w.known.Groups, def.Group)
			w.known.Causes = append(w.known.Causes, string(r.Cause))
			w.known.Plains = append(w.known.Plains, def.Plain())
			w.known.FireTimes = append(w.known.FireTimes, r.FireTime)
			w.known.DueAts = append(w.known.DueAts, r.DueAt)
		}
		w.out.Runs = append(w.out.Runs, engine.Due{
			RunID: r.ID, JobID: j.key.job, JobVersion: j.key.version, Attempt: 1, DueAt: r.DueAt,
		})
	}
	if m := d.Missed; m != nil {
		w.out.Missed += m.Count
		w.missed.JobIds = append(w.missed.JobIds, int64(j.key.job))
		w.missed.Groups = append(w.missed.Groups, def.Group)
		w.missed.Firsts = append(w.missed.Firsts, m.First.Time)
		w.missed.Lasts = append(w.missed.Lasts, m.Last.Time)
		w.missed.Counts = append(w.missed.Counts, int64(m.Count))
		w.missed.Policies = append(w.missed.Policies, string(m.Policy))
		w.missed.Whys = append(w.missed.Whys, m.Why.Text)
		w.missed.WhyNotes = append(w.missed.WhyNotes, string(d.MissedWhy))
		w.alerts.missed(def, m.First.Time, m.Last.Time, int64(m.Count), m.Why)
	}
	w.revive = append(w.revive, d.Revive...)
	w.drop = append(w.drop, d.Drop...)
	w.advance(j, d)
}

func (w *planWriter) advance(j lockedJob, d plan.Decision) {
	if j.disabled {
		d.NextFire, d.NextDue = time.Time{}, time.Time{}
	}
	w.due.JobIds = append(w.due.JobIds, int64(j.key.job))
	w.due.NextFires = append(w.due.NextFires, epoch(d.NextFire))
	w.due.NextDues = append(w.due.NextDues, epoch(d.NextDue))
	w.due.Decideds = append(w.due.Decideds, epoch(d.DecidedThrough))
}

func (w *planWriter) write(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, now time.Time) (Planned, error) {
	if err := w.fresh.insert(ctx, tx); err != nil {
		return w.out, err
	}
	if len(w.known.Ids) > 0 {
		if err := later(tx).InsertScheduled(ctx, w.known); err != nil {
			return w.out, err
		}
		if _, err := q.DeleteFinished(ctx, w.known.Ids); err != nil {
			return w.out, err
		}
	}
	if len(w.missed.JobIds) > 0 {
		if err := later(tx).InsertMissed(ctx, w.missed); err != nil {
			return w.out, err
		}
	}
	if len(w.drop) > 0 {
		if err := later(tx).DropStranded(ctx, w.drop); err != nil {
			return w.out, err
		}
	}
	if len(w.revive) > 0 {
		rows, err := q.ReviveStranded(ctx, sqlcgen.ReviveStrandedParams{Ids: w.revive, Now: now})
		if err != nil {
			return w.out, err
		}
		for _, r := range rows {
			w.out.Runs = append(w.out.Runs, engine.Due{
				RunID: r.ID, JobID: domain.JobID(r.JobID), JobVersion: int(r.JobVersion), Attempt: int(r.Attempt),
				DueAt: r.DueAt.UTC(), Pin: orZero(r.Pin), Avoid: orZero(r.Avoid),
			})
		}
	}
	if err := later(tx).AdvanceDue(ctx, w.due); err != nil || len(w.park.JobIds) == 0 {
		return w.out, err
	}
	return w.out, later(tx).ParkDue(ctx, w.park)
}

// ClaimNear is called every second and at every trigger. It searches runs that were due long ago only from time to
// time, because most of them are already running.
const (
	claimBack       = 15 * time.Second
	claimSweepEvery = 5 * time.Second
)

// ClaimNear takes up to batch planned runs that are due within the horizon and in no ring. Another process planned
// them, or their scheduler died; stranded counts the latter.
func (s *Store) ClaimNear(ctx context.Context, batch int) (runs []engine.Due, stranded int, err error) {
	rows, err := s.q.ClaimNear(ctx, sqlcgen.ClaimNearParams{Horizon: s.plan.Horizon, Tolerance: s.plan.Tolerance, Batch: int32(batch)})
	if err != nil {
		return nil, 0, pgerr.Translate(err)
	}
	for _, r := range rows {
		runs = append(runs, claimed(r))
	}
	room := batch - len(rows)
	if room == 0 {
		return runs, 0, nil
	}
	back := claimBack
	if sweep, now := s.lastSweep.Load(), time.Now().UnixNano(); now-sweep > int64(claimSweepEvery) && s.lastSweep.CompareAndSwap(sweep, now) {
		back = 100 * 365 * 24 * time.Hour
	}
	late, err := s.q.ClaimStranded(ctx, sqlcgen.ClaimStrandedParams{
		StrandedAfter: StrandedAfter, Back: back, Tolerance: s.plan.Tolerance, Batch: int32(room),
	})
	if back != claimBack && (err != nil || len(late) == room) {
		s.lastSweep.Store(0) // there are more: the next call searches as far back
	}
	if err != nil {
		if len(runs) > 0 {
			return runs, 0, nil // these are claimed; the next call finds the rest
		}
		return nil, 0, pgerr.Translate(err)
	}
	for _, r := range late {
		runs = append(runs, claimed(sqlcgen.ClaimNearRow(r)))
	}
	return runs, len(late), nil
}

// HandBack takes runs out of the ring of a scheduler that stops, and wakes the other schedulers, which claim them. Runs
// that are no longer as the ring knows them are left alone.
func (s *Store) HandBack(ctx context.Context, runs []engine.Due) error {
	p := sqlcgen.HandBackParams{Ids: make([]domain.RunID, len(runs))}
	for i, d := range runs {
		p.Ids[i] = d.RunID
		p.DueAts = append(p.DueAts, d.DueAt)
		p.Versions = append(p.Versions, int32(d.JobVersion))
		p.Attempts = append(p.Attempts, int32(d.Attempt))
	}
	return s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		n, err := q.HandBack(ctx, p)
		if err != nil || n == 0 {
			return err
		}
		return notify(ctx, tx)
	})
}

func claimed(r sqlcgen.ClaimNearRow) engine.Due {
	return engine.Due{
		RunID: r.ID, JobID: domain.JobID(r.JobID), JobVersion: int(r.JobVersion), Attempt: int(r.Attempt),
		DueAt: r.DueAt.UTC(), Pin: orZero(r.Pin), Avoid: orZero(r.Avoid), Broadcast: orZero(r.BroadcastID),
	}
}

// errRepeat means that another transaction changed the same rows first. The caller should try again.
var errRepeat = errors.New("another transaction changed the same rows first")
