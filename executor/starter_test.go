package executor

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/executor/wire"
)

// Each attempt is taken once, when it is due, in the order of due times. A removed attempt is not taken.
func TestStarter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStarter()
		now := time.Hour
		left := make(map[*attempt]bool)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "how many") {
					a := &attempt{startAt: now + time.Duration(rapid.IntRange(-1, 3).Draw(t, "s"))*time.Second}
					s.add(a)
					left[a] = true
				}
			},
			"remove": func(*rapid.T) {
				for a := range left {
					s.remove(a)
					delete(left, a)
					return
				}
			},
			"advance": func(*rapid.T) { now += time.Second },
			"take": func(t *rapid.T) {
				limit := rapid.IntRange(1, 4).Draw(t, "limit")
				due, next := s.take(now, limit)
				var last time.Duration
				for _, a := range due {
					if !left[a] || a.startAt > now || a.startAt < last {
						t.Fatalf("took %v at %v, after %v; waiting: %v", a.startAt, now, last, left[a])
					}
					last = a.startAt
					delete(left, a)
				}
				if len(due) == 0 && next == never && len(left) > 0 {
					t.Fatalf("%d attempts are left, but the starter has no next instant", len(left))
				}
				for a := range left {
					if next > a.startAt {
						t.Fatalf("the starter's next instant is %v, but an attempt is due at %v", next, a.startAt)
					}
				}
			},
		})
	})
}

// newStillEngine returns an engine with stopped clocks and a lease. The test calls its starter.
func newStillEngine(now *instant, runs ...string) *engine {
	x := &engine{
		boot: "boot", handlers: map[string]*registered{}, ledger: newLedger(10), attempts: make(map[attemptKey]*attempt),
		log: quietLogger(), logs: newLogShipper(quietLogger()), starter: newStarter(), now: func() instant { return *now },
		reports: &reporter{pending: make(map[attemptKey]*pending), writeNow: make(chan struct{}, 1)},
	}
	x.starter.living = true
	x.confirmed(*now, 0)
	at := wire.Time{Time: now.wall}
	for i, run := range runs {
		x.handlers[run] = newRegistered(HandlerFunc(func(context.Context, Run) error { return nil }))
		x.answerOffers(&wire.Offers{V: 1, BootID: "boot", Offers: []wire.Offer{{
			RunID: run, Attempt: 1, Bind: 1, BoundAt: at, Now: at, DueAt: wire.Time{Time: now.wall.Add(time.Duration(i) * time.Minute)}, Handler: run,
		}}}, 1, *now)
	}
	return x
}

// An attempt that may not start when it is due is reported once, even if a kill or a drain comes before the report.
// Other waiting attempts continue to wait.
func TestKilledWhileItIsHandedBack(t *testing.T) {
	now := instant{wall: epoch}
	x := newStillEngine(&now, "now", "later")
	now.wall, now.mono = now.wall.Add(wire.LeaseTTL+1), now.mono+wire.LeaseTTL+1
	batch, _, _ := x.begin()
	if len(batch) != 1 || batch[0].why == "" {
		t.Fatalf("without a lease: %+v", batch)
	}
	x.kill([]wire.Ref{{RunID: "now", Attempt: 1}}, reasonKilled)
	if again, wait, ok := x.begin(); len(again) != 0 || !ok || wait <= 0 {
		t.Errorf("started again: %+v; waits for %v, %t", again, wait, ok)
	}
	if x.starter.count != 1 || len(x.starter.waiting) != 1 {
		t.Errorf("%d wait: %+v", x.starter.count, x.starter.waiting)
	}
}

// If the process is frozen after an attempt may start and before its handler is called, the attempt is not started on
// waking, even if the lease has been renewed by then.
func TestFrozenBeforeTheHandler(t *testing.T) {
	now := instant{wall: epoch}
	x := newStillEngine(&now, "r")
	batch, _, _ := x.begin()
	if len(batch) != 1 || batch[0].why != "" {
		t.Fatalf("with a lease: %+v", batch)
	}
	now.wall, now.mono = now.wall.Add(time.Minute), now.mono+time.Minute
	x.confirmed(now, 1)
	x.perform(batch[0])
	res, _ := x.reports.result(attemptKey{"r", 1})
	if res.Outcome != wire.Unstarted || !res.StartedAt.IsZero() || res.Message == "" {
		t.Errorf("on waking: %+v", res)
	}
	if e := x.ledger.entries[attemptKey{"r", 1}]; e.state != done || !e.unstarted {
		t.Errorf("the ledger has %+v", e)
	}
}
