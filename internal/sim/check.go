package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/sim/memstore"
)

// slack is how long before its due instant a run may be admitted. An edit does not change an admitted run.
const slack = 250 * time.Millisecond

// jitterMax is the longest jitter of the plan's jobs.
const jitterMax = 700 * time.Millisecond

// evidence is a world at its end, with the content of its database.
type evidence struct {
	*World
	runs     []memstore.Run
	byID     map[domain.RunID]*memstore.Run
	versions map[domain.JobID][]memstore.Version
}

// check compares the calls of handlers and the content of the database with the promises of the product.
func (w *World) check() {
	e := &evidence{World: w, runs: w.db.Runs(), byID: make(map[domain.RunID]*memstore.Run), versions: w.db.Versions()}
	for i := range e.runs {
		e.byID[e.runs[i].ID] = &e.runs[i]
	}
	e.allFinal()
	for job := range e.versions {
		e.fireTimes(job)
		e.chain(job)
		e.overlaps(job)
	}
	e.attempts()
	e.results()
	e.stored()
	e.lost()
	e.covered()
	e.children()
	switch {
	case w.plan.calm:
		e.calm(500 * time.Millisecond)
	case w.plan.stalls:
		e.calm(stallMax + 300*time.Millisecond)
	case w.plan.rolling:
		e.calm(rollingLatest)
	}
}

// allFinal: every run is final, and no run owns a block slot.
func (e *evidence) allFinal() {
	left := false
	for _, r := range e.runs {
		if !r.State.Final() {
			left = true
			e.failRun(r.ID, "it is %s at the end: attempt %d, bind %d, instance %q, held %v, waiting %q", r.State, r.Attempt, r.Bind, r.Instance, r.Held, r.Waiting)
		}
	}
	if n := e.db.OwnedSlots(); n > 0 && !left {
		e.fail("%d block slots have an owner at the end", n)
	}
}

// fires returns the fire times of a job in Unix milliseconds, computed from its versions only. The value is true if the fire time
// must have a run or a ledger entry, and false if it may have one because an edit was close.
func (e *evidence) fires(job domain.JobID) map[int64]bool {
	out := make(map[int64]bool)
	slack := slack
	if e.nemesis.skewed.Load() {
		slack += skewMax // a process with a wrong clock decides by that clock
	}
	for i, v := range e.versions[job] {
		if !v.Enabled || v.Change == "deleted" || v.Schedule.Kind == domain.ScheduleFixedDelay {
			continue
		}
		compiled, err := schedule.Compile(v.Schedule, schedule.Options{DefaultZone: time.UTC, CreatedAt: v.CreatedAt})
		if err != nil {
			e.fail("job %d: %v", job, err)
			continue
		}
		to := v.To
		if to.IsZero() {
			to = time.Now()
		}
		from, sureFrom := v.From, v.From
		if i > 0 {
			// If an edit shortens the jitter, the new version keeps a fire time whose due instant was in the future.
			from, sureFrom = v.From.Add(-jitterMax), v.From.Add(slack+jitterMax)
		}
		for f, ok := compiled.Next(v.From.Add(-2 * time.Second)); ok && f.Before(to.Add(slack)); f, ok = compiled.Next(f) {
			due := compiled.Due(job, f)
			ms := f.UnixMilli()
			if due.After(from) && !due.After(to.Add(slack)) {
				sure := due.After(sureFrom) && !due.After(to)
				out[ms] = out[ms] || sure
			}
		}
	}
	return out
}

// fireTimes: each fire time has exactly one run, or an entry in the ledger.
func (e *evidence) fireTimes(job domain.JobID) {
	want := e.fires(job)
	got := make(map[int64][]*memstore.Run)
	for i := range e.runs {
		r := &e.runs[i]
		if r.JobID != job || (r.Cause != domain.CauseSchedule && r.Cause != domain.CauseMisfire) || (r.Shard != nil && r.Shard.Index > 0) {
			continue
		}
		ms := r.FireTime.UnixMilli()
		got[ms] = append(got[ms], r)
		// A run that was killed before it was due stays, even if an edit removes its fire time.
		if _, known := want[ms]; !known && !e.delayed(job, r.JobVersion) && !e.user.kills[r.ID] {
			e.failRun(r.ID, "no version of job %d has its fire time %s", job, e.since(*r.FireTime))
		}
	}
	ledger := e.db.Missed(job)
	for ms, sure := range want {
		missed := slices.ContainsFunc(ledger, func(m domain.Missed) bool { return ms >= m.First.UnixMilli() && ms <= m.Last.UnixMilli() })
		switch n := len(got[ms]); {
		case n > 1:
			e.failRun(got[ms][0].ID, "job %d has %d runs of the fire time %s", job, n, e.since(time.UnixMilli(ms)))
		case n == 0 && sure && !missed:
			e.fail("job %d has neither a run nor a ledger entry of the fire time %s", job, e.since(time.UnixMilli(ms)))
		}
	}
	for _, m := range ledger {
		if !slices.ContainsFunc(e.versions[job], func(v memstore.Version) bool { return v.Schedule.Kind == domain.ScheduleFixedDelay }) {
			e.ledger(job, m, want, got)
		}
	}
}

// ledger: the count of an entry is the number of fire times from its first to its last that have no run.
func (e *evidence) ledger(job domain.JobID, m domain.Missed, want map[int64]bool, got map[int64][]*memstore.Run) {
	n, unsure := 0, 0
	for ms, sure := range want {
		if ms < m.First.UnixMilli() || ms > m.Last.UnixMilli() || len(got[ms]) > 0 {
			continue
		}
		n++
		if !sure {
			unsure++
		}
	}
	if (m.Count > n || m.Count < n-unsure) && len(want) > 0 {
		e.fail("job %d: the ledger counts %d fire times from %s to %s, and %d have no run", job, m.Count, e.since(m.First.Time), e.since(m.Last.Time), n)
	}
}

func (e *evidence) version(job domain.JobID, version int) *memstore.Version {
	return &e.versions[job][version-1]
}

func (e *evidence) delayed(job domain.JobID, version int) bool {
	return e.version(job, version).Schedule.Kind == domain.ScheduleFixedDelay
}

// chain: a fixed_delay job fires one delay after the end of its previous run, unless a process measured the time wrong, and it
// continues to fire.
func (e *evidence) chain(job domain.JobID) {
	var last *memstore.Run
	ended := make(map[int64]time.Time) // the end of the last shard, by fire time
	var order []*memstore.Run
	for i := range e.runs {
		r := &e.runs[i]
		if r.JobID != job || (r.Cause != domain.CauseSchedule && r.Cause != domain.CauseMisfire) || !e.delayed(job, r.JobVersion) {
			continue
		}
		ms := r.FireTime.UnixMilli()
		if _, seen := ended[ms]; !seen {
			order = append(order, r)
		}
		if r.FinishedAt.After(ended[ms]) {
			ended[ms] = r.FinishedAt
		}
	}
	slices.SortFunc(order, func(a, b *memstore.Run) int { return a.FireTime.Compare(*b.FireTime) })
	for _, r := range order {
		v := e.version(job, r.JobVersion)
		// Runs of two versions are not compared, because an enable starts a new chain.
		if last != nil && last.JobVersion == r.JobVersion {
			end := ended[last.FireTime.UnixMilli()]
			if !e.nemesis.skewed.Load() && r.FireTime.Before(end.Add(v.Schedule.Delay.Std()-10*time.Millisecond)) {
				e.failRun(r.ID, "it fired %s, although the previous run ended %s and the delay is %s", e.since(*r.FireTime), e.since(end), v.Schedule.Delay.Std())
			}
		}
		last = r
	}
	for _, v := range e.versions[job] {
		if v.Schedule.Kind != domain.ScheduleFixedDelay || !v.Enabled || v.Change == "deleted" || v.To.IsZero() {
			continue
		}
		from := v.From
		for ms, end := range ended {
			if fire := time.UnixMilli(ms); !fire.After(v.To) && end.After(from) {
				from = end
			}
		}
		// Faults may delay the job until healedAt.
		if from.Before(e.healedAt) {
			from = e.healedAt
		}
		if gap := v.To.Sub(from); gap > v.Schedule.Delay.Std()+9*time.Second {
			e.fail("the fixed_delay job %d did not fire for %s before %s", job, gap, e.since(v.To))
		}
	}
}

// outcome is the end of an attempt as the database records it.
type outcome struct {
	known    bool
	ok       bool
	reason   domain.Reason
	message  string
	notes    explain.Notes // of the message
	instance string
	ended    time.Time
}

func (e *evidence) outcome(a attempt) outcome {
	r := e.byID[a.run]
	if r == nil {
		return outcome{}
	}
	if r.Attempt == a.n && r.State != domain.Retrying {
		return outcome{r.State.Final(), r.State == domain.Succeeded, r.Reason, r.Message, r.Notes, r.Instance, r.FinishedAt}
	}
	for _, x := range e.db.Attempts(a.run) {
		if x.Attempt == a.n {
			return outcome{true, x.Outcome == domain.OutcomeSucceeded, x.Reason, x.Said(), explain.Join(x.Why), x.Instance, x.FinishedAt}
		}
	}
	return outcome{}
}

// zombie reports whether an attempt was ended without its handler, which may have continued.
func (o outcome) zombie() bool {
	if o.reason == domain.ReasonLost {
		return true
	}
	return slices.ContainsFunc(o.notes.Parts(o.message), func(part explain.Explanation) bool {
		return slices.Contains([]explain.Code{
			explain.InstanceDied, explain.StartBarred, explain.AttemptUnknown, explain.ResultLost, explain.NoReport,
		}, part.Code)
	})
}

// covered: a run is covered only by a newer run of its job, and only if the block policy is cover_early.
func (e *evidence) covered() {
	byJob := make(map[domain.JobID][]*memstore.Run)
	for i := range e.runs {
		byJob[e.runs[i].JobID] = append(byJob[e.runs[i].JobID], &e.runs[i])
	}
	for job, runs := range byJob {
		policy := slices.ContainsFunc(e.versions[job], func(v memstore.Version) bool { return v.Block == domain.BlockCoverEarly })
		for _, r := range runs {
			if r.Reason != domain.ReasonCovered || !r.State.Final() {
				continue
			}
			me := r.Due()
			newer := slices.ContainsFunc(runs, func(o *memstore.Run) bool {
				due := o.Due()
				return due.Owner() != me.Owner() && e.comesAfter(o, r)
			})
			switch {
			case !policy:
				e.failRun(r.ID, "it is %s/covered, and no version of its job has the policy cover_early", r.State)
			case !newer:
				e.failRun(r.ID, "it is %s/covered, and no run of its job is newer", r.State)
			case r.State == domain.Skipped && e.handlers.starts[attempt{r.ID, r.Attempt}] != nil && len(e.db.Attempts(r.ID)) < r.Attempt:
				e.failRun(r.ID, "it is skipped as covered, but its attempt %d was started", r.Attempt)
			}
		}
	}
}

// comesAfter reports whether a run may have been due after another one, by the times in their ids. These times are not exact:
// jitter delays the due instant, misfire runs are due when they are decided, children are due when they are planned, and a process
// may measure the time wrong.
func (e *evidence) comesAfter(o, r *memstore.Run) bool {
	late := time.Millisecond
	if o.Cause == domain.CauseSchedule {
		late += jitterMax
	}
	if e.nemesis.skewed.Load() {
		late += skewMax
	}
	return o.Cause == domain.CauseMisfire || o.Cause == domain.CauseChild || !o.ID.Time().Add(late).Before(r.ID.Time())
}

// overlaps: runs of a job that needs a block slot never overlap, except for handlers whose attempt was ended without them.
func (e *evidence) overlaps(job domain.JobID) {
	spec := &e.versions[job][0].JobSpec
	if !spec.NeedsSlot() {
		return
	}
	var all []*start
	for _, s := range e.handlers.starts {
		if s.job == job && e.byID[s.run] != nil && !e.outcome(s.attempt).zombie() {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *start) int { return a.begun.Compare(b.begun) })
	for i, a := range all {
		for _, b := range all[i+1:] {
			if !b.begun.Before(a.ended) {
				continue
			}
			da, db := e.byID[a.run].Due(), e.byID[b.run].Due()
			if da.Owner() == db.Owner() || (spec.BlockScope == domain.ScopeInstance && a.p.name != b.p.name) {
				continue
			}
			e.failRun(b.run, "attempt %d began %s on %s while run %s attempt %d of the %s job %d ran on %s, from %s to %s", b.n, e.since(b.begun), b.p.title,
				a.run, a.n, spec.Block, job, a.p.title, e.since(a.begun), e.since(a.ended))
		}
	}
}

// attempts: every started attempt is recorded, and an attempt that ended without an executor was not started. The handlers check
// that no attempt is started twice.
func (e *evidence) attempts() {
	for a, s := range e.handlers.starts {
		r := e.byID[a.run]
		switch {
		case r == nil:
			e.failRun(a.run, "attempt %d was started on %s, but the run does not exist", a.n, s.p.title)
		case a.n > r.Attempt:
			e.failRun(a.run, "attempt %d was started on %s, but the run has only %d", a.n, s.p.title, r.Attempt)
		case e.outcome(a).reason == domain.ReasonLost && s.begun.After(e.outcome(a).ended.Add(10*time.Millisecond)):
			e.failRun(a.run, "attempt %d was started on %s %s, but had been declared lost %s", a.n, s.p.title, e.since(s.begun), e.since(e.outcome(a).ended))
		case slices.ContainsFunc(e.db.Attempts(a.run), func(x memstore.Attempt) bool { return x.Attempt == a.n }): // the run ended while it waited for the next attempt
		case a.n == r.Attempt && (r.State == domain.Skipped || slices.Contains([]domain.Reason{
			domain.ReasonNoExecutor, domain.ReasonQueueFull, domain.ReasonJobDeleted,
		}, r.Reason)):
			e.failRun(a.run, "attempt %d was started on %s at %s, but the run ended %s as %s/%s", a.n, s.p.title, e.since(s.begun), e.since(r.FinishedAt), r.State, r.Reason)
		}
	}
}

// results: for each recorded success a handler succeeded, and each success on an executor that stayed alive is recorded.
func (e *evidence) results() {
	for _, r := range e.runs {
		if r.State == domain.Succeeded {
			if s := e.handlers.starts[attempt{r.ID, r.Attempt}]; s == nil || !s.ok {
				e.failRun(r.ID, "it succeeded in attempt %d, but the handler did not: %+v", r.Attempt, s)
			}
		}
	}
	for a, s := range e.handlers.starts {
		died := s.p.diedAt.Load()
		if !s.ok || !s.sure || (died != 0 && time.Unix(0, died).Before(s.ended.Add(time.Second))) {
			continue
		}
		if lostAt := s.p.diskLostAt; len(lostAt) > 0 && lostAt[len(lostAt)-1].After(s.ended) {
			continue // the disk was lost after this end; method stored checks results that were published before
		}
		o := e.outcome(a)
		if o.ok {
			continue
		}
		if late, ok := e.db.Late(a.run, a.n); !ok || late.Outcome != domain.OutcomeSucceeded {
			e.failRun(a.run, "attempt %d succeeded on %s %s, but the result is lost: it ended as %q (%s)", a.n, s.p.title, e.since(s.ended), o.reason, o.message)
		}
	}
}

// stored: a result in the stream is never lost, and while it is in the stream, its attempt is not declared lost. This method skips
// results from before a wipe of the stream. They may survive in the executor's spool, which the method results checks.
func (e *evidence) stored() {
	for _, m := range e.messages {
		group, isResult := strings.CutPrefix(m.Subject, "belfry.v1.result.")
		if !isResult || m.To != "" || slices.ContainsFunc(e.nemesis.wipedAt, m.At.Before) {
			continue
		}
		var msg wire.Results
		if err := wire.Decode(m.Data, &msg); err != nil {
			e.fail("a result message of group %s: %v", group, err)
			continue
		}
		for _, r := range msg.Results {
			id, err := domain.ParseRunID(r.RunID)
			if err != nil || r.Outcome == wire.Unstarted {
				continue
			}
			o := e.outcome(attempt{id, r.Attempt})
			late, isLate := e.db.Late(id, r.Attempt)
			switch {
			case o.reason == domain.ReasonLost && m.At.Add(verdictTakes).Before(o.ended):
				e.failRun(id, "attempt %d was declared lost %s, but its result was in the stream since %s", r.Attempt, e.since(o.ended), e.since(m.At))
			case r.Outcome == wire.Succeeded && !o.ok && (!isLate || late.Outcome != domain.OutcomeSucceeded):
				e.failRun(id, "attempt %d succeeded, its result was in the stream %s, but the run ended as %q (%s)", r.Attempt, e.since(m.At), o.reason, o.message)
			}
		}
	}
}

// verdictTakes is how long a verdict may take from the check of the stream to the commit.
const verdictTakes = 4 * time.Second

// lostWithin is how long after an outage of its instance an attempt may still be bound to its dead boot. The verdict on the attempt
// may come much later, if faults of NATS or of the dispatchers delay it.
const lostWithin = 45 * time.Second

// cutLong is the shortest freeze or interruption after which the lease of an instance may have expired.
const cutLong = 6 * time.Second

// lost: an attempt is declared lost only if its instance was down, or frozen or cut off for longer than its lease.
func (e *evidence) lost() {
	for _, r := range e.runs {
		for n := 1; n <= r.Attempt; n++ {
			o := e.outcome(attempt{r.ID, n})
			if !o.known || o.reason != domain.ReasonLost {
				continue
			}
			if o.instance == "" {
				e.failRun(r.ID, "attempt %d was declared lost %s (%s), but it was not bound to an instance", n, e.since(o.ended), o.message)
				continue
			}
			trouble := false
			for _, t := range e.cluster.node(o.instance).trouble {
				to := t.to
				if to.IsZero() {
					to = o.ended
				}
				if t.from.After(o.ended) || to.Before(r.ID.Time().Add(-lostWithin)) {
					continue
				}
				trouble = trouble || t.what == "down" || to.Sub(t.from) >= cutLong
			}
			if !trouble {
				e.failRun(r.ID, "attempt %d on %s was declared lost %s (%s), but the instance had no trouble", n, o.instance, e.since(o.ended), o.message)
			}
		}
	}
}

// children: a child runs once for each end of its parent that triggers it, and once for a whole broadcast.
func (e *evidence) children() {
	made := make(map[childOf]int)
	for _, r := range e.runs {
		if r.ParentRunID != nil && (r.Shard == nil || r.Shard.Index == 0) {
			made[childOf{*r.ParentRunID, r.JobID}]++
		}
	}
	for _, r := range e.runs {
		state := r.State
		if r.BroadcastID != nil {
			if r.Shard.Index > 0 {
				continue
			}
			state = e.joined(r.ID)
		}
		if !state.Final() {
			continue
		}
		for _, c := range e.version(r.JobID, r.JobVersion).Children {
			want := 0
			if c.On.Matches(state) {
				want = 1
			}
			gone := e.versions[c.JobID][len(e.versions[c.JobID])-1].Change == "deleted"
			if n := made[childOf{r.ID, c.JobID}]; n > want || (n < want && !gone) {
				e.failRun(r.ID, "it ended as %s, and its child, job %d, has %d runs of it", state, c.JobID, n)
			}
		}
	}
}

type childOf struct {
	parent domain.RunID
	job    domain.JobID
}

// joined returns the state of a whole broadcast.
func (e *evidence) joined(id domain.RunID) domain.State {
	n, succeeded, cancelled := 0, 0, 0
	for _, r := range e.runs {
		if r.BroadcastID == nil || *r.BroadcastID != id {
			continue
		}
		n++
		switch r.State {
		case domain.Succeeded:
			succeeded++
		case domain.Cancelled:
			cancelled++
		case domain.Failed:
		case domain.Skipped:
			if r.Reason == domain.ReasonCovered {
				cancelled++
			}
		case domain.Pending, domain.Queued, domain.Running, domain.Retrying:
			return r.State
		}
	}
	switch {
	case n != e.byID[id].Shard.Total:
		e.failRun(id, "the broadcast has %d of its %d shards", n, e.byID[id].Shard.Total)
	case succeeded == n:
		return domain.Succeeded
	case cancelled > 0 && succeeded+cancelled == n:
		return domain.Cancelled
	}
	return domain.Failed
}

// startUp is how long the start of a cluster may take.
const startUp = 6 * time.Second

// calm: without faults, no fire time is missed, no run is lost, and no run is later than the given time.
func (e *evidence) calm(latest time.Duration) {
	for job := range e.versions {
		if m := e.db.Missed(job); len(m) > 0 {
			e.fail("there were no faults, but job %d missed %+v", job, m)
		}
	}
	for _, r := range e.runs {
		// With the route busyover, a run may wait long for an idle instance. A shard that only one instance may run waits for it.
		def := e.version(r.JobID, r.JobVersion)
		waits := def.Route == domain.RouteBusyover || e.plan.rolling && def.Route == domain.RouteBroadcast && def.Shards == 0
		late := r.LatenessMS != nil && *r.LatenessMS > latest.Milliseconds() && r.DueAt.After(e.began.Add(startUp)) && !waits
		if r.Reason == domain.ReasonLost || (late && r.Attempt == 1) {
			e.failRun(r.ID, "there were no faults, but it is %s/%s, %d ms late", r.State, r.Reason, *r.LatenessMS)
		}
	}
}
