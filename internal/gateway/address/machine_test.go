package address

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

const boot = "the-boot-of-the-address"

// world is a Machine with a clock of the test.
type world struct {
	*Machine
	now  clock.Instant
	beat int64
	log  int64
}

func newWorld(capacity int) *world {
	w := &world{Machine: New(Config{BootID: boot, Epoch: 3, Capacity: capacity, Languages: []string{"bash"}}), now: clock.Now()}
	w.beat = w.Beat(w.now)
	return w
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

func run(n byte) domain.RunID { return domain.RunID{n} }

// offer returns an offer of a run of a job.
func offer(n byte, job int64, bind int) wire.Offer {
	return wire.Offer{RunID: run(n).String(), Attempt: 1, Bind: bind, JobID: job, Handler: fmt.Sprintf("h%d", job)}
}

// judge offers runs and stores those that are accepted. It returns the verdicts in words.
func (w *world) judge(boot string, beat int64, offers ...wire.Offer) (said []string, fresh []*Attempt) {
	verdicts, fresh, _ := w.Judge(&wire.Offers{BootID: boot, Beat: beat, Offers: offers}, w.now)
	for _, a := range fresh {
		w.log++
		a.WireID = a.Task.JobID
		w.Admit(a, w.log)
	}
	for _, v := range verdicts {
		said = append(said, v.Verdict+v.Reason+v.Outcome)
	}
	return said, fresh
}

func (w *world) take(t *testing.T, offers ...wire.Offer) []*Attempt {
	t.Helper()
	_, fresh := w.judge(boot, w.beat, offers...)
	if len(fresh) != len(offers) {
		t.Fatalf("%d of %d offers were accepted", len(fresh), len(offers))
	}
	return fresh
}

// The verdicts follow the table of docs/wire.md.
func TestJudge(t *testing.T) {
	script := func(language string) wire.Offer {
		o := offer(9, 9, 1)
		o.Handler, o.Script = "", &wire.Script{Language: language}
		return o
	}
	one := offer(1, 1, 1)
	barredThenRefused := func(w *world) {
		w.Kill(gateway.Attempt{Run: run(1), Number: 1}, "timeout", w.now)
		w.pass(refuseFor - 1)
		w.judge(boot, w.Beat(w.now), one)
		w.pass(1)
		w.beat = w.Beat(w.now)
	}
	for name, c := range map[string]struct {
		before func(w *world)
		offer  wire.Offer
		boot   string
		beat   int64 // added to that of the last heartbeat
		want   string
	}{
		"free":            {offer: one, want: "accepted"},
		"another boot":    {offer: one, boot: "another", want: "refusedstale"},
		"an unknown beat": {offer: one, beat: 1, want: "refusedstale"},
		"no beat":         {offer: one, beat: -3<<32 - 1, want: "refusedstale"},
		"not a run id":    {offer: wire.Offer{RunID: "x"}, want: "refusedstale"},
		"too late":        {before: func(w *world) { w.pass(wire.LeaseTTL) }, offer: one, want: "refusedstale"},
		"just in time":    {before: func(w *world) { w.pass(wire.LeaseTTL - 1) }, offer: one, want: "accepted"},
		"draining":        {before: func(w *world) { w.Drain(true) }, offer: one, want: "refuseddraining"},
		"lacking":         {before: func(w *world) { w.Lack("h1", w.now) }, offer: one, want: "refusedno_handler"},
		"lacking another": {before: func(w *world) { w.Lack("h2", w.now) }, offer: one, want: "accepted"},
		"in trouble":      {before: func(w *world) { w.Trouble(&wire.Unfit{Reason: "unreachable"}) }, offer: one, want: "refusedfull"},
		"full":            {before: func(w *world) { w.SetCapacity(0) }, offer: one, want: "refusedfull"},
		"a script":        {offer: script("bash"), want: "accepted"},
		"an odd script":   {offer: script("go"), want: "refusedunsupported"},
		"barred":          {before: func(w *world) { w.Kill(gateway.Attempt{Run: run(1), Number: 1}, "killed", w.now) }, offer: one, want: "refusedstale"},
		"long ago barred": {before: func(w *world) {
			w.Kill(gateway.Attempt{Run: run(1), Number: 1}, "killed", w.now)
			w.pass(refuseFor)
			w.beat = w.Beat(w.now)
		}, offer: one, want: "accepted"},
		"barred, and refused until the bar is over":            {before: barredThenRefused, offer: offer(1, 1, 2), want: "accepted"},
		"barred, and refused until the bar is over, same bind": {before: barredThenRefused, offer: one, want: "refusedstale"},
		"repeated":         {before: func(w *world) { w.judge(boot, w.beat, one) }, offer: one, want: "accepted"},
		"repeated, higher": {before: func(w *world) { w.judge(boot, w.beat, one) }, offer: offer(1, 1, 2), want: "accepted"},
		"known and full":   {before: func(w *world) { w.judge(boot, w.beat, one); w.SetCapacity(0); w.pass(time.Hour) }, offer: one, want: "accepted"},
		"ended": {before: func(w *world) {
			w.judge(boot, w.beat, one)
			w.End(gateway.Attempt{Run: run(1), Number: 1}, wire.Failed)
		}, offer: one,
			want: "endedfailed"},
		"gone back": {before: func(w *world) {
			w.judge(boot, w.beat, one)
			w.End(gateway.Attempt{Run: run(1), Number: 1}, wire.Unstarted)
		}, offer: one,
			want: "refusedstale"},
		"gone back, and offered again": {before: func(w *world) { // Postgres refuses it until the result is settled
			w.judge(boot, w.beat, one)
			w.End(gateway.Attempt{Run: run(1), Number: 1}, wire.Unstarted)
		}, offer: offer(1, 1, 2),
			want: "accepted"},
		"retired": {before: func(w *world) { w.Drain(true); w.Retire() }, offer: one, want: "refusedfull"},
		"killed before it was sent": {before: func(w *world) {
			w.judge(boot, w.beat, one)
			w.Kill(gateway.Attempt{Run: run(1), Number: 1}, "killed", w.now)
		}, offer: one,
			want: "refusedstale"},
		"refused before":         {before: func(w *world) { w.Drain(true); w.judge(boot, w.beat, one); w.Drain(false) }, offer: one, want: "refuseddraining"},
		"refused before, lower":  {before: func(w *world) { w.Drain(true); w.judge(boot, w.beat, offer(1, 1, 2)); w.Drain(false) }, offer: one, want: "refusedstale"},
		"refused before, higher": {before: func(w *world) { w.Drain(true); w.judge(boot, w.beat, one); w.Drain(false) }, offer: offer(1, 1, 2), want: "accepted"},
		"refused a while ago": {before: func(w *world) {
			w.Drain(true)
			w.judge(boot, w.beat, one)
			w.Drain(false)
			w.pass(refuseFor)
			w.beat = w.Beat(w.now)
		}, offer: one, want: "accepted"},
		"the next attempt": {before: func(w *world) {
			w.judge(boot, w.beat, one)
			w.End(gateway.Attempt{Run: run(1), Number: 1}, wire.Failed)
		}, offer: wire.Offer{RunID: run(1).String(), Attempt: 2, Bind: 1}, want: "accepted"},
		"no lack after a minute":     {before: func(w *world) { w.Lack("h1", w.now); w.pass(lackFor); w.beat = w.Beat(w.now) }, offer: one, want: "accepted"},
		"settled, and offered again": {before: func(w *world) { w.judge(boot, w.beat, one); w.Settled(gateway.Attempt{Run: run(1), Number: 1}) }, offer: one, want: "accepted"}, // Postgres refuses it
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			if c.before != nil {
				c.before(w)
			}
			if c.boot == "" {
				c.boot = boot
			}
			if said, _ := w.judge(c.boot, w.beat+c.beat, c.offer); len(said) != 1 || said[0] != c.want {
				t.Errorf("got %q, want %q", said, c.want)
			}
		})
	}
}

// Heartbeats have higher numbers in each epoch.
func TestBeats(t *testing.T) {
	w := newWorld(1)
	if w.beat != 3<<32+1 || w.Beat(w.now) != 3<<32+2 {
		t.Errorf("the first heartbeat of epoch 3 has the number %d", w.beat)
	}
	if later := New(Config{Epoch: 4}).Beat(w.now); later <= w.Beat(w.now) {
		t.Errorf("a later epoch has the number %d", later)
	}
}

// The runs of a job have their turn one after another, in the order in which they asked. Runs of other jobs do not wait.
func TestTurn(t *testing.T) {
	w := newWorld(8)
	all := w.take(t, offer(1, 1, 1), offer(2, 1, 1), offer(3, 1, 1), offer(4, 2, 1))
	for _, a := range all {
		w.Turn(a)
	}
	if !turns(all...) || turns(all[1]) || turns(all[2]) || !turns(all[3]) {
		t.Fatal("not exactly the first run of each job has its turn")
	}
	w.End(all[1].Attempt, wire.Unstarted) // it leaves the line
	if turns(all[2]) {
		t.Fatal("a run has its turn while another one runs")
	}
	w.Sends(all[0], time.Now())
	w.Runs(all[0])
	w.End(all[0].Attempt, wire.Succeeded)
	if !turns(all[2]) {
		t.Error("the next run does not get its turn")
	}
}

// turns reports whether the first attempt has its turn.
func turns(a ...*Attempt) bool {
	select {
	case <-a[0].Woken():
		return true
	default:
		return false
	}
}

// executor-go confuses two runs of one handler, also if their jobs differ.
func TestTurnPerHandler(t *testing.T) {
	w := newWorld(8)
	w.cfg.PerHandler = true
	a, b := offer(1, 1, 1), offer(2, 2, 1)
	b.Handler = a.Handler
	both := w.take(t, a, b)
	w.Turn(both[0])
	w.Turn(both[1])
	if !turns(both[0]) || turns(both[1]) {
		t.Error("two runs of one handler have their turns")
	}
}

// A kill ends the wait of a run.
func TestKillEndsTheWait(t *testing.T) {
	w := newWorld(8)
	both := w.take(t, offer(1, 1, 1), offer(2, 1, 1))
	w.Turn(both[0])
	w.Turn(both[1])
	if a := w.Kill(both[1].Attempt, "covered", w.now); a != both[1] || a.KillReason != "covered" || !turns(a) {
		t.Errorf("killed: %+v", a)
	}
	w.Kill(both[1].Attempt, "killed", w.now)
	if both[1].KillReason != "covered" {
		t.Error("a later kill replaced the reason")
	}
	if got := w.Noted(gateway.Attempt{Run: run(7), Number: 1}, w.now); got != "" {
		t.Errorf("an unknown attempt is %q", got)
	}
	w.Kill(gateway.Attempt{Run: run(7), Number: 1}, "killed", w.now)
	if got := w.Noted(gateway.Attempt{Run: run(7), Number: 1}, w.now); got != wire.StatusBarred {
		t.Errorf("a killed attempt that was never offered is %q", got)
	}
}

// A later owner restores what was sent: it takes slots and turns, and its results can be settled.
func TestRestore(t *testing.T) {
	w := newWorld(8)
	at := time.Now()
	for i, s := range []gateway.Send{
		{State: gateway.Taken, SentAt: &at, KillReason: "killed"},
		{State: gateway.Unknown, SentAt: &at},
		{State: gateway.Ended, SentAt: &at, EndedAt: &at, Result: gateway.Result{Outcome: wire.Failed}},
		{State: gateway.Unstarted, EndedAt: &at, Result: gateway.Result{Outcome: wire.Unstarted}},
	} {
		s.LogID, s.Run, s.Number, s.WireID = int64(i+1), run(byte(i+1)), 1, 7
		if w.Restore(&s) == nil || w.Restore(&s) != nil {
			t.Fatalf("send %d is not restored exactly once", i)
		}
	}
	if load := w.Load(); load.Running != 2 {
		t.Errorf("%d slots are taken", load.Running)
	}
	if n := w.JobRuns(7); n != 2 {
		t.Errorf("the job has %d runs", n)
	}
	fresh := w.take(t, offer(9, 7, 1))
	if w.Turn(fresh[0]); turns(fresh[0]) {
		t.Error("a run has its turn while runs of earlier owners are at the executor")
	}
	for n, want := range map[byte]string{1: wire.StatusRunning, 3: wire.StatusDone, 4: wire.StatusDone, 9: wire.StatusAccepted} {
		if st := StatusOf(w.Known(gateway.Attempt{Run: run(n), Number: 1})); st.Status != want {
			t.Errorf("run %d is %+v, want %s", n, st, want)
		}
	}
}

// An attempt that Postgres knows is judged by its sends.
func TestRecall(t *testing.T) {
	at := time.Now()
	here := func(s gateway.Send) gateway.Send { s.Instance, s.BootID = "a", boot; return s }
	done := gateway.Send{State: gateway.Ended, EndedAt: &at, Result: gateway.Result{Outcome: wire.Succeeded}}
	for want, sends := range map[string][]gateway.Send{
		"refusedstale":   {here(gateway.Send{State: gateway.Unstarted, EndedAt: &at}), done},
		"endedsucceeded": {here(gateway.Send{State: gateway.Unstarted, EndedAt: &at}), here(done)},
		"accepted":       {here(gateway.Send{State: gateway.Taken})},
	} {
		o := offer(1, 1, 1)
		if v := Recall(sends, "a", boot, &o); v.Verdict+v.Reason+v.Outcome != want {
			t.Errorf("%+v: %+v, want %s", sends, v, want)
		}
	}
}

// Whatever happens, the slots in use are those of the attempts that have not ended, at most one run of each job has its turn, and no attempt waits for a free turn.
func TestSlotsAndTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.IntRange(1, 6).Draw(t, "capacity"))
		asked := map[*Attempt]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.IntRange(1, 8).Draw(t, "run")
			a := w.Known(gateway.Attempt{Run: run(byte(n)), Number: 1})
			step := rapid.SampledFrom([]string{"offer", "turn", "send", "run", "end", "settle", "kill", "forget"}).Draw(t, "step")
			switch {
			case step == "offer":
				w.judge(boot, w.beat, offer(byte(n), int64(n%3), 1))
			case a == nil:
			case step == "turn" && a.State == Waiting && !asked[a]:
				asked[a] = true
				w.Turn(a)
			case step == "send" && asked[a] && turns(a):
				w.Sends(a, time.Now())
			case step == "run":
				w.Runs(a)
			case step == "end":
				w.End(a.Attempt, wire.Succeeded)
			case step == "settle":
				w.Settled(a.Attempt)
			case step == "kill":
				w.Kill(a.Attempt, "killed", w.now)
			case step == "forget" && a.State == Waiting:
				w.Forget(a)
			}
			w.check(t, asked)
		}
	})
}

func (w *world) check(t *rapid.T, asked map[*Attempt]bool) {
	live, first := 0, map[int64]int{}
	for _, a := range w.Attempts() {
		if a.State == Ended {
			continue
		}
		live++
		if asked[a] && w.turns[w.turnOf(a)][0] == a {
			first[a.WireID]++
			if !turns(a) {
				t.Fatalf("run %v is first and waits", a.Run)
			}
		}
	}
	if w.Load().Running != live || w.slots > w.cfg.Capacity {
		t.Fatalf("%d slots are taken of %d, by %d attempts", w.Load().Running, w.cfg.Capacity, live)
	}
	for job, n := range first {
		if n > 1 {
			t.Fatalf("%d runs of job %d have their turn", n, job)
		}
	}
}

// A retired instance is full, and its attempts go on.
func TestRetire(t *testing.T) {
	w := newWorld(4)
	w.take(t, offer(1, 1, 1))
	before := w.Load()
	w.Retire()
	if l := w.Load(); l.Running != 4 || l.Capacity != 4 || l.Draining || l.Seq <= before.Seq {
		t.Errorf("the load: %+v, before %+v", l, before)
	}
	if said, _ := w.judge(boot, w.beat, offer(1, 1, 1)); said[0] != "accepted" {
		t.Errorf("an attempt that was accepted before: %v", said)
	}
	w.End(gateway.Attempt{Run: run(1), Number: 1}, wire.Succeeded)
	if n := w.Unsettled(); n != 1 {
		t.Errorf("%d ends are not settled", n)
	}
	w.Settled(gateway.Attempt{Run: run(1), Number: 1})
	if n := w.Unsettled(); n != 0 {
		t.Errorf("%d ends are not settled after that", n)
	}
}
