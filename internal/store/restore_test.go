package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/view"
)

// backedUp makes a state of the database that is then restored d later, by a clock that stands still: a scheduler was at work
// until the present, and has planned some seconds ahead.
func backedUp(t *testing.T, s *store.Store, d time.Duration) (saved time.Time) {
	t.Helper()
	planDue(t, s)
	saved = clockOf(t, s)
	exec(t, s, `INSERT INTO scheduler_presence (scheduler, from_at, seen_at) VALUES ('s1', $1, $2)`, saved.Add(-time.Hour), saved)
	ahead(t, s, d)
	return saved
}

func restored(t *testing.T, s *store.Store, until *time.Time) store.Restoration {
	t.Helper()
	out, err := s.Restored(t.Context(), until, "test")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// entered returns the numbers of fire times in the ledger because of the restore, by job.
func entered(t *testing.T, s *store.Store) map[string]int {
	t.Helper()
	out := make(map[string]int)
	for _, name := range column[string](t, s, `SELECT name FROM jobs`) {
		out[name] = query[int](t, s, `SELECT COALESCE(sum(m.count), 0) FROM missed m JOIN jobs j ON j.id = m.job_id WHERE j.name = $1 AND m.why_note LIKE '["restored"%'`, name)
	}
	return out
}

// Whatever the misfire policy, no fire time of the uncertain time runs again, and each one is named.
func TestRestored(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	standingClock(t, s)
	for _, policy := range []domain.Misfire{domain.MisfireFireAll, domain.MisfireFireOnce, domain.MisfireSkip} {
		create(t, s, string(policy), everySecond, func(sp *domain.JobSpec) { sp.Misfire = policy })
	}
	create(t, s, "later", func(sp *domain.JobSpec) {
		at := domain.At(clockOf(t, s).Add(time.Hour))
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleOnce, At: &at}
	})
	create(t, s, "off", everySecond, func(sp *domain.JobSpec) { sp.Enabled = false })
	saved := backedUp(t, s, time.Minute)
	out := restored(t, s, nil)
	if !out.From.Equal(saved) || !out.To.Equal(saved.Add(time.Minute)) || out.Jobs != 3 || out.FireTimes != 180 {
		t.Fatalf("%+v", out)
	}
	if got := entered(t, s); got["fire_all"] != 60 || got["fire_once"] != 60 || got["skip"] != 60 || got["off"]+got["later"] != 0 {
		t.Errorf("the ledger has %v", got)
	}
	planDue(t, s)
	if stranded, err := s.PlanStranded(t.Context(), 100); err != nil || len(stranded.Runs) > 0 {
		t.Errorf("stranded: %+v %v", stranded, err)
	}
	if n := query[int](t, s, `SELECT count(*) FROM runs_live WHERE fire_time <= $1`, out.To); n > 0 {
		t.Errorf("%d uncertain fire times have runs", n)
	}
	if n := query[int](t, s, `SELECT count(*) FROM runs_live WHERE fire_time > $1`, out.To); n == 0 {
		t.Error("no later fire times have runs")
	}
	page, _, _, err := fireCheck(s).Page(t.Context(), view.FireScope{Since: saved, Until: out.To}, firecheck.Cursor{})
	if err != nil || counts(page) != "uncertain 180, disabled 60" {
		t.Errorf("the fire check says %s, %v", counts(page), err)
	}
	job := query[int64](t, s, `SELECT id FROM jobs WHERE name = 'fire_all'`)
	w, err := fireCheck(s).Why(t.Context(), domain.JobID(job), domain.At(saved.Truncate(time.Second).Add(30*time.Second)).String(), explain.English)
	if err != nil || w.Fate != firecheck.FateUncertain || !strings.Contains(w.Answer, "The database was restored to its state of") {
		t.Errorf("why: %+v, %v", w, err)
	}
	again := restored(t, s, nil)
	if again.FireTimes != 0 || !again.From.Equal(out.From) || !again.To.Equal(out.To) {
		t.Errorf("a second call: %+v", again)
	}
	if n := query[int](t, s, `SELECT count(*) FROM disturbances WHERE kind = 'restored'`); n != 1 {
		t.Errorf("%d restores are recorded", n)
	}
}

// Fire times after the stop of the last process have certainly not run, so the misfire policy decides about them.
func TestRestoredUntil(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	standingClock(t, s)
	create(t, s, "all", everySecond, func(sp *domain.JobSpec) { sp.Misfire = domain.MisfireFireAll })
	saved := backedUp(t, s, time.Minute)
	stopped, early, late := saved.Add(20*time.Second), saved.Add(-time.Second), saved.Add(2*time.Minute)
	for _, wrong := range []*time.Time{&early, &late} {
		if _, err := s.Restored(t.Context(), wrong, "test"); domain.CodeOf(err) != domain.Invalid {
			t.Errorf("until %s: %v", wrong, err)
		}
	}
	if out := restored(t, s, &stopped); out.FireTimes != 20 || !out.To.Equal(stopped) {
		t.Fatalf("%+v", out)
	}
	planDue(t, s)
	if n := query[int](t, s, `SELECT count(*) FROM runs_live WHERE cause = 'misfire'`); n != 35 { // up to the tolerance of 5 s
		t.Errorf("%d runs make up for missed fire times", n)
	}
	if got := entered(t, s); got["all"] != 20 {
		t.Errorf("the ledger has %v", got)
	}
}

// An offered attempt is not offered again. Runs that no instance had are reported.
func TestRestoredUnfinished(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	standingClock(t, s)
	job := create(t, s, "manual", parallel)
	offered := start(t, s, job.ID)
	waits := trigger(t, s, job.ID, 1)[0]
	backedUp(t, s, time.Minute)
	out := restored(t, s, nil)
	want := []store.UnfinishedRuns{{Group: "g", State: domain.Pending, Runs: 1}, {Group: "g", State: domain.Running, Runs: 1}}
	if out.Suspected != 1 || !slices.Equal(out.Unfinished, want) {
		t.Errorf("%+v", out)
	}
	if got := query[string](t, s, `SELECT state FROM runs_live WHERE id = $1 AND started_at >= bound_at`, offered.ID); got != "running" {
		t.Errorf("the offered attempt is %s", got)
	}
	if got := query[string](t, s, `SELECT state FROM runs_live WHERE id = $1`, waits); got != "pending" {
		t.Errorf("the other run is %s", got)
	}
}

// A pause that was in force in the restored state may have ended since.
func TestRestoredInPause(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	standingClock(t, s)
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('h', 'y')`)
	create(t, s, "all", everySecond, func(sp *domain.JobSpec) { sp.Misfire = domain.MisfireFireAll })
	pauseGroup(t, s, 0)
	ahead(t, s, 30*time.Second)
	planDue(t, s)
	backedUp(t, s, 30*time.Second)
	if out := restored(t, s, nil); out.FireTimes != 60 {
		t.Errorf("%+v", out)
	}
	n, err := s.PauseAll(t.Context(), "restored", "test")
	if err != nil || n != 1 {
		t.Errorf("%d groups were paused, %v", n, err)
	}
	if got := column[string](t, s, `SELECT group_name || ' ' || reason FROM group_pauses ORDER BY 1`); !slices.Equal(got, []string{"g new disks", "h restored"}) {
		t.Errorf("the pauses are %q", got)
	}
}

// While a role is connected, nothing is changed.
func TestRestoredWhileBelfryRuns(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	role, err := store.Open(t.Context(), store.Config{URL: s.Pool().Config().ConnString(), AppName: view.AppName("scheduler", "v1", "host", 7)})
	if err != nil {
		t.Fatal(err)
	}
	defer role.Close()
	if _, err := s.Restored(t.Context(), nil, "test"); domain.CodeOf(err) != domain.Conflict || !strings.Contains(err.Error(), "belfry scheduler v1 host/7") {
		t.Errorf("%v", err)
	}
	if n := query[int](t, s, `SELECT count(*) FROM disturbances`); n > 0 {
		t.Errorf("%d disturbances are recorded", n)
	}
}
