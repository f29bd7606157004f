package executor

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/executor/wire"
)

func TestLedgerVerdicts(t *testing.T) {
	t.Run("uuid", func(t *testing.T) { ledgerVerdicts(t, attemptKey{modelRun(1), 1}) })
	t.Run("other text", func(t *testing.T) { ledgerVerdicts(t, attemptKey{"r", 1}) })
}

func ledgerVerdicts(t *testing.T, key attemptKey) {
	ran := func(l *ledger) {
		e := l.judge(bid{key: key, bind: 1}).fresh
		l.start(e, "", time.Time{})
		l.finish(e, wire.Succeeded)
		l.free(e)
		l.settle(key, instant{})
	}
	offer := func(bind int) bid { return bid{key: key, bind: bind} }
	settled := func(l *ledger) {
		l.finish(l.entries[key], wire.Unstarted)
		l.free(l.entries[key])
		l.settle(key, instant{})
	}
	refusedLate := func(l *ledger) { l.judge(bid{key: key, bind: 2, now: instant{mono: memory - 1}}) }
	killedThenRefused := func(l *ledger) {
		l.judge(offer(1))
		l.kill(key, "killed", instant{})
		settled(l)
		refusedLate(l)
	}
	barredThenRefused := func(l *ledger) { l.kill(key, "timeout", instant{}); refusedLate(l) }
	const ok, stale, full = "", wire.RefusedStale, wire.RefusedFull
	tests := []struct {
		name   string
		before func(*ledger)
		bid    bid
		reason string // "ok" means accepted
		fresh  bool
	}{
		{"new", func(*ledger) {}, offer(1), ok, true},
		{"accepted before", func(l *ledger) { l.judge(offer(1)) }, offer(1), ok, false},
		{"accepted before, higher bind", func(l *ledger) { l.judge(offer(1)) }, offer(2), ok, false},
		{"accepted before, now stale", func(l *ledger) { l.judge(offer(1)) }, bid{key: key, bind: 1, stale: true}, ok, false},
		{"running", func(l *ledger) { l.judge(offer(1)); l.start(l.entries[key], "", time.Time{}) }, offer(2), ok, false},
		{"ran, settled", ran, offer(2), ok, false},
		{"ran, settled, settled again, killed", func(l *ledger) { ran(l); l.settle(key, instant{}); l.kill(key, "killed", instant{}) }, offer(2), ok, false},
		{"ran, settled, remembered", ran, bid{key: key, bind: 1, stale: true, now: instant{mono: memory - 1}}, ok, false},
		{"ran, settled, forgotten", ran, bid{key: key, bind: 1, stale: true, now: instant{mono: outcomeMemory}}, stale, false},
		{"stale", func(*ledger) {}, bid{key: key, bind: 1, stale: true}, stale, false},
		{"lease over", func(*ledger) {}, bid{key: key, leaseOver: true}, wire.RefusedLease, false},
		{"no handler", func(*ledger) {}, bid{key: key, refuse: wire.RefusedNoHandler}, wire.RefusedNoHandler, false},
		{"unfit", func(*ledger) {}, bid{key: key, unfit: true}, full, false},
		{"no slot", func(l *ledger) { l.judge(bid{key: attemptKey{"other", 1}}) }, offer(1), full, false},
		{"draining", func(l *ledger) { l.drain() }, offer(1), wire.RefusedDraining, false},
		{"refused before, same bind", func(l *ledger) { l.judge(bid{key: key, bind: 1, leaseOver: true}) }, offer(1), wire.RefusedLease, false},
		{"refused before, higher bind", func(l *ledger) { l.judge(bid{key: key, bind: 1, leaseOver: true}) }, offer(2), ok, true},
		{"refused before, lower bind", func(l *ledger) { l.judge(bid{key: key, bind: 3, leaseOver: true}) }, offer(2), stale, false},
		{"barred", func(l *ledger) { l.kill(key, "killed", instant{}) }, offer(9), stale, false},
		{"refused, then barred", func(l *ledger) { l.judge(bid{key: key, leaseOver: true}); l.kill(key, "killed", instant{}) }, offer(9), stale, false},
		{"handed back, not settled, same bind", func(l *ledger) { l.judge(offer(1)); l.finish(l.entries[key], wire.Unstarted); l.free(l.entries[key]) }, offer(1), stale, false},
		{"handed back, not settled, higher bind", func(l *ledger) { l.judge(offer(1)); l.finish(l.entries[key], wire.Unstarted); l.free(l.entries[key]) }, offer(2), stale, false},
		{"handed back, settled, same bind", func(l *ledger) { l.judge(offer(1)); settled(l) }, offer(1), stale, false},
		{"handed back, settled, higher bind", func(l *ledger) { l.judge(offer(1)); settled(l) }, offer(2), ok, true},
		{"handed back, refused before it was settled", func(l *ledger) {
			l.judge(offer(1))
			l.finish(l.entries[key], wire.Unstarted)
			l.free(l.entries[key])
			l.judge(offer(2))
			l.settle(key, instant{})
		}, offer(2), stale, false},
		{"handed back, killed", func(l *ledger) { l.judge(offer(1)); l.kill(key, "killed", instant{}); settled(l) }, offer(2), stale, false},
		{"handed back, killed for a timeout", func(l *ledger) { l.judge(offer(1)); l.kill(key, "timeout", instant{}); settled(l) }, offer(2), ok, true},
		{"handed back, then killed for a timeout", func(l *ledger) { l.judge(offer(1)); settled(l); l.kill(key, "timeout", instant{}) }, offer(2), ok, true},
		{"handed back, killed, refused until the bar is over", killedThenRefused, bid{key: key, bind: 3, now: instant{mono: memory}}, ok, true},
		{"handed back, killed, refused until the bar is over, same bind", killedThenRefused, bid{key: key, bind: 2, now: instant{mono: memory}}, stale, false},
		{"barred, refused until the bar is over", barredThenRefused, bid{key: key, bind: 3, now: instant{mono: memory}}, ok, true},
		{"barred, refused until the bar is over, same bind", barredThenRefused, bid{key: key, bind: 2, now: instant{mono: memory}}, stale, false},
		{"barred again", func(l *ledger) {
			l.kill(key, "killed", instant{})
			l.kill(key, "killed", instant{mono: memory - 1})
		}, bid{key: key, bind: 3, now: instant{mono: memory}}, stale, false},
		{"ended in an earlier boot", func(l *ledger) { l.restore(key, false) }, offer(2), stale, false},
		{"handed back by an earlier boot", func(l *ledger) { l.restore(key, true) }, offer(2), stale, false},
		{"handed back by an earlier boot, settled", func(l *ledger) { l.restore(key, true); l.settle(key, instant{}) }, offer(2), ok, true},
		{"handed back by an earlier boot, settled, killed, refused until the bar is over", func(l *ledger) {
			l.restore(key, true)
			l.kill(key, "killed", instant{})
			l.settle(key, instant{})
			refusedLate(l)
		}, bid{key: key, bind: 3, now: instant{mono: memory}}, ok, true},
		{"forgotten", func(l *ledger) { l.judge(bid{key: key, leaseOver: true}) }, bid{key: key, now: instant{mono: memory}}, ok, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLedger(1)
			tt.before(l)
			v := l.judge(tt.bid)
			if v.accepted != (tt.reason == ok) || v.reason != tt.reason || (v.fresh != nil) != tt.fresh || v.silent {
				t.Errorf("%+v, want reason %q, fresh %t", v, tt.reason, tt.fresh)
			}
		})
	}
}

func TestLedgerStart(t *testing.T) {
	key := attemptKey{"r", 1}
	tests := []struct {
		name   string
		before func(*ledger)
		late   string
		want   bool
	}{
		{"accepted", func(*ledger) {}, "", true},
		{"too late", func(*ledger) {}, "late", false},
		{"draining", func(l *ledger) { l.drain() }, "", false},
		{"killed", func(l *ledger) { l.kill(key, "killed", instant{}) }, "", false},
		{"started before", func(l *ledger) { l.start(l.entries[key], "", time.Time{}) }, "", false},
	}
	for _, tt := range tests {
		l := newLedger(1)
		l.judge(bid{key: key})
		tt.before(l)
		if ok, why := l.start(l.entries[key], tt.late, time.Time{}); ok != tt.want || ok != (why == "") {
			t.Errorf("%s: %t %q", tt.name, ok, why)
		}
	}
}

// TestLedgerMemoryIsBounded fills the ledger. At the bound, the ledger accepts nothing, gives no answer that it cannot
// remember, and forgets entries that are old enough.
func TestLedgerMemoryIsBounded(t *testing.T) {
	l := newLedger(10)
	for n := range maxRemembered {
		l.judge(bid{key: attemptKey{"r", n}, stale: true})
	}
	if v := l.judge(bid{key: attemptKey{"s", 1}}); v.accepted || !v.silent || l.load(instant{}).Running != l.capacity {
		t.Errorf("beyond the bound: %+v, %+v", v, l.load(instant{}))
	}
	// The dispatcher offers nothing to a full instance, so the next heartbeat must report free slots again.
	if load := l.load(instant{mono: minMemory + 1}); load.Running != 0 {
		t.Errorf("when the oldest entries can be removed, without an offer: %+v", load)
	}
	if v := l.judge(bid{key: attemptKey{"s", 1}, now: instant{mono: minMemory + 1}}); !v.accepted {
		t.Errorf("when the oldest entries can be removed: %+v", v)
	}
	if n := len(l.entries); n > maxRemembered {
		t.Errorf("%d entries", n)
	}
}

// TestLedgerForgetsInTime settles more attempts per second than one instance usually runs. The bound must never keep
// the ledger from accepting more.
func TestLedgerForgetsInTime(t *testing.T) {
	t.Parallel()
	const perSecond = maxRemembered / 24
	l := newLedger(perSecond)
	for second := range 75 {
		now := instant{mono: time.Duration(second) * time.Second}
		for i := range perSecond {
			key := attemptKey{modelRun(second<<16 + i), 1}
			if v := l.judge(bid{key: key, now: now}); !v.accepted {
				t.Fatalf("in second %d: %+v", second, v)
			}
			e := l.entries[key]
			l.start(e, "", time.Time{})
			l.finish(e, wire.Succeeded)
			l.free(e)
			l.settle(key, now)
		}
	}
}

// The ledger stores the number of a run's id, so exactly one spelling of a number may be a key.
func TestEndedKeys(t *testing.T) {
	const run = "01a1f9bb-2df5-8ba8-ba94-ebf58858211d"
	key, ok := endedKeyOf(attemptKey{run, 3})
	if got := hex.EncodeToString(key.run[:]); !ok || got != strings.ReplaceAll(run, "-", "") || key.attempt != 3 {
		t.Errorf("%s has the key %s, attempt %d, %v", run, got, key.attempt, ok)
	}
	for i := range run {
		for _, c := range []byte("-gG/:@`A\x00\xff") {
			other := []byte(run)
			if other[i] == c {
				continue
			}
			other[i] = c
			if _, ok := endedKeyOf(attemptKey{string(other), 3}); ok {
				t.Errorf("%q has a key", other)
			}
		}
	}
	for _, k := range []attemptKey{{"", 1}, {run[1:], 1}, {run + "0", 1}, {run, 1 << 40}} {
		if _, ok := endedKeyOf(k); ok {
			t.Errorf("%+v has a key", k)
		}
	}
}

// TestGenerations adds attempts continuously. Each one is remembered for as long as promised, and not much longer.
func TestGenerations(t *testing.T) {
	run := func(n int) string { return fmt.Sprintf("%08x-0000-7000-8000-%012x", n/8, n) }
	for _, crowded := range []bool{false, true} {
		lives, each := outcomeMemory, 5*time.Second
		if crowded {
			lives, each = minMemory, time.Second/2
		}
		var g generations
		for n := range 500 {
			now := time.Duration(n) * each
			g.sweep(now, crowded)
			if !g.add(attemptKey{run(n), 1}, outcome(1+n%3), now) {
				t.Fatal("a UUID is not accepted")
			}
			for then := range n + 1 {
				o, known := g.find(attemptKey{run(then), 1})
				age := time.Duration(n-then) * each
				if (age < lives && !known) || (age >= 2*lives && known) || (known && o != outcome(1+then%3)) {
					t.Fatalf("crowded %t: %v after it was added it is remembered: %t, %v", crowded, age, known, o)
				}
			}
		}
		if at := 500*each + 2*lives; g.count == 0 {
			t.Error("nothing is counted")
		} else if g.sweep(at, crowded); g.count != 0 || len(g.kept) != 0 {
			t.Errorf("%d are remembered at the end, in %d generations", g.count, len(g.kept))
		}
	}
	var g generations
	for _, run := range []string{"", "r", strings.ToUpper(modelRun(0xabc)), modelRun(1)[:35] + "g", modelRun(1) + "0"} {
		if _, known := g.find(attemptKey{run, 1}); g.add(attemptKey{run, 1}, succeeded, 0) || known {
			t.Errorf("run id %q is accepted as a UUID", run)
		}
	}
	if g.add(attemptKey{modelRun(1), 1 << 40}, succeeded, 0) {
		t.Error("an attempt that does not fit is accepted")
	}
}

// TestOutcomesAreBounded adds more attempts than the ledger remembers. It forgets the oldest, but none younger than
// minMemory.
func TestOutcomesAreBounded(t *testing.T) {
	var g generations
	const perSecond = outcomesMax / 50
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for n := range 100 * perSecond {
		g.add(attemptKey{modelRun(n), 1}, failed, second(n/perSecond))
	}
	if limit := outcomesMax + int(generationLength/time.Second+1)*perSecond; g.count > limit {
		t.Errorf("%d outcomes are remembered, want at most %d", g.count, limit)
	}
	for _, tt := range []struct {
		second int
		known  bool
	}{{99, true}, {60, true}, {30, false}, {0, false}} {
		if _, known := g.find(attemptKey{modelRun(tt.second * perSecond), 1}); known != tt.known {
			t.Errorf("of second %d: remembered %t", tt.second, known)
		}
	}
	for n := range 2 * outcomesMax { // all in the same second
		g.add(attemptKey{modelRun(n), 2}, failed, second(200))
	}
	if _, known := g.find(attemptKey{modelRun(0), 2}); !known {
		t.Error("an attempt that ended just now is forgotten")
	}
}

// modelRun returns the id of the nth run.
func modelRun(n int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012x", n) }

// model drives an engine with misbehaving clocks and a network that repeats and delays messages. It knows the true
// state: the database's clock and the started attempts.
type model struct {
	x         *engine
	truth     time.Duration // the database's clock
	mono      time.Duration
	wall      time.Duration
	runs      int
	binds     map[string]int
	flight    []flying
	accepted  []*attempt // not begun
	started   []*attempt // not ended
	ended     []*attempt
	spooled   []attemptKey // slots free, not settled
	starts    map[attemptKey]int
	killed    map[attemptKey]bool
	final     map[attemptKey]bool // settled as started; must not be bound again
	refused   map[string]bool     // key and bind
	confirmed time.Duration       // truth when the last confirmed heartbeat was sent
	fenced    bool                // offers carry beats; otherwise an older server sends them
	hasBoot   bool                // the machine has a clock that continues during a suspend
	beats     []time.Duration     // truth when each heartbeat was sent
	prompt    bool                // since the last lapse, a message without delay has shown the database's clock
}

// flying is a message with one offer in flight. A frozen message waits in this process's socket while the lease lapses.
type flying struct {
	offer  wire.Offer
	beat   int64
	sent   time.Duration
	frozen bool
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const modelCapacity = 3

func newModel(fenced, hasBoot bool) *model {
	m := &model{
		fenced: fenced, hasBoot: hasBoot,
		binds: make(map[string]int), starts: make(map[attemptKey]int), killed: make(map[attemptKey]bool), final: make(map[attemptKey]bool),
		refused:   make(map[string]bool),
		confirmed: -time.Hour,
	}
	m.x = &engine{
		boot: "boot", handlers: map[string]*registered{"h": {}}, ledger: newLedger(modelCapacity), reports: &reporter{},
		attempts: make(map[attemptKey]*attempt), log: quietLogger(),
	}
	m.x.now = func() instant {
		now := instant{wall: epoch.Add(m.wall), mono: m.mono}
		if m.hasBoot {
			now.boot = m.truth
		}
		return now
	}
	m.heartbeat()
	return m
}

func (m *model) heartbeat() {
	beat, sent := m.x.nextBeat()
	if m.beats = append(m.beats, m.truth); int64(len(m.beats)) != beat {
		panic("beats are not counted from 1")
	}
	if m.x.confirmed(sent, 0) {
		m.prompt = false // from here on, the known database clock is a lower bound
		for i := range m.flight {
			m.flight[i].frozen = true
		}
	}
	m.confirmed = m.truth
}

func (m *model) bind(run string) {
	m.binds[run]++
	at := wire.Time{Time: epoch.Add(m.truth)}
	var beat int64
	if m.fenced {
		beat = int64(len(m.beats))
	}
	m.flight = append(m.flight, flying{sent: m.truth, beat: beat, offer: wire.Offer{
		RunID: run, Attempt: 1, Bind: m.binds[run], BoundAt: at, Now: at, DueAt: at, Handler: "h"}})
}

func (m *model) deliver(t *rapid.T, n int) {
	f := m.flight[n]
	if !m.fenced && !m.prompt && m.truth-f.sent >= memory {
		return // only its age shows that the message is late, and no clock shows its age now
	}
	key := attemptKey{f.offer.RunID, 1}
	nth := int64(1)
	if f.frozen {
		nth = 0
	}
	m.prompt = m.prompt || nth > 0 && m.truth-f.sent < time.Second
	ans, fresh := m.x.decide(&wire.Offers{V: 1, BootID: "boot", Beat: f.beat, Offers: []wire.Offer{f.offer}}, nth, m.x.now())
	id := fmt.Sprint(f.offer.RunID, "/", f.offer.Bind)
	if len(fresh) == 0 {
		switch v := ans.Verdicts[0]; {
		case v.Verdict == wire.Refused:
			m.refused[id] = true
		case v.Verdict == wire.Ended && (m.starts[key] == 0 || v.Outcome != wire.Succeeded):
			t.Fatalf("the verdict for %s has outcome %q after %d starts", id, v.Outcome, m.starts[key])
		}
		return
	}
	if m.refused[id] {
		t.Fatalf("%s was refused and then accepted", id)
	}
	if m.killed[key] {
		t.Fatalf("%s was barred and then accepted", id)
	}
	if age := m.truth - f.sent; (m.fenced && age >= offerAge) || m.prompt && age > offerAge+2*time.Second {
		t.Fatalf("%s was accepted although it was bound %v ago", id, age)
	}
	m.accepted = append(m.accepted, fresh...)
}

func (m *model) begin(t *rapid.T, a *attempt) {
	now := m.x.now()
	m.x.beginOne(a, now, m.x.db.now(now))
	if a.why == "" {
		m.starts[a.key]++
		relies := m.confirmed
		if m.fenced {
			relies = m.beats[a.fence.beat-1]
		}
		if since := m.truth - relies; since > wire.LeaseTTL || (m.fenced && since == wire.LeaseTTL) {
			t.Fatalf("started %v after the heartbeat that it relied on", since)
		}
		m.started = append(m.started, a)
		return
	}
	m.finish(a)
}

func (m *model) finish(a *attempt) {
	m.x.ledger.finish(a.entry, wire.Succeeded)
	delete(m.x.attempts, a.key)
	m.x.running.Done()
	m.ended = append(m.ended, a)
}

// pick removes one element of a list.
func pick[T any](t *rapid.T, list *[]T) T {
	n := rapid.IntRange(0, len(*list)-1).Draw(t, "which")
	v := (*list)[n]
	*list = append((*list)[:n], (*list)[n+1:]...)
	return v
}

func (m *model) check(t *rapid.T) {
	for key, n := range m.starts {
		if n > 1 {
			t.Fatalf("%v was started %d times", key, n)
		}
	}
	held := len(m.accepted) + len(m.started) + len(m.ended)
	if load := m.x.load(); load.Running != held || held > modelCapacity {
		t.Fatalf("%d slots of %d are in use, but %d attempts hold one", load.Running, modelCapacity, held)
	}
}

// actions returns the possible actions. On a suspended machine, the wall clock continues. A machine whose wall clock is
// set back is not suspended at the same time, unless it has a boot clock, because the local clocks cannot show both at
// once.
func (m *model) actions(suspends bool) map[string]func(*rapid.T) {
	some := func(list int, do func(*rapid.T)) func(*rapid.T) {
		return func(t *rapid.T) {
			if list == 0 {
				return
			}
			do(t)
		}
	}
	advance := func(d time.Duration) { m.truth += d; m.mono += d; m.wall += d }
	seconds := func(t *rapid.T, most int) time.Duration {
		return time.Duration(rapid.IntRange(1, most*1000).Draw(t, "ms")) * time.Millisecond
	}
	return map[string]func(*rapid.T){
		"": m.check,
		"bind": func(t *rapid.T) {
			run := modelRun(m.runs)
			if m.runs > 0 && rapid.Bool().Draw(t, "again") {
				run = modelRun(rapid.IntRange(0, m.runs-1).Draw(t, "run"))
			} else {
				m.runs++
			}
			if key := (attemptKey{run, 1}); !m.killed[key] && !m.final[key] {
				m.bind(run)
			}
		},
		"deliver": func(t *rapid.T) {
			if len(m.flight) > 0 {
				m.deliver(t, rapid.IntRange(0, len(m.flight)-1).Draw(t, "message")) // the message stays, because it may be repeated
			}
		},
		"deliver the newest": func(t *rapid.T) {
			if len(m.flight) > 0 {
				m.deliver(t, len(m.flight)-1)
			}
		},
		"begin":  func(t *rapid.T) { some(len(m.accepted), func(t *rapid.T) { m.begin(t, pick(t, &m.accepted)) })(t) },
		"finish": func(t *rapid.T) { some(len(m.started), func(t *rapid.T) { m.finish(pick(t, &m.started)) })(t) },
		"free": func(t *rapid.T) {
			some(len(m.ended), func(t *rapid.T) {
				a := pick(t, &m.ended)
				m.x.ledger.free(a.entry)
				m.spooled = append(m.spooled, a.key)
			})(t)
		},
		"settle": func(t *rapid.T) {
			if len(m.spooled) > 0 {
				key := pick(t, &m.spooled)
				m.x.ledger.settle(key, m.x.now())
				m.final[key] = m.starts[key] > 0
			}
		},
		"heart":    func(*rapid.T) { m.heartbeat() },
		"a moment": func(t *rapid.T) { advance(seconds(t, 3)); m.heartbeat() },
		"a while": func(t *rapid.T) {
			for range rapid.IntRange(1, 40).Draw(t, "beats") {
				advance(3 * time.Second)
				m.heartbeat()
			}
		},
		"no heartbeat": func(t *rapid.T) { advance(seconds(t, 100)) },
		"kill": func(t *rapid.T) {
			if m.runs == 0 {
				return
			}
			key := attemptKey{modelRun(rapid.IntRange(0, m.runs-1).Draw(t, "run")), 1}
			if m.x.ledger.kill(key, "killed", m.x.now()) == barred {
				m.killed[key] = true
			}
		},
		"clock": func(t *rapid.T) {
			d := seconds(t, 3600)
			switch {
			case (!suspends || m.hasBoot) && rapid.Bool().Draw(t, "back"):
				m.wall -= d
			case suspends && rapid.Bool().Draw(t, "suspend"):
				m.truth += d
				m.wall += d
			default:
				m.wall += d
			}
		},
	}
}

func TestLedgerNeverStartsTwice(t *testing.T) {
	for _, tt := range []struct{ fenced, suspends, hasBoot bool }{
		{fenced: true}, {fenced: true, suspends: true}, {fenced: true, suspends: true, hasBoot: true},
		{}, {suspends: true},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := newModel(tt.fenced, tt.hasBoot)
				t.Repeat(m.actions(tt.suspends))
				for len(m.accepted) > 0 {
					m.begin(t, pick(t, &m.accepted))
				}
				for len(m.started) > 0 {
					m.finish(pick(t, &m.started))
				}
				for _, a := range m.ended {
					m.x.ledger.free(a.entry)
				}
				m.ended = nil
				m.check(t)
			})
		})
	}
}
