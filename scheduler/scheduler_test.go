package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("Postgres is away")

// fakeStore plans from lists, as Postgres does for a single scheduler.
type fakeStore struct {
	mu       sync.Mutex
	due      []engine.Due // of schedules; PlanDue returns those due within the horizon
	near     []engine.Due // planned by others; ClaimNear returns those due within the horizon
	stranded []engine.Planned
	back     []engine.Due  // handed back
	shared   bool          // another scheduler works with this store
	full     int           // how many more calls of PlanDue report a full batch
	next     time.Time     // the due instant of the jobs left after such a batch; zero means that of the batch's last job
	takes    time.Duration // how long PlanDue takes
	away     bool
	calls    map[string]int
	ended    []error // the errors that Listen returns, one per call; after them it blocks
	wake     func()
	offset   time.Duration
}

const horizon = 5 * time.Second

func newFakeStore() *fakeStore { return &fakeStore{calls: make(map[string]int)} }

func (f *fakeStore) called(name string) error {
	f.calls[name]++
	if f.away {
		return errAway
	}
	return nil
}

func (f *fakeStore) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[name]
}

// preReads counts the pre-reads, also those that found at once that there was nothing.
func (f *fakeStore) preReads() int { return f.count("PlanDue") + f.count("Quiet") }

func (f *fakeStore) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// within removes and returns the entries of list that are due within the horizon.
func (f *fakeStore) within(list *[]engine.Due, limit int) []engine.Due {
	until := f.now().Add(horizon)
	var out []engine.Due
	*list = slices.DeleteFunc(*list, func(d engine.Due) bool {
		if d.DueAt.After(until) || len(out) == limit {
			return false
		}
		out = append(out, d)
		return true
	})
	return out
}

func (f *fakeStore) Quiet(context.Context) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.called("Quiet")
	near := func(list []engine.Due) bool {
		return slices.ContainsFunc(list, func(d engine.Due) bool { return !d.DueAt.After(f.now().Add(horizon)) })
	}
	return err == nil && f.full == 0 && len(f.stranded) == 0 && !near(f.due) && !near(f.near), err
}

func (f *fakeStore) PlanDue(ctx context.Context, batch int, near bool) (engine.Planned, error) {
	f.mu.Lock()
	takes := f.takes
	f.mu.Unlock()
	time.Sleep(takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("PlanDue"); err != nil {
		return engine.Planned{}, err
	}
	if near {
		f.calls["near"]++
	}
	p := engine.Planned{Runs: f.within(&f.due, batch)}
	if p.Jobs = len(p.Runs); p.Jobs == batch {
		p.Next = p.Runs[batch-1].DueAt
	}
	if f.full > 0 {
		f.full--
		p.Jobs, p.Next = batch, f.next
	}
	if err := ctx.Err(); err != nil { // it has committed, and the answer is lost
		return engine.Planned{}, err
	}
	return p, nil
}

// HandBack records the runs. If another scheduler shares the store, it can claim them.
func (f *fakeStore) HandBack(_ context.Context, runs []engine.Due) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("HandBack"); err != nil {
		return err
	}
	f.back = append(f.back, runs...)
	if f.shared {
		f.near = append(f.near, runs...)
		f.wake()
	}
	return nil
}

func (f *fakeStore) TendPauses(context.Context, int) (bool, error) { return false, nil }

func (f *fakeStore) ClaimNear(_ context.Context, batch int) ([]engine.Due, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("ClaimNear"); err != nil {
		return nil, 0, err
	}
	return f.within(&f.near, batch), 0, nil
}

func (f *fakeStore) PlanStranded(context.Context, int) (engine.Planned, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("PlanStranded"); err != nil || len(f.stranded) == 0 {
		return engine.Planned{}, err
	}
	p := f.stranded[0]
	f.stranded = f.stranded[1:]
	return p, nil
}

func (f *fakeStore) Listen(ctx context.Context, wake func()) error {
	f.mu.Lock()
	f.calls["Listen"]++
	f.wake = wake
	if len(f.ended) > 0 {
		err := f.ended[0]
		f.ended = f.ended[1:]
		f.mu.Unlock()
		return err
	}
	f.mu.Unlock()
	wake()
	<-ctx.Done()
	return nil
}

func (f *fakeStore) now() time.Time { return time.Now().Add(f.offset).UTC() }

func (f *fakeStore) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now()
}

// fakeFirer records the runs it fires, and when, by the database's clock.
type fakeFirer struct {
	store *fakeStore
	takes time.Duration // how long a Fire takes

	mu    sync.Mutex
	lag   time.Duration
	fails int                   // how many of the next Fires return an error
	taken map[domain.RunID]bool // runs whose block slot is taken ahead of due
	fired map[domain.RunID][]time.Time
	tries int
}

func newFakeFirer(s *fakeStore) *fakeFirer {
	return &fakeFirer{store: s, taken: make(map[domain.RunID]bool), fired: make(map[domain.RunID][]time.Time)}
}

func (f *fakeFirer) ResultsLag(context.Context) (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lag, nil
}

func (f *fakeFirer) Fire(_ context.Context, runs []engine.Due) (later []engine.Due, err error) {
	time.Sleep(f.takes)
	now := f.store.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries++
	if f.fails > 0 {
		f.fails--
		return nil, errAway
	}
	for _, d := range runs {
		if f.taken[d.RunID] && !d.AtDue {
			d.AtDue = true
			later = append(later, d)
			continue
		}
		f.fired[d.RunID] = append(f.fired[d.RunID], now)
	}
	return later, nil
}

func (f *fakeFirer) times(d engine.Due) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.fired[d.RunID])
}

func (f *fakeFirer) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// bench is a scheduler that runs in a bubble.
type bench struct {
	*Scheduler
	store *fakeStore
	firer *fakeFirer
	reg   *prometheus.Registry
	stop  func() // cancels Run and waits until it has returned
}

// inBubble runs test with a scheduler, set up by prepare, and stops it afterwards.
func inBubble(t *testing.T, prepare func(*fakeStore, *fakeFirer), test func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		firer := newFakeFirer(store)
		if prepare != nil {
			prepare(store, firer)
		}
		reg := prometheus.NewRegistry()
		s := New(Config{Store: store, Firer: firer, Log: slog.New(slog.DiscardHandler), Registry: reg})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		stop := sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run ended with %v", err)
			}
		})
		defer stop()
		test(t, &bench{s, store, firer, reg, stop})
	})
}

// counted returns the value of a counter.
func counted(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
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

// firedOnce checks that a run was fired once, at most lead before due and at most late after it.
func (b *bench) firedOnce(t *testing.T, d engine.Due, lead, late time.Duration) {
	t.Helper()
	at := b.firer.times(d)
	if len(at) != 1 {
		t.Fatalf("run %v, due %s, was fired %d times: %v", d.RunID[:3], d.DueAt, len(at), at)
	}
	if off := at[0].Sub(d.DueAt); off < -lead || off > late {
		t.Fatalf("run %v was fired %s after due", d.RunID[:3], off)
	}
}

func TestFiresEachOnceInTime(t *testing.T) {
	var all []engine.Due
	inBubble(t, func(s *fakeStore, _ *fakeFirer) {
		now := s.Now()
		for i := range 200 {
			d := entry(i, now.Add(time.Duration(i)*97*time.Millisecond))
			all = append(all, d)
			if i%2 == 0 {
				s.due = append(s.due, d)
			} else {
				s.near = append(s.near, d)
			}
		}
	}, func(t *testing.T, b *bench) {
		time.Sleep(30 * time.Second)
		synctest.Wait()
		for _, d := range all {
			b.firedOnce(t, d, 30*time.Millisecond, 5*time.Millisecond)
		}
		if v := counted(t, b.reg, "belfry_fires_total"); v != 200 {
			t.Errorf("%v fires counted", v)
		}
	})
}

// The firing of ten thousand runs of one instant begins early, but at most leadMax before due.
func TestFiresManyOfOneInstant(t *testing.T) {
	var all []engine.Due
	inBubble(t, func(s *fakeStore, f *fakeFirer) {
		f.takes = 10 * time.Millisecond
		due := s.Now().Add(4 * time.Second)
		for i := range 10_000 {
			all = append(all, entry(i, due))
		}
		s.due = slices.Clone(all)
	}, func(t *testing.T, b *bench) {
		time.Sleep(8 * time.Second)
		synctest.Wait()
		for _, d := range all {
			b.firedOnce(t, d, leadMax, 0)
		}
	})
}

func TestFiresLaterAtDue(t *testing.T) {
	var d engine.Due
	inBubble(t, func(s *fakeStore, f *fakeFirer) {
		d = entry(1, s.Now().Add(3*time.Second))
		s.due = []engine.Due{d}
		f.taken[d.RunID] = true
	}, func(t *testing.T, b *bench) {
		time.Sleep(10 * time.Second)
		synctest.Wait()
		b.firedOnce(t, d, 0, 2*time.Millisecond)
		if v := counted(t, b.reg, "belfry_fires_total"); v != 1 {
			t.Errorf("%v fires counted; the one that came back is none", v)
		}
	})
}

func TestWakeAndNotificationsPlanAtOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		time.Sleep(300 * time.Millisecond) // between two seconds
		synctest.Wait()
		d, before := entry(1, b.store.Now().Add(50*time.Millisecond)), b.store.count("PlanDue")
		b.store.set(func() { b.store.near = []engine.Due{d} })
		b.store.wake()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		b.firedOnce(t, d, 30*time.Millisecond, 2*time.Millisecond)
		if n := b.store.count("PlanDue"); n != before+1 {
			t.Errorf("%d pre-reads after one notification", n-before)
		}
	})
}

func TestPlansEverySecondOnTheSecond(t *testing.T) {
	inBubble(t, func(s *fakeStore, _ *fakeFirer) { s.offset = 250 * time.Millisecond }, func(t *testing.T, b *bench) {
		time.Sleep(10*time.Second + 10*time.Millisecond)
		synctest.Wait()
		// Once at the start, once for the listener's wake, then on each second of the database's clock.
		if n := b.store.preReads(); n < 11 || n > 13 {
			t.Errorf("%d pre-reads in ten seconds", n)
		}
	})
}

// While nothing is due, a pre-read is one statement. Jobs that become due are planned by the next pre-read.
func TestRest(t *testing.T) {
	inBubble(t, func(*fakeStore, *fakeFirer) {}, func(t *testing.T, b *bench) {
		for range 3 {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			planned, looks := b.store.count("PlanDue"), b.store.count("Quiet")
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if n, m := b.store.count("PlanDue")-planned, b.store.count("Quiet")-looks; n != 0 || m != 10 {
				t.Errorf("in ten seconds at rest, jobs were planned %d times after %d looks", n, m)
			}
			var of [2]engine.Due
			b.store.set(func() {
				of[0], of[1] = entry(planned, b.store.now().Add(2*horizon)), entry(1000+planned, b.store.now().Add(2*horizon))
				b.store.due, b.store.near = []engine.Due{of[0]}, []engine.Due{of[1]}
			})
			time.Sleep(2*horizon + time.Second)
			synctest.Wait()
			b.firedOnce(t, of[0], leadMax, 0)
			b.firedOnce(t, of[1], leadMax, 0)
		}
	})
}

func TestFullBatchesArePlannedAtOnce(t *testing.T) {
	inBubble(t, func(s *fakeStore, _ *fakeFirer) { s.full = 5 }, func(t *testing.T, b *bench) {
		synctest.Wait()
		if n := b.store.count("PlanDue"); n < 6 {
			t.Errorf("%d pre-reads before any time has passed", n)
		}
	})
}

func TestPostgresAway(t *testing.T) {
	var d engine.Due
	inBubble(t, func(s *fakeStore, _ *fakeFirer) {
		s.away = true
		s.ended = []error{errAway, errAway}
		d = entry(1, s.Now().Add(20*time.Second))
		s.due = []engine.Due{d}
	}, func(t *testing.T, b *bench) {
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := b.store.count("PlanDue"); n < 10 || n > 25 {
			t.Errorf("%d tries in a minute: the pause should grow to 5 s", n)
		}
		if n := b.store.count("Listen"); n != 3 {
			t.Errorf("listened %d times, want 3", n)
		}
		b.store.set(func() { b.store.away = false })
		time.Sleep(5*time.Second + 10*time.Millisecond)
		synctest.Wait()
		b.firedOnce(t, d, 0, time.Hour)
		before := b.store.preReads()
		time.Sleep(10 * time.Second)
		if n := b.store.preReads() - before; n < 9 {
			t.Errorf("%d pre-reads in ten seconds after the outage", n)
		}
	})
}

func TestFireFails(t *testing.T) {
	for _, tt := range []struct {
		fails int
		fired int
		tries int
	}{{1, 1, 2}, {6, 1, 7}, {7, 0, 7}} {
		t.Run(fmt.Sprintf("%d times", tt.fails), func(t *testing.T) {
			var d engine.Due
			inBubble(t, func(s *fakeStore, f *fakeFirer) {
				d = entry(1, s.Now().Add(time.Second))
				s.due = []engine.Due{d}
				f.fails = tt.fails
			}, func(t *testing.T, b *bench) {
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := len(b.firer.times(d)); n != tt.fired || b.firer.tries != tt.tries {
					t.Errorf("fired %d times in %d tries, want %d in %d", n, b.firer.tries, tt.fired, tt.tries)
				}
			})
		})
	}
}

// If one scheduler gives up firing a run, the run is claimed again by the same or another scheduler.
func TestStrandedRunsAreFired(t *testing.T) {
	var dropped, revived engine.Due
	inBubble(t, func(s *fakeStore, _ *fakeFirer) {
		dropped = entry(1, s.Now().Add(-4*time.Second))
		revived = entry(2, s.Now().Add(-time.Hour))
		s.near = []engine.Due{dropped}
		s.stranded = []engine.Planned{{Runs: []engine.Due{revived}, Jobs: 1, Missed: 7}}
	}, func(t *testing.T, b *bench) {
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		b.firedOnce(t, dropped, 0, 5*time.Second)
		b.firedOnce(t, revived, 0, 2*time.Hour)
		if missed, misfired := counted(t, b.reg, "belfry_missed_total"), counted(t, b.reg, "belfry_misfired_total"); missed != 7 || misfired != 1 {
			t.Errorf("counted %v missed, %v misfired", missed, misfired)
		}
	})
}

func TestFullRingSlowsPlanningDown(t *testing.T) {
	const room = planRoom + 100
	var all []engine.Due
	inBubble(t, func(s *fakeStore, _ *fakeFirer) {
		due := s.Now().Add(3 * time.Second)
		for i := range 5 * planBatch {
			all = append(all, entry(i, due.Add(time.Duration(i)*time.Millisecond)))
		}
		s.due = slices.Clone(all)
	}, func(t *testing.T, b *bench) {
		b.stop() // the test sets the ring's limit and plans again
		for _, d := range all {
			b.firer.set(func() { delete(b.firer.fired, d.RunID) })
		}
		reg := prometheus.NewRegistry()
		s := New(Config{Store: b.store, Firer: b.firer, Log: slog.New(slog.DiscardHandler), Registry: reg})
		s.ring.limit = room
		b.store.set(func() { b.store.due = slices.Clone(all); b.store.calls = make(map[string]int) })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := b.store.count("PlanDue"); n != 1 {
			t.Errorf("%d pre-reads while the ring is full", n)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		for _, d := range all {
			b.firedOnce(t, d, leadMax, time.Second)
		}
		if v := counted(t, reg, "belfry_ring_refused_total"); v != 0 {
			t.Errorf("%v runs were refused by the ring", v)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A batch may hold more runs than the ring has room for. Refused runs stay planned in Postgres.
func TestRefusedRunsAreCounted(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.stop()
		b.ring.limit = 3
		b.add([]engine.Due{entry(1, b.store.Now()), entry(2, b.store.Now()), entry(3, b.store.Now()), entry(4, b.store.Now())})
		if v := counted(t, b.reg, "belfry_ring_refused_total"); v != 1 || b.ring.size != 3 {
			t.Errorf("%v refused, %d kept", v, b.ring.size)
		}
	})
}

// Run returns after its context ends and the Fires in progress have ended.
func TestRunWaitsForFires(t *testing.T) {
	var d engine.Due
	inBubble(t, func(s *fakeStore, f *fakeFirer) {
		d = entry(1, s.Now())
		s.due = []engine.Due{d}
		f.takes = 3 * time.Second
	}, func(t *testing.T, b *bench) {
		time.Sleep(time.Second)
		synctest.Wait()
		before := time.Now()
		b.stop()
		if len(b.firer.times(d)) != 1 {
			t.Error("Run returned before its Fire")
		}
		if waited := time.Since(before); waited < time.Second || waited > 3*time.Second {
			t.Errorf("the end took %s", waited)
		}
	})
}

// A ring that was not drained for minutes, because the process was stopped, is drained completely when the process
// continues.
func TestStall(t *testing.T) {
	var all []engine.Due
	inBubble(t, func(s *fakeStore, f *fakeFirer) {
		for i := range 20 {
			all = append(all, entry(i, s.Now().Add(time.Duration(i)*200*time.Millisecond)))
		}
		s.due = slices.Clone(all)
		f.takes = 30 * time.Millisecond
	}, func(t *testing.T, b *bench) {
		time.Sleep(time.Second)
		b.store.set(func() { b.store.offset = 3 * time.Minute }) // as after SIGSTOP, or a clock set forward
		time.Sleep(time.Second)
		b.store.set(func() { b.store.offset = -3 * time.Minute }) // and set back
		extra := entry(99, b.store.Now().Add(100*time.Millisecond))
		b.store.set(func() { b.store.near = []engine.Due{extra} })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for _, d := range all {
			b.firedOnce(t, d, leadMax, 4*time.Minute)
		}
		b.firedOnce(t, extra, leadMax, time.Second)
	})
}
