package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// Settle records how attempts ended, with all consequences, in one transaction: the move to the history or the retry,
// the follow-ups as River jobs, the block slots and the next held runs, the next fire of fixed_delay jobs, the
// countdown of a broadcast. Repeats change nothing. Before that, runs of plain jobs that succeeded are settled by a
// single statement, a transaction of its own, because they need no other lock. If the rest fails, the caller settles
// all results again, and these are then repeats.
func (s *Store) Settle(ctx context.Context, ended []engine.Ended) (SettleResult, error) {
	out := SettleResult{Dispositions: make([]engine.Disposition, len(ended))}
	ended, err := s.believeLost(ctx, ended)
	if err != nil {
		return out, err
	}
	err = s.single(ctx, func(*sqlcgen.Queries) error {
		_, err := finish(ctx, boundedPool{s.pool}, ended, s.Now(), nil, true, &out)
		return err
	})
	if err != nil {
		return out, err
	}
	var rest []engine.Ended
	var at []int // indexes of rest's elements in ended
	for i, e := range ended {
		if out.Dispositions[i] == "" {
			rest, at = append(rest, e), append(at, i)
		}
	}
	if len(rest) == 0 {
		return out, nil
	}
	var more SettleResult
	err = s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) (err error) {
		more, err = s.settle(ctx, tx, q, rest)
		return err
	})
	for i, d := range more.Dispositions {
		out.Dispositions[at[i]] = d
	}
	more.Dispositions, more.Changes = out.Dispositions, append(out.Changes, more.Changes...)
	return more, err
}

// believeLost gives results that claim to be lost this reason if a gateway has sent the attempt. It does not change the given slice.
func (s *Store) believeLost(ctx context.Context, ended []engine.Ended) ([]engine.Ended, error) {
	var claims sqlcgen.SentToParams
	var at []int // indexes of the claims in ended
	for i := range ended {
		if e := &ended[i]; e.ClaimsLost {
			claims.RunIds, claims.Attempts, claims.BootIds = append(claims.RunIds, e.RunID), append(claims.Attempts, int32(e.Attempt)), append(claims.BootIds, e.BootID)
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return ended, nil
	}
	claims.N = int32(len(at))
	sent, err := s.q.SentTo(ctx, claims)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	believed := slices.Clone(ended)
	for _, place := range sent {
		believed[at[place-1]].Reason = domain.ReasonLost
	}
	return believed, nil
}

// MakeDays creates the missing history partitions of the given UTC days.
func (s *Store) MakeDays(ctx context.Context, days []time.Time) error {
	db := boundedPool{s.pool}
	for _, day := range days {
		if _, err := db.Exec(ctx, `SELECT make_day($1::date)`, day); err != nil {
			return pgerr.Translate(err)
		}
	}
	return nil
}

// settling is the state of one settle transaction.
type settling struct {
	s     *Store
	tx    pgx.Tx
	q     *sqlcgen.Queries
	now   time.Time
	in    []engine.Ended
	out   SettleResult
	defs  map[versionKey]*definition
	slots *slotSet

	finals   []final
	retries  sqlcgen.RetryRunsParams
	requeue  []domain.RunID
	ups      []engine.FollowUp
	alerts   alertNotes
	freed    map[slotKey]bool // slots whose owner ends in this transaction
	left     map[slotKey]bool // slots of scope instance that a shard of their owner leaves
	unbound  []domain.RunID
	chains   []int64
	toClass  []int                             // results whose run is no longer in exactly that attempt
	liveRows map[domain.RunID]sqlcgen.RunsLive // locked; only the columns of LockRuns are set
	exists   map[int64]bool                    // jobs whose runs may be retried: they are not deleted before the commit
	matched  map[domain.RunID]bool             // already settled by this batch
}

// final is a run that is moved into the history.
type final struct {
	row   sqlcgen.RunsLive
	ended engine.Ended
	notes explain.Notes // of ended.Message
	state domain.State
	def   *definition
}

func (s *Store) settle(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, in []engine.Ended) (SettleResult, error) {
	w := &settling{
		s: s, tx: tx, q: q, now: s.Now(), in: in, freed: make(map[slotKey]bool), left: make(map[slotKey]bool), matched: make(map[domain.RunID]bool),
	}
	w.out.Dispositions = make([]engine.Disposition, len(in))
	for _, step := range []func(context.Context) error{
		w.lock, w.compare, w.classify, w.move, w.retry, w.putBack, w.countDown, w.handSlots, w.continueChains,
	} {
		if err := step(ctx); err != nil {
			return w.out, err
		}
	}
	alerts, err := w.alerts.write(ctx, q, s.alerts, w.now)
	if err != nil {
		return w.out, err
	}
	if w.ups = append(w.ups, alerts...); len(w.ups) > 0 {
		if err := s.followUps.InsertTx(ctx, tx, w.ups); err != nil {
			return w.out, fmt.Errorf("enqueue follow-ups: %w", err)
		}
	}
	return w.out, nil
}

// lock takes every lock that the batch needs, in the order given in doc.go.
func (w *settling) lock(ctx context.Context) error {
	ids := make([]domain.RunID, len(w.in))
	for i, e := range w.in {
		ids[i] = e.RunID
		if e.Instance == "" {
			w.unbound = append(w.unbound, e.RunID)
		}
	}
	peek, err := w.q.PeekRuns(ctx, ids)
	if err != nil {
		return err
	}
	keys := make([]versionKey, len(peek))
	for i, r := range peek {
		keys[i] = versionKey{domain.JobID(r.JobID), int(r.JobVersion)}
	}
	if w.defs, err = w.s.load(ctx, w.q, keys); err != nil {
		return err
	}
	var slots []slotKey
	var broadcasts []domain.RunID
	for i, r := range peek {
		def := w.defs[keys[i]]
		if def == nil {
			return domain.NewError(domain.Internal, fmt.Sprintf("run %s has no version row", r.ID))
		}
		if def.NeedsSlot() {
			slots = append(slots, slotOf(&def.Definition, orZero(r.Instance)))
		}
		if r.BroadcastID != nil {
			broadcasts = append(broadcasts, *r.BroadcastID)
		}
		if def.Schedule.Kind == domain.ScheduleFixedDelay {
			w.chains = append(w.chains, r.JobID)
		}
	}
	if len(w.chains) > 0 {
		if _, err := w.q.LockDue(ctx, w.chains); err != nil {
			return err
		}
	}
	if err := w.lockRetried(ctx, peek); err != nil {
		return err
	}
	if len(w.unbound) > 0 {
		if err := later(w.tx).LockWaiting(ctx, w.unbound); err != nil {
			return err
		}
	}
	if w.slots, err = lockSlots(ctx, w.q, slots, false); err != nil {
		return err
	}
	if len(broadcasts) > 0 {
		if err := later(w.tx).LockBroadcasts(ctx, broadcasts); err != nil {
			return err
		}
	}
	if err := w.finishOrdinary(ctx, peek); err != nil {
		return err
	}
	ids = slices.DeleteFunc(ids, func(id domain.RunID) bool { return w.matched[id] })
	var rows []sqlcgen.LockRunsRow
	if len(ids) > 0 {
		if rows, err = w.q.LockRuns(ctx, ids); err != nil {
			return err
		}
	}
	w.liveRows = make(map[domain.RunID]sqlcgen.RunsLive, len(rows))
	for _, r := range rows {
		w.liveRows[r.ID] = sqlcgen.RunsLive{
			ID: r.ID, JobID: r.JobID, JobVersion: r.JobVersion, GroupName: r.GroupName, Cause: r.Cause, State: r.State,
			Attempt: r.Attempt, Bind: r.Bind, FireTime: r.FireTime, CreatedAt: r.CreatedAt, KillRequestedAt: r.KillRequestedAt,
			KillReason: r.KillReason, KillWhy: r.KillWhy, KillWhyNote: r.KillWhyNote, Instance: r.Instance, BootID: r.BootID, BroadcastID: r.BroadcastID,
		}
	}
	return nil
}

// finishOrdinary settles the results of runs that succeeded on their bound boot. compare handles the rest.
func (w *settling) finishOrdinary(ctx context.Context, peek []sqlcgen.PeekRunsRow) error {
	ordinary := make(map[domain.RunID]bool, len(peek))
	seen := make(map[domain.RunID]bool) // runs already marked as running: MarkRunning has sent their alert of a late start
	for _, r := range peek {
		ordinary[r.ID] = r.BroadcastID == nil
		if domain.State(r.State) == domain.Running {
			seen[r.ID] = true
		}
	}
	rows, err := finish(ctx, w.tx, w.in, w.now, ordinary, false, &w.out)
	for _, r := range rows {
		e := &w.in[r.in]
		w.matched[e.RunID] = true // a second result in this batch for the same attempt is a repeat
		def := w.defs[versionKey{domain.JobID(r.job), int(r.version)}]
		w.children(def, e.RunID, domain.Succeeded, r.finishedAt)
		if !seen[e.RunID] {
			w.alerts.started(def, e.RunID, r.lateness, w.s.alerts, r.finishedAt)
		}
		w.alerts.ended(def, e.RunID, domain.Succeeded, r.finishedAt)
		w.free(def, &sqlcgen.RunsLive{ID: e.RunID, JobID: r.job, Instance: &e.Instance}, true)
	}
	return err
}

// lockRetried prevents the deletion of jobs whose runs failed, until the decision about their retries is committed.
func (w *settling) lockRetried(ctx context.Context, peek []sqlcgen.PeekRunsRow) error {
	failed := make(map[domain.RunID]bool)
	for _, e := range w.in {
		if e.Outcome == domain.OutcomeFailed && !e.Permanent {
			failed[e.RunID] = true
		}
	}
	var jobs []int64
	for _, r := range peek {
		if failed[r.ID] && w.defs[versionKey{domain.JobID(r.JobID), int(r.JobVersion)}].Retries > 0 {
			jobs = append(jobs, r.JobID)
		}
	}
	w.exists = make(map[int64]bool, len(jobs))
	if len(jobs) == 0 {
		return nil
	}
	ids, err := w.q.JobsForRetry(ctx, jobs)
	for _, id := range ids {
		w.exists[id] = true
	}
	return err
}

// compare decides about each Ended whose run is still in exactly that attempt on exactly that boot. classify handles
// the others.
func (w *settling) compare(context.Context) error {
	var retried []int
	for i, e := range w.in {
		if w.out.Dispositions[i] != "" {
			continue // already finished
		}
		r, live := w.liveRows[e.RunID]
		def := w.defs[versionKey{domain.JobID(r.JobID), int(r.JobVersion)}]
		switch {
		case !live || w.matched[e.RunID] || def == nil || int(r.Attempt) != e.Attempt || orZero(r.Instance) != e.Instance || orZero(r.BootID) != e.BootID:
			w.toClass = append(w.toClass, i)
			continue
		case !sameRound(&e, &r):
			w.toClass = append(w.toClass, i) // it refers to an earlier binding
			continue
		case e.Group != "" && e.Group != r.GroupName:
			w.out.Dispositions[i] = engine.WrongGroup
			continue
		}
		w.matched[e.RunID] = true // a second Ended in this batch for the same attempt is a repeat
		w.out.Dispositions[i] = engine.Settled
		clean(&e, w.now, r.CreatedAt)
		killed := r.KillRequestedAt != nil
		switch {
		case e.Outcome == domain.OutcomeUnstarted && !killed:
			w.requeue = append(w.requeue, e.RunID)
			w.free(def, &r, false)
		case w.tryAgain(def, &r, &e, killed):
			retried = append(retried, i)
		default:
			w.end(def, r, e, killed)
		}
	}
	w.planRetries(retried)
	return nil
}

// sameRound reports whether an Ended applies to the run's current offer round. A handler's result applies in any round,
// because the executor that reports it has started the attempt. A hand-back or a reconciler's finding applies only to
// the binding it refers to. An executor that leaves out the round can only mean the first one.
func sameRound(e *engine.Ended, r *sqlcgen.RunsLive) bool {
	bind := e.Bind
	switch {
	case e.Instance == "":
		return true
	case e.Outcome == domain.OutcomeUnstarted && bind == 0:
		bind = 1
	case e.Outcome != domain.OutcomeUnstarted && (e.Group != "" || bind == 0):
		return true
	}
	return bind == int(r.Bind)
}

// tryAgain reports whether the retry policy allows another attempt of the run.
func (w *settling) tryAgain(def *definition, r *sqlcgen.RunsLive, e *engine.Ended, killed bool) bool {
	if e.Outcome != domain.OutcomeFailed || killed || e.Permanent || int(r.Attempt) > def.Retries {
		return false
	}
	return e.Instance != "" // without an instance, the run missed its start deadline or found no free slot, so no attempt has failed
}

// planRetries schedules the retries of failed attempts. If the job was deleted meanwhile, it ends the runs instead,
// because no attempt may start any more.
func (w *settling) planRetries(retried []int) {
	for _, i := range retried {
		r, e := w.rowOf(i), w.in[i]
		clean(&e, w.now, r.CreatedAt)
		def := w.defs[versionKey{domain.JobID(r.JobID), int(r.JobVersion)}]
		if !w.exists[r.JobID] {
			w.end(def, r, e, false)
			continue
		}
		wait := e.RetryAfter
		if wait <= 0 && !e.Reason.RetryAtOnce() {
			wait = def.RetryBackoff.Backoff(e.Attempt, rand.Float64())
		}
		p := &w.retries
		p.Ids = append(p.Ids, e.RunID)
		p.DueAts = append(p.DueAts, w.now.Add(wait).Truncate(time.Millisecond))
		p.Outcomes = append(p.Outcomes, string(e.Outcome))
		p.Reasons = append(p.Reasons, string(e.Reason))
		p.Messages = append(p.Messages, e.Message)
		p.MessageNotes = append(p.MessageNotes, string(explain.Join(e.Why)))
		avoid := ""
		if e.Reason.AvoidsInstance() {
			avoid = e.Instance
		}
		p.Avoids = append(p.Avoids, avoid)
		p.StartedAts = append(p.StartedAts, epoch(e.StartedAt))
		p.FinishedAts = append(p.FinishedAts, e.FinishedAt)
		p.LastLines = append(p.LastLines, e.LastLine)
		w.ups = append(w.ups, engine.FollowUp{Retry: true, RunID: e.RunID, Attempt: e.Attempt})
		w.free(def, &r, false)
	}
}

// rowOf returns the row that compare matched with result i.
func (w *settling) rowOf(i int) sqlcgen.RunsLive { return w.liveRows[w.in[i].RunID] }

// end moves a run into the history.
func (w *settling) end(def *definition, r sqlcgen.RunsLive, e engine.Ended, killed bool) {
	state := domain.Failed
	switch e.Outcome {
	case domain.OutcomeSucceeded:
		state = domain.Succeeded
	case domain.OutcomeCancelled, domain.OutcomeUnstarted:
		state = domain.Cancelled
	case domain.OutcomeSkipped:
		state = domain.Skipped
	case domain.OutcomeFailed:
	}
	notes := explain.Join(e.Why)
	if killed && state != domain.Succeeded {
		// Whatever the handler did after the kill request, the run counts as cancelled, by whoever requested the kill.
		state = domain.Cancelled
		e.Reason = domain.Reason(orZero(r.KillReason))
		e.Message = killMessage(orZero(r.KillWhy), e.Message)
		notes = explain.Join(explain.Note(orZero(r.KillWhyNote)), e.Why)
	}
	w.finals = append(w.finals, final{row: r, ended: e, notes: notes, state: state, def: def})
	w.free(def, &r, true)
}

// killMessage puts the reason of the kill before the message of the attempt.
func killMessage(why, said string) string {
	if why == "" || said == "" {
		return why + said
	}
	return cut(why+": "+said, domain.MaxMessageBytes)
}

// free records that the run gives up its slot: when it ends, and in scope instance also whenever it loses its instance.
// A broadcast's slot is freed when its last shard has ended, in scope instance when its last shard has left the
// instance.
func (w *settling) free(def *definition, r *sqlcgen.RunsLive, ended bool) {
	cluster := def.BlockScope == domain.ScopeCluster
	if !def.NeedsSlot() || (cluster && (!ended || r.BroadcastID != nil)) {
		return
	}
	k := slotOf(&def.Definition, orZero(r.Instance))
	run := liveRun(*r)
	due := run.Due()
	if owner, locked := w.slots.owners[k]; !locked || owner != due.Owner() {
		return
	}
	if r.BroadcastID != nil {
		w.left[k] = false
		return
	}
	w.freed[k] = true
}

func (w *settling) move(ctx context.Context) error {
	if len(w.finals) == 0 {
		return nil
	}
	var p sqlcgen.MoveToHistoryParams
	for _, f := range w.finals {
		p.Ids = append(p.Ids, f.row.ID)
		p.States = append(p.States, string(f.state))
		p.Reasons = append(p.Reasons, string(f.ended.Reason))
		p.Messages = append(p.Messages, f.ended.Message)
		p.MessageNotes = append(p.MessageNotes, string(f.notes))
		p.Outputs = append(p.Outputs, f.ended.Output)
		p.StartedAts = append(p.StartedAts, epoch(f.ended.StartedAt))
		p.FinishedAts = append(p.FinishedAts, f.ended.FinishedAt)
		p.LastLines = append(p.LastLines, f.ended.LastLine)
	}
	rows, err := w.q.MoveToHistory(ctx, p)
	if err != nil {
		return err
	}
	if err := later(w.tx).DeleteLive(ctx, p.Ids); err != nil {
		return err
	}
	lateness := make(map[domain.RunID]*int64, len(rows))
	for _, r := range rows {
		lateness[r.ID] = r.LatenessMs
	}
	for _, f := range w.finals {
		c := change(f.row)
		c.State, c.Reason, c.LatenessMS = f.state, f.ended.Reason, lateness[f.row.ID]
		w.out.Changes = append(w.out.Changes, c)
		if domain.State(f.row.State) != domain.Running {
			w.alerts.started(f.def, f.row.ID, c.LatenessMS, w.s.alerts, f.ended.FinishedAt)
		}
		if f.row.BroadcastID == nil {
			w.children(f.def, f.row.ID, f.state, f.ended.FinishedAt)
			w.alerts.ended(f.def, f.row.ID, f.state, f.ended.FinishedAt)
		}
	}
	if len(w.unbound) > 0 {
		return later(w.tx).DeleteWaiting(ctx, p.Ids)
	}
	return nil
}

func (w *settling) children(def *definition, parent domain.RunID, state domain.State, at time.Time) {
	for _, c := range def.Children {
		if c.On.Matches(state) {
			w.ups = append(w.ups, engine.FollowUp{RunID: parent, ChildJob: c.JobID, EndedAt: at})
		}
	}
}

func (w *settling) retry(ctx context.Context) error {
	if len(w.retries.Ids) == 0 {
		return nil
	}
	rows, err := w.q.RetryRuns(ctx, w.retries)
	for _, r := range rows {
		w.out.Changes = append(w.out.Changes, change(r))
	}
	return err
}

// putBack makes attempts wait for an instance again.
func (w *settling) putBack(ctx context.Context) error {
	if len(w.requeue) == 0 {
		return nil
	}
	startFailed := explain.Of(explain.StartFailed)
	rows, err := w.q.RequeueRuns(ctx, sqlcgen.RequeueRunsParams{
		Ids: w.requeue, Waiting: startFailed.English(), WaitingNote: string(startFailed),
	})
	if err != nil {
		return err
	}
	var wait waitingRows
	for _, r := range rows {
		run := liveRun(r)
		wait.add(&run, &w.defs[versionKey{run.JobID, run.JobVersion}].Definition, w.now)
		w.out.Changes = append(w.out.Changes, change(r))
	}
	w.out.Waiting = true
	return wait.insert(ctx, w.q)
}
