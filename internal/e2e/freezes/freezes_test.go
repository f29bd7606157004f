//go:build unix

package freezes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/e2e/rig"
)

const (
	envFreezes = "FREEZES"      // number of long freezes
	envSeed    = "FREEZES_SEED" // repeats the random choices, but not their timing
)

// fewFreezes is the number of freezes if FREEZES is not set. From manyFreezes on, the test has twice as many instances and
// jobs.
const (
	fewFreezes  = 12
	manyFreezes = 50
)

// A long freeze is longer than the 10 s for which an attempt may start on a heartbeat, so Belfry declares the instance's attempts
// lost. After a short freeze no attempt is lost, because the heartbeats before and after it are less than 10 s apart: an instance
// sends one every 3 s. The 2 s that remain are for stalls of the machine.
const (
	longFrom, longTo   = 11 * time.Second, 20 * time.Second
	shortFrom, shortTo = 2 * time.Second, 5 * time.Second
	shortEach          = 4 // one short freeze follows this many long ones
	spare              = 2 * time.Second
)

// No attempt starts after it was declared lost, although its executor was frozen between accepting and starting it; and no
// attempt starts twice.
func TestFreezes(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: executors that are frozen for longer than their heartbeats count")
	}
	count, seed := setting(t, envFreezes, fewFreezes), setting(t, envSeed, rand.Uint64())
	t.Logf("%s=%d %s=%d", envFreezes, count, envSeed, seed)
	interpreter, why := rig.Python(t)
	inGo, inPython, jobs := 4, 4, 240
	if count >= manyFreezes {
		inGo, inPython, jobs = 8, 8, 480
	}
	if interpreter == "" {
		t.Log("NOT COVERED: instances in Python:", why)
		inGo, inPython = inGo+inPython, 0
	}
	w := newWorld(t, inGo, inPython, interpreter)
	t.Cleanup(func() {
		if t.Failed() {
			w.showLogs()
		}
	})
	w.load(jobs)
	begun := time.Now()
	f := &freezer{w: w, pulse: rig.StartPulse(t, nil), left: int(count), ready: make(chan *instance, len(w.instances))}
	f.run(seed)
	t.Logf("the freezes took %v", time.Since(begun).Round(time.Second))
	w.finish()
	f.judge(int(count))
}

func setting(t *testing.T, name string, standard uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return standard
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// freezer freezes instances, at most half of them at a time.
type freezer struct {
	w     *world
	pulse *rig.Pulse
	ready chan *instance // instances that may be frozen next

	mu      sync.Mutex
	left    int      // guarded by mu; long freezes to do
	dealt   int      // guarded by mu; freezes begun
	freezes []freeze // guarded by mu
}

// freeze is a finished freeze.
type freeze struct {
	on       *instance
	from, to time.Time
	held     map[ref]bool // attempts that the instance had accepted and not started at from
}

func (f *freeze) long() bool { return f.to.Sub(f.from) >= longFrom }

func (f *freezer) run(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	for _, i := range random.Perm(len(f.w.instances)) {
		f.ready <- f.w.instances[i]
	}
	var lanes, resumed sync.WaitGroup
	for n := range len(f.w.instances) / 2 {
		lanes.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)+1))
			for {
				lo, hi, more := f.next()
				if !more || f.w.t.Context().Err() != nil {
					return
				}
				i := <-f.ready
				done, ok := f.freeze(i, lo+time.Duration(r.Int64N(int64(hi-lo))), time.Duration(r.Int64N(int64(2*period))))
				if !ok {
					return
				}
				resumed.Go(func() {
					f.goesOn(done)
					f.ready <- i
				})
			}
		})
	}
	lanes.Wait()
	resumed.Wait()
}

// next returns the range of the next freeze's length. more is false if no freeze is left.
func (f *freezer) next() (lo, hi time.Duration, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return 0, 0, false
	}
	if f.dealt++; f.dealt%(shortEach+1) == 0 {
		return shortFrom, shortTo, true
	}
	f.left--
	return longFrom, longTo, true
}

// aims bounds how often the freezer tries to freeze an instance while it holds attempts.
const aims = 20

// freeze freezes an instance just after it has accepted attempts, and resumes it later. If all of the attempts had already started, it
// resumes the instance without delay and tries again.
func (f *freezer) freeze(i *instance, length, pause time.Duration) (done freeze, ok bool) {
	<-time.After(pause)
	for aim := 1; ; aim++ {
		frozen := make(chan time.Time, 1)
		i.mu.Lock()
		i.onAccept = func() {
			i.process.Signal(syscall.SIGSTOP)
			frozen <- time.Now()
		}
		i.mu.Unlock()
		select {
		case done.from = <-frozen:
		case <-time.After(rig.Patience):
			f.w.t.Errorf("%s accepted nothing for %v", i.name, rig.Patience)
			return done, false
		case <-i.process.Gone():
			f.w.t.Errorf("%s ended by itself: %v", i.name, i.process.State())
			return done, false
		}
		<-time.After(200 * time.Millisecond) // until the answers arrive that the instance sent before the freeze
		var err error
		if done.held, err = i.holds(done.from); err != nil {
			f.w.t.Error(err)
			return done, false
		}
		if len(done.held) > 0 || aim == aims {
			break
		}
		i.process.Signal(syscall.SIGCONT)
	}
	<-time.After(length - time.Since(done.from))
	done.on, done.to = i, time.Now()
	i.process.Signal(syscall.SIGCONT)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.freezes = append(f.freezes, done); len(f.freezes)%20 == 0 {
		f.w.t.Logf("%d freezes are done", len(f.freezes))
	}
	return done, true
}

// holds returns the attempts that an instance, frozen at the given instant, has accepted and not started.
func (i *instance) holds(from time.Time) (map[ref]bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.catchUp(); err != nil {
		return nil, err
	}
	held := make(map[ref]bool)
	for r, at := range i.accepted {
		if !i.started[r] && at.After(from.Add(-period)) { // older ones were returned, or lost by an earlier freeze
			held[r] = true
		}
	}
	return held, nil
}

// goesOn waits until an instance starts an attempt that it accepted after the freeze.
func (f *freezer) goesOn(done freeze) {
	i := done.on
	deadline := time.Now().Add(rig.Left(f.w.t, rig.Patience))
	seen := 0
	for {
		i.mu.Lock()
		err := i.catchUp()
		for ; seen < len(i.starts); seen++ {
			if i.accepted[i.starts[seen].ref()].After(done.to) {
				i.mu.Unlock()
				return
			}
		}
		i.mu.Unlock()
		switch {
		case err != nil:
			f.w.t.Error(err)
			return
		case i.gone():
			f.w.t.Errorf("%s ended by itself: %v", i.name, i.process.State())
			return
		case time.Now().After(deadline):
			f.w.t.Errorf("%s resumed at %v and has started no new attempt since then", i.name, done.to)
			return
		}
		<-time.After(250 * time.Millisecond)
	}
}

// loss is an attempt that was declared lost.
type loss struct {
	ref
	instance             string
	dispatched, declared time.Time // by the database's clock, which is this machine's
}

// losses returns all attempts that were declared lost.
func (w *world) losses() []loss {
	w.t.Helper()
	rows, err := w.db.Query(context.Background(), `SELECT id::text, attempt, instance, dispatched_at, finished_at FROM runs WHERE reason = 'lost'
		AND finished_at IS NOT NULL
		UNION ALL SELECT run_id::text, attempt, instance, dispatched_at, finished_at FROM run_attempts WHERE reason = 'lost'`)
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (l loss, err error) {
		err = r.Scan(&l.run, &l.attempt, &l.instance, &l.dispatched, &l.declared)
		return l, err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// tally has the counts of the test's result.
type tally struct {
	long, short      int
	hit              int          // long freezes of an instance that held attempts which it had accepted and not started
	held             int          // attempts that these instances held
	waited           map[ref]bool // the attempts that held counts
	started          int
	lost             int // attempts that were declared lost
	lostWaiting      int // lost attempts that an instance held
	neverStarted     int // lost attempts that no handler recorded
	between          int // lost attempts whose process was frozen between the check and the call
	late, unexpected faults
}

func (n *tally) String() string {
	return fmt.Sprintf("%d freezes of %v to %v; %d of them froze an instance while it held accepted attempts that had not started, %d such attempts in all; "+
		"%d short freezes; %d attempts started; %d attempts were declared lost, %d of them such attempts, and %d of them never started; "+
		"%d started after they were declared lost; "+
		"%d were frozen between the check and the call", n.long, longFrom, longTo, n.hit, n.held, n.short, n.started, n.lost, n.lostWaiting,
		n.neverStarted, n.late.count, n.between)
}

// faults counts violations of one kind and reports the first ones.
type faults struct{ count int }

func (f *faults) report(t testing.TB, format string, args ...any) {
	t.Helper()
	const most = 10
	if f.count++; f.count <= most {
		t.Errorf(format, args...)
	}
}

// judge compares the starts that the handlers recorded with the database.
func (f *freezer) judge(wanted int) {
	t := f.w.t
	t.Helper()
	n, starts := f.tally(), f.starts()
	n.started = len(starts)
	for _, l := range f.w.losses() {
		n.lost++
		if n.waited[l.ref] {
			n.lostWaiting++
		}
		switch {
		case f.explains(l):
		case rig.Steps*f.pulse.Worst() > spare:
			t.Logf("%s on %s was declared lost at %s; no long freeze explains that, but the machine stalled", l.ref, l.instance, clock(l.declared))
		default:
			n.unexpected.report(t, "%s on %s was declared lost at %s, and no long freeze explains that", l.ref, l.instance, clock(l.declared))
		}
		if len(starts[l.ref]) == 0 {
			n.neverStarted++
		}
		for _, s := range starts[l.ref] {
			switch {
			case s.checked.After(l.declared):
				n.late.report(t, "%s started on %s %v after it was declared lost: checked at %s, entered at %s", l.ref, s.on,
					s.checked.Sub(l.declared), clock(s.checked), clock(s.entered))
			case s.entered.After(l.declared):
				n.between++
				t.Logf("%s was frozen on %s between the check at %s and the call at %s, and declared lost at %s", l.ref, s.on,
					clock(s.checked), clock(s.entered), clock(l.declared))
			}
		}
	}
	t.Log(n)
	if n.long < wanted || n.hit*10 < wanted*8 || n.lostWaiting == 0 {
		t.Errorf("too few freezes: the test needs %d freezes of instances that hold attempts which they have accepted and not started", wanted)
	}
	// A freeze occasionally happens between the check and the call, mostly in Python, where a start takes about 100 µs. If an executor
	// does not check directly before the call, almost every attempt that it holds is such a case.
	if n.between > wanted/10+5 {
		t.Errorf("%d attempts were frozen between the check of the fence and the call of the handler", n.between)
	}
}

func (f *freezer) tally() *tally {
	n := &tally{waited: make(map[ref]bool)}
	for i := range f.freezes {
		z := &f.freezes[i]
		if !z.long() {
			n.short++
			continue
		}
		n.long++
		if n.held += len(z.held); len(z.held) > 0 {
			n.hit++
		}
		for r := range z.held {
			n.waited[r] = true
		}
	}
	return n
}

// startOn is a start with its instance.
type startOn struct {
	start
	on string
}

// starts returns all starts, and fails the test for each attempt that started more than once or that Postgres does not know.
func (f *freezer) starts() map[ref][]startOn {
	f.w.t.Helper()
	all := make(map[ref][]startOn)
	var least, most time.Duration
	for _, i := range f.w.instances {
		i.mu.Lock()
		if err := i.catchUp(); err != nil {
			f.w.t.Error(err)
		}
		for n, s := range i.starts {
			all[s.ref()] = append(all[s.ref()], startOn{s, i.name})
			ahead := time.Duration(s.entered.UnixNano()) - s.monotonic
			if n == 0 && least == 0 {
				least, most = ahead, ahead
			}
			least, most = min(least, ahead), max(most, ahead)
		}
		i.mu.Unlock()
	}
	f.w.t.Logf("the wall clock and the monotonic clock moved against each other by %v", most-least)
	var twice faults
	for r, s := range all {
		if len(s) > 1 {
			twice.report(f.w.t, "%s started %d times: on %s at %s, on %s at %s", r, len(s), s[0].on, clock(s[0].entered), s[1].on, clock(s[1].entered))
		}
	}
	return all
}

// explains reports whether a long freeze of its instance explains why an attempt was declared lost. A verdict that has begun
// may be committed after the freeze.
func (f *freezer) explains(l loss) bool {
	for i := range f.freezes {
		z := &f.freezes[i]
		if z.on.name == l.instance && z.long() && l.dispatched.Before(z.to) && l.declared.After(z.from) && l.declared.Before(z.to.Add(time.Minute)) {
			return true
		}
	}
	return false
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

// showLogs prints the last lines of the processes' logs.
func (w *world) showLogs() {
	for _, name := range []string{"nats", "console", "scheduler", "dispatcher", w.instances[0].name, w.instances[len(w.instances)-1].name} {
		data, err := os.ReadFile(w.log(name))
		w.t.Logf("the end of the log of %s (%v):\n%s", name, err, data[max(0, len(data)-2000):])
	}
}
