package firecheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/view"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world replaces Postgres. It has jobs that each fire once a second, and one row of progress.
type world struct {
	mu        sync.Mutex
	round     firecheck.Round
	owner     string
	until     time.Time // expiry of the claim
	undecided time.Time
	jobs      int
	lost      map[string]bool // fire times without a record, as "job@unix"
	entered   []string
	checked   map[string]int // how often each fire time was checked
	down      bool
	busy      time.Duration // how long a page takes
}

var errDown = errors.New("down")

func (w *world) ClaimFireCheck(_ context.Context, owner string, lease time.Duration) (firecheck.Round, time.Time, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.down {
		return firecheck.Round{}, now, false, errDown
	}
	if w.owner != owner && now.Before(w.until) {
		return firecheck.Round{}, now, false, nil
	}
	w.owner, w.until = owner, now.Add(lease)
	return w.round, now, true, nil
}

func (w *world) SaveFireCheck(_ context.Context, owner string, round firecheck.Round) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owner == owner {
		w.round = round
	}
	return nil
}

func (w *world) ReleaseFireCheck(_ context.Context, owner string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owner == owner {
		w.until = time.Now()
	}
	return nil
}

func (w *world) OldestUndecided(context.Context) (time.Time, error) { return w.undecided, nil }

func (w *world) LedgerUnexplained(_ context.Context, gap firecheck.Unexplained) ([]time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range gap.FireTimes {
		key := fmt.Sprintf("%d@%d", gap.JobID, f.Unix())
		delete(w.lost, key)
		w.entered = append(w.entered, key)
	}
	return gap.FireTimes, nil
}

func (w *world) Unexplained(_ context.Context, since, until time.Time, from firecheck.Cursor, jobs, _ int) (
	found []firecheck.Unexplained, checked int, next firecheck.Cursor, done bool, err error) {
	time.Sleep(w.busy)
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := from.Job + 1; id <= domain.JobID(w.jobs); id++ {
		if jobs--; jobs < 0 {
			return found, checked, next, false, nil
		}
		for t := since.Truncate(time.Second).Add(time.Second); !t.After(until); t = t.Add(time.Second) {
			checked++
			key := fmt.Sprintf("%d@%d", id, t.Unix())
			w.checked[key]++
			if w.lost[key] {
				found = append(found, firecheck.Unexplained{JobID: id, FireTimes: []time.Time{t}})
			}
		}
		next = firecheck.Cursor{Job: id}
	}
	return found, checked, next, true, nil
}

// TestRounds verifies that two dispatchers together check every fire time once, even if one of them dies. Lost fire times
// are entered into the ledger.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		w := &world{jobs: 1200, round: firecheck.Round{Through: begin}, lost: make(map[string]bool), checked: make(map[string]int)}
		lost := fmt.Sprintf("%d@%d", 700, begin.Unix()+90)
		w.lost[lost] = true
		var checkers [2]*Checker
		var stop [2]context.CancelFunc
		var running sync.WaitGroup
		start := func(i int) {
			checkers[i] = New(Config{Store: w, Reader: w, Log: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(t.Context())
			stop[i] = cancel
			running.Go(func() { _ = checkers[i].Run(ctx) })
		}
		start(0)
		start(1)
		for i := range 20 {
			time.Sleep(45 * time.Second)
			stop[i%2]()
			start(i % 2)
			w.mu.Lock()
			w.down = i == 7
			w.mu.Unlock()
		}
		stop[0]()
		stop[1]()
		running.Wait()
		if age := time.Since(w.round.Through); age > 6*time.Minute {
			t.Errorf("the fire check is %v behind", age)
		}
		for id := 1; id <= w.jobs; id++ {
			for s := begin.Unix() + 1; s <= w.round.Through.Unix(); s++ {
				if w.checked[fmt.Sprintf("%d@%d", id, s)] == 0 {
					t.Fatalf("job %d at +%d s was not checked", id, s-begin.Unix())
				}
			}
		}
		if strings.Join(w.entered, " ") != lost {
			t.Errorf("entered %v, want %s", w.entered, lost)
		}
	})
}

// TestRest verifies that the fire check works for at most a tenth of the time, and that few jobs are checked once a minute.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			jobs      int
			busy      time.Duration
			low, high time.Duration
		}{
			{5, 0, 50 * time.Second, period},         // a round is one page
			{5000, 0, idleRest, idleRest},            // a page full of jobs
			{5000, 4 * time.Second, 36e9, period},    // a slow page
			{5000, 40 * time.Second, period, period}, // the pause is bounded
		} {
			w := &world{jobs: c.jobs, busy: c.busy, checked: make(map[string]int)}
			now := time.Now()
			w.round = firecheck.Round{Through: now.Add(-margin - 10*time.Second)}
			a := New(Config{Store: w, Reader: w, Log: slog.New(slog.DiscardHandler)})
			rest, err := a.page(t.Context())
			if err != nil || rest < c.low || rest > c.high {
				t.Errorf("%d jobs in %v: rests for %v (%v), want %v to %v", c.jobs, c.busy, rest, err, c.low, c.high)
			}
		}
	})
}

func TestBegin(t *testing.T) {
	now := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name               string
		through, undecided time.Duration // durations before now; 0 means none
		since, upto        time.Duration // durations before now; 0 means nothing to do
	}{
		{"the last minute", 2 * time.Minute, 0, 2 * time.Minute, time.Minute},
		{"planning is ahead", 2 * time.Minute, -time.Second, 2 * time.Minute, time.Minute},
		{"just looked", 30 * time.Second, 0, 0, 0},
		{"planning is behind", 10 * time.Minute, 3 * time.Minute, 10 * time.Minute, 3*time.Minute + time.Millisecond},
		{"planning is behind, and all before is known", 3*time.Minute + time.Millisecond, 3 * time.Minute, 0, 0},
		{"planning is stuck", 20 * time.Minute, time.Hour, 20 * time.Minute, patience},
		{"dispatchers were away for a week", 7 * 24 * time.Hour, 0, furthest + time.Minute, time.Minute},
	} {
		round := firecheck.Round{Through: now.Add(-c.through)}
		var undecided time.Time
		if c.undecided != 0 {
			undecided = now.Add(-c.undecided)
		}
		if begin(&round, now, undecided) != (c.upto != 0) {
			t.Errorf("%s: %+v", c.name, round)
		}
		if c.upto != 0 && (!round.Upto.Equal(now.Add(-c.upto)) || !round.Through.Equal(now.Add(-c.since))) {
			t.Errorf("%s: from %v to %v ago", c.name, now.Sub(round.Through), now.Sub(round.Upto))
		}
	}
}

// TestOnPostgres verifies that a deleted run is in the ledger after the next round, and is counted.
func TestOnPostgres(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := s.Pool().Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	spec := domain.DefaultJobSpec()
	spec.Group, spec.Name, spec.Handler = "g", "tick", "echo"
	spec.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
	job, err := s.CreateJob(t.Context(), spec, "test")
	if err != nil {
		t.Fatal(err)
	}
	// The job has existed for three minutes. Its runs of the first two minutes were deleted, and one of them is in the
	// ledger.
	now := s.Now().Truncate(time.Second)
	exec(`UPDATE job_versions SET valid_from = $1`, now.Add(-3*time.Minute))
	exec(`UPDATE job_due SET next_fire_time = $1, next_due_at = $1`, now.Add(time.Minute))
	exec(`UPDATE fire_audit SET through = $1`, now.Add(-2*time.Minute-10*time.Second))
	exec(`INSERT INTO missed (job_id, first_fire_time, last_fire_time, count, policy, why) VALUES ($1, $2, $2, 1, 'skip', 'late')`,
		job.ID, now.Add(-2*time.Minute))
	log, metrics := &strings.Builder{}, prometheus.NewRegistry()
	a := New(Config{
		Registry: metrics, Store: s, Reader: view.NewFireCheck(s.Pool(), s.Zone(), s.Settings().Tolerance), Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if _, err := a.page(t.Context()); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := s.Pool().QueryRow(t.Context(), `SELECT sum(count) FROM missed WHERE why_note::jsonb->>0 = 'unexplained'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	// 70 s, minus the one in the ledger, plus the duration of the test.
	if n < 69 || n > 100 {
		t.Errorf("%d fire times were entered", n)
	}
	if got := value(t, metrics, "belfry_fire_check_unexplained_total"); int(got) != n {
		t.Errorf("the metric counts %v unexplained fire times, want %d", got, n)
	}
	if got := value(t, metrics, "belfry_fire_check_fire_times_total"); int(got) != n+1 {
		t.Errorf("the metric counts %v checked fire times, want %d", got, n+1)
	}
	if said := log.String(); !strings.Contains(said, "level=ERROR") || !strings.Contains(said, "job=tick") {
		t.Errorf("the log has %q", said)
	}
	round, _, _, err := s.ClaimFireCheck(t.Context(), a.owner, time.Minute)
	if err != nil || !round.Upto.IsZero() || now.Sub(round.Through) > time.Minute+time.Second {
		t.Errorf("the round ended at %+v (%v)", round, err)
	}
}

// value returns the value of a counter.
func value(t *testing.T, metrics *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
