package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/dispatcher"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/scheduler"
)

// Jobs changes and triggers jobs.
type Jobs interface {
	CreateJob(ctx context.Context, spec domain.JobSpec, by string) (domain.Job, error)
	EditJob(ctx context.Context, id domain.JobID, version int, by string, edit func(*domain.JobSpec) error) (before, after domain.Job, err error)
	SetEnabled(ctx context.Context, id domain.JobID, enabled bool, version int, by string) (before, after domain.Job, err error)
	DeleteJob(ctx context.Context, id domain.JobID, version int, by string) (domain.Job, error)
	Job(ctx context.Context, id domain.JobID) (domain.Job, error)
	Trigger(ctx context.Context, id domain.JobID, t domain.Trigger) ([]domain.RunID, error)
}

// Pauses pauses and resumes groups and jobs.
type Pauses interface {
	PauseGroup(ctx context.Context, group, reason string, until *time.Time, by string) (domain.Pause, error)
	ResumeGroup(ctx context.Context, group, by string) (domain.Pause, error)
	PauseJob(ctx context.Context, id domain.JobID, reason string, until *time.Time, by string) (domain.Pause, error)
	ResumeJob(ctx context.Context, id domain.JobID, by string) (domain.Pause, error)
}

// Backend is the store under test, by the interfaces of its callers, with helpers for the suite. Each test has its own backend,
// which contains the group "g".
type Backend struct {
	Scheduler scheduler.Store
	dispatcher.Stores
	dispatcher.RoleStores
	Jobs   Jobs
	Pauses Pauses
	// Replan plans the retries of runs, like the worker of a follow-up.
	Replan func(ctx context.Context, runs []domain.RunID, attempts []int) (int, error)
	// Advance moves the database's clock forward and updates the store's estimate of it.
	Advance func(t *testing.T, d time.Duration)
	// PlanChild plans the run of a child, like the worker of a follow-up.
	PlanChild func(ctx context.Context, parent domain.RunID, child domain.JobID, endedAt time.Time) error
	// FollowUps returns and removes the follow-ups that were enqueued since the last call.
	FollowUps func(t *testing.T) []engine.FollowUp
	// Runs returns all runs of a job by id.
	Runs func(t *testing.T, job domain.JobID) []Run
	// Missed returns the ledger of a job, oldest first.
	Missed func(t *testing.T, job domain.JobID) []domain.Missed
	// OwnedSlots counts the block slots that have an owner.
	OwnedSlots func(t *testing.T) int
	// HasLate reports whether a result was stored for an attempt that was ended without it.
	HasLate func(t *testing.T, run domain.RunID, attempt int) bool
}

// Run is the part of a run that the suite checks.
type Run struct {
	ID       domain.RunID
	Version  int
	State    domain.State
	Reason   domain.Reason
	Cause    domain.Cause
	Attempt  int
	FireTime time.Time
	DueAt    time.Time
	Instance string
	Parent   domain.RunID
	Message  string
	Notes    explain.Notes // of the message
}

// Test runs the suite sequentially: the behaviours depend on the clock and must not be slowed down.
func Test(t *testing.T, open func(*testing.T) *Backend) {
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) {
			backend := open(t)
			backend.Scheduler = quietOnly{backend.Scheduler, t}
			backend.Reconcile = glanced{backend.Reconcile, backend.Glance, t}
			backend.Assign = glancedKeys{backend.Assign, glanced{backend.Reconcile, backend.Glance, t}}
			b.test(t, &suite{Backend: backend, t: t})
		})
	}
}

// suite is a backend with the steps of which the behaviours consist.
type suite struct {
	*Backend
	t          *testing.T
	pausesJobs bool // pause and resume are about a job, not its group
}

// now returns the time by the store's estimate of the database's clock.
func (s *suite) now() time.Time { return s.Scheduler.Now() }

type edit = func(*domain.JobSpec)

// job creates a job of group g without a schedule.
func (s *suite) job(name string, edits ...edit) domain.Job {
	s.t.Helper()
	sp := domain.DefaultJobSpec()
	sp.Group, sp.Name, sp.Handler = "g", name, "echo"
	sp.Schedule = domain.Schedule{Kind: domain.ScheduleNone}
	for _, e := range edits {
		e(&sp)
	}
	job, err := s.Jobs.CreateJob(s.t.Context(), sp, "test")
	s.must(err)
	return job
}

func (s *suite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// everySecond sets a schedule whose grid does not depend on the job's creation.
func everySecond(sp *domain.JobSpec) {
	begin := domain.At(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	sp.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(time.Second), StartAt: &begin}
}

// everyMinuteFromNow sets a schedule that first fires a minute after the job's creation.
func everyMinuteFromNow(sp *domain.JobSpec) {
	sp.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(time.Minute)}
}

func parallel(sp *domain.JobSpec)      { sp.Block = domain.BlockParallel }
func discardLater(sp *domain.JobSpec)  { sp.Block = domain.BlockDiscardLater }
func instanceScope(sp *domain.JobSpec) { sp.BlockScope = domain.ScopeInstance }
func broadcast(sp *domain.JobSpec)     { sp.Route = domain.RouteBroadcast }

func retries(n int) edit {
	return func(sp *domain.JobSpec) { sp.Retries = n }
}

func misfire(m domain.Misfire) edit {
	return func(sp *domain.JobSpec) { sp.Misfire = m }
}

func child(id domain.JobID, on domain.ChildOn) edit {
	return func(sp *domain.JobSpec) { sp.Children = append(sp.Children, domain.Child{JobID: id, On: on}) }
}

// trigger plans n runs manually, in order.
func (s *suite) trigger(job domain.JobID, n int) (ids []domain.RunID) {
	s.t.Helper()
	for range n {
		made, err := s.Jobs.Trigger(s.t.Context(), job, domain.Trigger{Cause: domain.CauseManual})
		s.must(err)
		ids = append(ids, made...)
	}
	return ids
}

// plan plans due jobs.
func (s *suite) plan() engine.Planned {
	s.t.Helper()
	out, err := s.Scheduler.PlanDue(s.t.Context(), 100, false)
	s.must(err)
	return out
}

// claim claims the near runs that no scheduler has in its ring, in order of their due instants.
func (s *suite) claim() []engine.Due {
	s.t.Helper()
	runs, _, err := s.Scheduler.ClaimNear(s.t.Context(), 1000)
	s.must(err)
	slices.SortFunc(runs, func(a, b engine.Due) int {
		if c := a.DueAt.Compare(b.DueAt); c != 0 {
			return c
		}
		return slices.Compare(a.RunID[:], b.RunID[:])
	})
	return runs
}

// to returns a binding to boot b1 of an instance or, for "", a reason to wait.
func to(instance string) engine.Binding {
	if instance == "" {
		return engine.Binding{Waiting: explain.Of(explain.NoRoom)}
	}
	return engine.Binding{Instance: instance, BootID: "b1", Route: "test"}
}

// admit fires runs, all on one instance.
func (s *suite) admit(runs []engine.Due, instance string) engine.Admitted {
	s.t.Helper()
	defs, err := s.Fire.Definitions(s.t.Context(), runs)
	s.must(err)
	in := make([]engine.Admission, len(runs))
	for i, r := range runs {
		in[i] = engine.Admission{Due: r, Def: defs.Of(r.JobID, r.JobVersion), Binding: to(instance)}
	}
	out, err := s.Fire.Admit(s.t.Context(), in)
	s.must(err)
	return out
}

// start triggers a run and binds it to an instance.
func (s *suite) start(job domain.JobID, instance string) engine.LiveRun {
	s.t.Helper()
	s.trigger(job, 1)
	return s.one(s.admit(s.claim(), instance).Bound)
}

func (s *suite) one(runs []engine.LiveRun) engine.LiveRun {
	s.t.Helper()
	if len(runs) != 1 {
		s.t.Fatalf("%d runs, want one: %+v", len(runs), runs)
	}
	return runs[0]
}

// result returns the result that the instance of a bound run reports.
func (s *suite) result(r engine.LiveRun, outcome domain.Outcome) engine.Ended {
	e := engine.Ended{
		RunID: r.ID, Attempt: r.Attempt, Bind: r.Bind, Instance: r.Instance, BootID: r.BootID, Group: "g",
		Outcome: outcome, StartedAt: s.now(), FinishedAt: s.now(), LastLine: 1,
	}
	if outcome == domain.OutcomeFailed {
		e.Reason = domain.ReasonHandlerError
	}
	return e
}

// lost returns a reconciler's verdict on a dead instance's run.
func (s *suite) lost(r engine.LiveRun) engine.Ended {
	e := s.result(r, domain.OutcomeFailed)
	e.Group, e.Reason, e.StartedAt, e.Why = "", domain.ReasonLost, time.Time{}, explain.Of(explain.InstanceDied, r.Instance)
	return e
}

// settle settles one end and checks its disposition.
func (s *suite) settle(want engine.Disposition, e engine.Ended) engine.SettleResult {
	s.t.Helper()
	out, err := s.Settle.Settle(s.t.Context(), []engine.Ended{e})
	s.must(err)
	if out.Dispositions[0] != want {
		s.t.Fatalf("disposition %s, want %s", out.Dispositions[0], want)
	}
	return out
}

func (s *suite) run(job domain.JobID, id domain.RunID) Run {
	s.t.Helper()
	for _, r := range s.Runs(s.t, job) {
		if r.ID == id {
			return r
		}
	}
	s.t.Fatalf("there is no run %s", id)
	return Run{}
}

// is checks a run's state and reason.
func (s *suite) is(job domain.JobID, id domain.RunID, state domain.State, reason domain.Reason) {
	s.t.Helper()
	if r := s.run(job, id); r.State != state || r.Reason != reason {
		s.t.Fatalf("run is %s/%s, want %s/%s", r.State, r.Reason, state, reason)
	}
}

// equal checks a value.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func ids(runs []engine.Due) (out []domain.RunID) {
	for _, r := range runs {
		out = append(out, r.RunID)
	}
	return out
}
