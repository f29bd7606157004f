package view

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
	"github.com/belfryhq/belfry/internal/trace"
)

// RunFilter selects runs; a zero field selects all.
type RunFilter struct {
	Only     []string // the groups that the caller may see; nil: all, empty: none
	JobID    domain.JobID
	Group    string
	States   []domain.State
	Cause    domain.Cause
	Reason   domain.Reason
	Instance string
	// The shards of one broadcast, or the children of one run. At most one of them is set.
	BroadcastID domain.RunID
	ParentRunID domain.RunID
	// The new runs of a bulk action. It cannot be combined with BroadcastID or ParentRunID.
	BulkID int64

	// Unplanned leaves out runs that are not due yet: those that are pending, due in the future, and not held.
	Unplanned bool

	From, To time.Time // by id: the fire time of scheduled runs, the creation of others. To is exclusive
	Before   domain.RunID
	Limit    int
}

const (
	scanRows  = 5000        // runs that one statement reads
	scanTime  = time.Second // a page ends after this time, or after emptyTime if it is empty
	emptyTime = 5 * time.Second
	listText  = 1024 // characters of the long texts in lists
)

// lastRunID is greater than the id of any run.
var lastRunID = domain.RunID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Runs lists runs from new to old. Message, output and param are cut to 1,024 characters. next is the Before of the
// next page, or zero if there is none.
func (s *Store) Runs(ctx context.Context, f RunFilter) (runs []domain.Run, next domain.RunID, err error) {
	if g := f.groups(); g != nil && len(g) == 0 {
		return []domain.Run{}, next, nil
	}
	if !f.BroadcastID.IsZero() || !f.ParentRunID.IsZero() {
		return s.family(ctx, f)
	}
	lo, hi := idRange(f)
	limit := f.Limit
	var ids []domain.RunID
	start := time.Now()
	for more := true; more; {
		var keys []key
		if keys, more, err = s.keys(ctx, f, lo, hi, limit); err != nil {
			return nil, next, pgerr.Translate(err)
		}
		for _, k := range keys {
			if !k.fits {
				continue
			}
			if len(ids) == limit {
				next = ids[limit-1]
				more = false
				break
			}
			ids = append(ids, k.id)
		}
		if more {
			hi = keys[len(keys)-1].id
			if spent := time.Since(start); spent > emptyTime || spent > scanTime && len(ids) > 0 {
				next = hi
				break
			}
		}
	}
	runs, err = s.byID(ctx, ids, listText)
	return runs, next, err
}

// idRange converts instants and cursor into a range of ids, lo inclusive, hi exclusive.
func idRange(f RunFilter) (lo, hi domain.RunID) {
	hi = lastRunID
	if !f.From.IsZero() {
		lo = domain.FirstRunID(f.From)
	}
	if !f.To.IsZero() {
		hi = domain.FirstRunID(f.To)
	}
	if !f.Before.IsZero() && slices.Compare(f.Before[:], hi[:]) < 0 {
		hi = f.Before
	}
	return lo, hi
}

type key struct {
	id   domain.RunID
	fits bool
}

// keys walks the index that fits the filter best. more means that the walk stopped at its bound of rows. If every row matches, it
// reads at most limit+1 rows.
func (s *Store) keys(ctx context.Context, f RunFilter, lo, hi domain.RunID, limit int) (keys []key, more bool, err error) {
	rows := int32(scanRows)
	if f.plain() {
		rows = int32(limit + 1)
	}
	cause, reason, instance := nonZero(string(f.Cause)), nonZero(string(f.Reason)), nonZero(f.Instance)
	switch states := f.states(); {
	case f.BulkID != 0:
		return s.keysOfBulk(ctx, f, lo, hi)
	case f.unfinished():
		ids, err := s.q.RunKeysLive(ctx, sqlcgen.RunKeysLiveParams{Unplanned: f.Unplanned, Lo: lo, Hi: hi, JobID: nonZero(int64(f.JobID)),
			GroupName: nonZero(f.Group), Only: f.Only, States: states, Cause: cause, Reason: reason, Instance: instance,
			MaxRows: int32(limit + 1)})
		return convert(ids, func(id domain.RunID) key { return key{id, true} }), len(ids) == limit+1, err
	case f.JobID != 0:
		got, err := s.q.RunKeysOfJob(ctx, sqlcgen.RunKeysOfJobParams{Unplanned: f.Unplanned, JobID: int64(f.JobID), Lo: lo, Hi: hi,
			Only: f.groups(), States: states, Cause: cause, Reason: reason, Instance: instance, MaxRows: rows})
		keys = convert(got, func(r sqlcgen.RunKeysOfJobRow) key { return key{r.ID, r.Fits} })
		return keys, len(keys) == int(rows), err
	case f.oneGroup() != "" && f.failed():
		if cause == nil && reason == nil && instance == nil {
			rows = int32(limit + 1)
		}
		got, err := s.q.RunKeysFailedOfGroup(ctx, sqlcgen.RunKeysFailedOfGroupParams{GroupName: f.oneGroup(), Lo: lo, Hi: hi,
			Cause: cause, Reason: reason, Instance: instance, MaxRows: rows})
		keys = convert(got, func(r sqlcgen.RunKeysFailedOfGroupRow) key { return key{r.ID, r.Fits} })
		return keys, len(keys) == int(rows), err
	case f.oneGroup() != "":
		got, err := s.q.RunKeysOfGroup(ctx, sqlcgen.RunKeysOfGroupParams{Unplanned: f.Unplanned, GroupName: f.oneGroup(), Lo: lo, Hi: hi,
			States: states, Cause: cause, Reason: reason, Instance: instance, MaxRows: rows})
		keys = convert(got, func(r sqlcgen.RunKeysOfGroupRow) key { return key{r.ID, r.Fits} })
		return keys, len(keys) == int(rows), err
	case f.failed():
		if f.groups() == nil && cause == nil && reason == nil && instance == nil {
			rows = int32(limit + 1) // all of them match
		}
		got, err := s.q.RunKeysFailed(ctx, sqlcgen.RunKeysFailedParams{Lo: lo, Hi: hi,
			Only: f.groups(), Cause: cause, Reason: reason, Instance: instance, MaxRows: rows})
		keys = convert(got, func(r sqlcgen.RunKeysFailedRow) key { return key{r.ID, r.Fits} })
		return keys, len(keys) == int(rows), err
	default:
		got, err := s.q.RunKeys(ctx, sqlcgen.RunKeysParams{Unplanned: f.Unplanned, Lo: lo, Hi: hi,
			Only: f.groups(), States: states, Cause: cause, Reason: reason, Instance: instance, MaxRows: rows})
		keys = convert(got, func(r sqlcgen.RunKeysRow) key { return key{r.ID, r.Fits} })
		return keys, len(keys) == int(rows), err
	}
}

// plain reports whether every run in the chosen index matches, so that only one page of runs has to be read.
func (f RunFilter) plain() bool {
	return len(f.States) == 0 && f.Cause == "" && f.Reason == "" && f.Instance == "" &&
		(f.Only == nil || f.JobID == 0 && f.oneGroup() != "")
}

func (f RunFilter) failed() bool { return len(f.States) == 1 && f.States[0] == domain.Failed }

func (f RunFilter) unfinished() bool {
	return len(f.States) > 0 && !slices.ContainsFunc(f.States, domain.State.Final)
}

// oneGroup returns the only possible group of matching runs, if there is exactly one.
func (f RunFilter) oneGroup() string {
	if g := f.groups(); len(g) == 1 {
		return g[0]
	}
	return ""
}

// groups returns the possible groups of matching runs; nil means all.
func (f RunFilter) groups() []string {
	switch {
	case f.Group == "":
		return f.Only
	case f.Only == nil || slices.Contains(f.Only, f.Group):
		return []string{f.Group}
	}
	return []string{}
}

// Sees reports whether runs of a group may match.
func (f RunFilter) Sees(group string) bool {
	return f.groups() == nil || slices.Contains(f.groups(), group)
}

func (f RunFilter) states() []string {
	if len(f.States) == 0 {
		return nil
	}
	return convert(f.States, func(s domain.State) string { return string(s) })
}

func convert[T, U any](in []T, to func(T) U) []U {
	out := make([]U, len(in))
	for i, v := range in {
		out[i] = to(v)
	}
	return out
}

func (s *Store) byID(ctx context.Context, ids []domain.RunID, chars int32) ([]domain.Run, error) {
	runs := make([]domain.Run, 0, len(ids))
	if len(ids) == 0 {
		return runs, nil
	}
	rows, err := s.q.RunsByID(ctx, sqlcgen.RunsByIDParams{TextChars: chars, Ids: ids})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	for _, r := range rows {
		run := toRun(r)
		run.TraceURL = trace.URL(s.TraceURL, run.TraceID)
		// While a run is being moved to the history, both rows may be visible; the final row is valid.
		if n := len(runs); n > 0 && runs[n-1].ID == run.ID {
			if run.State.Final() {
				runs[n-1] = run
			}
			continue
		}
		runs = append(runs, run)
	}
	return runs, s.explainLines(ctx, runs)
}

// explainLines gives runs that wait behind others the reason for which the first of them waits.
func (s *Store) explainLines(ctx context.Context, runs []domain.Run) error {
	behind := make(map[domain.RunID]*domain.Run)
	for i := range runs {
		if w := runs[i].Waiting; w != nil && w.Code == explain.BehindOthers {
			behind[runs[i].ID] = &runs[i]
		}
	}
	if len(behind) == 0 {
		return nil
	}
	firsts, err := s.q.FirstInLine(ctx, slices.Collect(maps.Keys(behind)))
	if err != nil {
		return pgerr.Translate(err)
	}
	for _, f := range firsts {
		if why := explain.Current(explain.Note(f.WaitingNote), f.Waiting); why != nil {
			behind[f.RunID].Waiting = why
		}
	}
	return nil
}

// Run returns a run with all its attempts. The error is NotFound if there is none or its retention has passed.
func (s *Store) Run(ctx context.Context, id domain.RunID) (domain.Run, error) {
	const whole = 1 << 30
	runs, err := s.byID(ctx, []domain.RunID{id}, whole)
	if err != nil {
		return domain.Run{}, err
	}
	if len(runs) == 0 {
		return domain.Run{}, noRun()
	}
	run := runs[0]
	earlier, err := s.q.AttemptsOfRun(ctx, id)
	if err != nil {
		return domain.Run{}, pgerr.Translate(err)
	}
	late, err := s.q.LateResultsOfRun(ctx, id)
	if err != nil {
		return domain.Run{}, pgerr.Translate(err)
	}
	executors, err := s.q.ExecutorsOfRun(ctx, sqlcgen.ExecutorsOfRunParams{RunID: id, GroupName: run.Group})
	if err != nil {
		return domain.Run{}, pgerr.Translate(err)
	}
	run.Attempts = attempts(run, earlier)
	for _, l := range late {
		if a := attemptOf(&run, l.Attempt); a != nil {
			a.LateOutcome = l.Outcome
		}
	}
	for _, e := range executors {
		if a := attemptOf(&run, e.Attempt); a != nil {
			a.ExecutorVersion, a.Host = e.Version, e.Host
		}
	}
	return run, nil
}

// attemptOf returns the attempt with this number; nil if there is none.
func attemptOf(run *domain.Run, number int32) *domain.Attempt {
	i := slices.IndexFunc(run.Attempts, func(a domain.Attempt) bool { return a.Attempt == int(number) })
	if i < 0 {
		return nil
	}
	return &run.Attempts[i]
}

func noRun() error { return domain.NewError(domain.NotFound, "there is no such run") }

// attempts returns the ended attempts and then the run's current or last attempt, which is stored in the run itself.
// The current attempt of a retrying run has ended and is among the former. A run that ended without a start has no
// attempt.
func attempts(run domain.Run, earlier []sqlcgen.AttemptsOfRunRow) []domain.Attempt {
	all := make([]domain.Attempt, 0, len(earlier)+1)
	for _, a := range earlier {
		all = append(all, domain.Attempt{
			Attempt: int(a.Attempt), Instance: orZero(a.Instance), DispatchedAt: instant(a.DispatchedAt),
			StartedAt: instant(a.StartedAt), FinishedAt: domain.AtPtr(a.FinishedAt),
			Outcome: a.Outcome, Reason: domain.Reason(a.Reason), Message: a.Message,
			MessageParts: explain.Notes(orZero(a.MessageNotes)).Parts(a.Message),
		})
	}
	if n := len(all); n > 0 && all[n-1].Attempt >= run.Attempt {
		return all
	}
	if run.DispatchedAt == nil && run.StartedAt == nil && run.Instance == "" {
		return all
	}
	last := domain.Attempt{
		Attempt: run.Attempt, Instance: run.Instance, DispatchedAt: run.DispatchedAt,
		StartedAt: run.StartedAt, FinishedAt: run.FinishedAt,
	}
	if run.State.Final() {
		last.Outcome, last.Reason, last.Message, last.MessageParts = string(run.State), run.Reason, run.Message, run.MessageParts
	}
	return append(all, last)
}

func toRun(r sqlcgen.RunsByIDRow) domain.Run {
	run := domain.Run{
		ID: r.ID, JobID: domain.JobID(r.JobID), JobName: r.JobName, JobVersion: int(r.JobVersion), Group: r.GroupName,
		Cause: domain.Cause(r.Cause), State: domain.State(r.State), Reason: domain.Reason(r.Reason),
		Message: r.Message, MessageParts: explain.Notes(orZero(r.MessageNotes)).Parts(r.Message), Output: r.Output, Param: r.Param,
		FireTime: instant(r.FireTime), DueAt: domain.AtPtr(r.DueAt), CreatedAt: domain.At(r.CreatedAt),
		DispatchedAt: instant(r.DispatchedAt), StartedAt: instant(r.StartedAt), FinishedAt: instant(r.FinishedAt),
		LatenessMS: r.LatenessMs, Attempt: int(r.Attempt), MaxAttempts: int(r.Retries) + 1,
		Instance: orZero(r.Instance), Route: explain.Current(explain.Note(orZero(r.RouteNote)), r.Route),
		Waiting: explain.Current(explain.Note(orZero(r.WaitingNote)), orZero(r.Waiting)), HeldBy: r.HeldBy,
		BroadcastID: r.BroadcastID, ParentRunID: r.ParentRunID, EventID: orZero(r.EventID),
		KillAskedAt: instant(r.KillRequestedAt),
	}
	if r.WaitedNote != "" && r.WaitedMs != nil {
		run.Waited = &domain.Waited{Explanation: *explain.Note(r.WaitedNote).Explanation(), DurationMS: *r.WaitedMs}
	}
	if r.ShardIndex != nil && r.ShardTotal != nil {
		run.Shard = &domain.Shard{Index: int(*r.ShardIndex), Total: int(*r.ShardTotal)}
	}
	if r.StartedAt != nil && r.FinishedAt != nil {
		ms := r.FinishedAt.Sub(*r.StartedAt).Milliseconds()
		run.DurationMS = &ms
	}
	first := run.ID
	if run.BroadcastID != nil {
		first = *run.BroadcastID
	}
	run.TraceID = trace.Of(orZero(r.Trace), first).Trace.String()
	run.Note = run.NoteIn(explain.English)
	return run
}
