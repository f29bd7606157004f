package executor

import (
	"context"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

func TestBeats(t *testing.T) {
	at := func(seconds int) instant {
		return at(time.Duration(seconds)*time.Second, time.Duration(seconds)*time.Second)
	}
	var b beats
	if _, ok := b.sentAt(1, at(0)); ok {
		t.Error("a heartbeat is known before one was sent")
	}
	for i := range 5 {
		if n := b.next(at(3 * i)); n != int64(i+1) {
			t.Fatalf("the heartbeat after %d others is number %d", i, n)
		}
	}
	for _, tt := range []struct {
		name string
		beat int64
		now  instant
		ok   bool
	}{
		{"the newest", 5, at(12), true},
		{"the newest, just before its limit", 5, at(22).earlier(), true},
		{"the newest, at its limit", 5, at(22), false},
		{"an older one that is young enough", 3, at(15), true},
		{"an older one", 2, at(13), false},
		{"one that is not sent yet", 6, at(12), false},
		{"none", 0, at(12), false},
		{"the wall clock ran ahead", 5, instant{wall: at(22).wall, mono: at(12).mono}, false},
		{"the wall clock was set back", 5, instant{wall: at(-3600).wall, mono: at(22).mono}, false},
		{"suspended, and only the boot clock went on", 5, instant{wall: at(12).wall, mono: at(12).mono, boot: 10 * time.Second}, false},
	} {
		if sent, ok := b.sentAt(tt.beat, tt.now); ok != tt.ok || (ok && sent != at(3*int(tt.beat-1))) {
			t.Errorf("%s: %v, %t", tt.name, sent, ok)
		}
	}
	for range 10 * beatsRemembered {
		b.next(at(13))
	}
	if len(b.sent) > beatsRemembered {
		t.Errorf("%d heartbeats are remembered", len(b.sent))
	}
	if _, ok := b.sentAt(b.last, at(13)); !ok {
		t.Error("the newest heartbeat is not known")
	}
}

// earlier returns an instant that is earlier on every clock.
func (i instant) earlier() instant {
	return instant{wall: i.wall.Add(-time.Millisecond), mono: i.mono - time.Millisecond, boot: i.boot}
}

// accept makes an engine accept an attempt of its handler h that is due after the given time. The offer relies on the
// given heartbeat; 0 stands for an older server.
func accept(t *testing.T, x *engine, run string, beat int64, due time.Duration, now instant) {
	t.Helper()
	x.handlers["h"] = newRegistered(HandlerFunc(func(context.Context, Run) error { return nil }))
	at := wire.Time{Time: now.wall}
	ans := x.answerOffers(&wire.Offers{V: 1, BootID: "boot", Beat: beat, Offers: []wire.Offer{{
		RunID: run, Attempt: 1, Bind: 1, BoundAt: at, Now: at, DueAt: wire.Time{Time: now.wall.Add(due)}, Handler: "h",
	}}}, 1, now)
	if v := ans.Verdicts[0]; v.Verdict != wire.Accepted {
		t.Fatalf("the offer is answered %+v", v)
	}
}

// If a process is frozen between accepting an attempt and starting it, it does not start the attempt on waking. That
// holds even if its heartbeat is confirmed before the starter runs, because Belfry may have routed the run elsewhere.
func TestFrozenBetweenAcceptAndStart(t *testing.T) {
	for _, tt := range []struct {
		name   string
		beat   int64
		freeze instant
	}{
		{"frozen", 1, instant{wall: epoch.Add(14 * time.Second), mono: 14 * time.Second, boot: 14 * time.Second}},
		{"suspended", 1, instant{wall: epoch.Add(12 * time.Second), mono: 200 * time.Millisecond, boot: 12 * time.Second}},
		{"suspended, and the wall clock set back on waking", 1, instant{wall: epoch, mono: 200 * time.Millisecond, boot: 12 * time.Second}},
		{"frozen, offered by an older server", 0, instant{wall: epoch.Add(14 * time.Second), mono: 14 * time.Second}},
		{"suspended, offered by an older server", 0, instant{wall: epoch.Add(12 * time.Second), mono: 200 * time.Millisecond}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := instant{wall: epoch}
			x := newStillEngine(&now)
			_, sent := x.nextBeat()
			x.confirmed(sent, 0)
			accept(t, x, "r", tt.beat, 100*time.Millisecond, now)
			now = tt.freeze
			_, sent = x.nextBeat()
			x.confirmed(sent, 1)
			now.mono += time.Second
			now.wall = now.wall.Add(time.Second)
			batch, _, _ := x.begin()
			if len(batch) != 1 || batch[0].why == "" || batch[0].entry.state != accepted {
				t.Fatalf("on waking: %+v", batch)
			}
			if tt.beat == 0 {
				return
			}
			accept(t, x, "s", 2, 0, now) // an offer after waking is accepted
			if batch, _, _ := x.begin(); len(batch) != 1 || batch[0].why != "" {
				t.Fatalf("an offer after waking: %+v", batch)
			}
		})
	}
}

// The last check is directly before the call. It also applies if Init takes longer than the heartbeat is valid.
func TestFrozenBeforeTheCall(t *testing.T) {
	now := instant{wall: epoch}
	x := newStillEngine(&now)
	x.nextBeat()
	accept(t, x, "r", 1, 0, now)
	called := false
	x.attempts[attemptKey{"r", 1}].handler = newRegistered(slowHandler{
		init: func() { now.wall, now.mono = now.wall.Add(time.Minute), now.mono+time.Minute },
		call: func() { called = true },
	})
	batch, _, _ := x.begin()
	if len(batch) != 1 || batch[0].why != "" {
		t.Fatalf("within the limit: %+v", batch)
	}
	x.perform(batch[0])
	res, _ := x.reports.result(attemptKey{"r", 1})
	if called || res.Outcome != wire.Unstarted || !res.StartedAt.IsZero() || res.Bind != 1 {
		t.Errorf("called %t: %+v", called, res)
	}
}

type slowHandler struct{ init, call func() }

func (h slowHandler) Init(context.Context) error        { h.init(); return nil }
func (h slowHandler) Handle(context.Context, Run) error { h.call(); return nil }

// An offer of an attempt that this boot has run is answered with its outcome, even if its result was settled long ago.
// An offer without a beat gets the answer that older servers expect.
func TestOfferOfWhatHasRun(t *testing.T) {
	now := instant{wall: epoch}
	x := newStillEngine(&now)
	x.nextBeat()
	run := modelRun(1)
	accept(t, x, run, 1, 0, now)
	offer := func(beat int64, bind int) wire.Verdict {
		at := wire.Time{Time: now.wall}
		return x.answerOffers(&wire.Offers{V: 1, BootID: "boot", Beat: beat, Offers: []wire.Offer{{
			RunID: run, Attempt: 1, Bind: bind, BoundAt: at, Now: at, DueAt: at, Handler: "h",
		}}}, 1, now).Verdicts[0]
	}
	batch, _, _ := x.begin()
	if v := offer(1, 1); v.Verdict != wire.Accepted {
		t.Errorf("while it runs: %+v", v)
	}
	x.perform(batch[0])
	want := wire.Verdict{RunID: run, Attempt: 1, Verdict: wire.Ended, Outcome: wire.Succeeded}
	if v := offer(1, 2); v != want {
		t.Errorf("when it has ended: %+v", v)
	}
	x.ledger.free(batch[0].entry)
	x.settle([]wire.Ref{{RunID: run, Attempt: 1}})
	now = instant{wall: now.wall.Add(outcomeMemory - time.Second), mono: outcomeMemory - time.Second}
	beat, _ := x.nextBeat()
	if v := offer(beat, 3); v != want {
		t.Errorf("long after it was settled: %+v", v)
	}
	if st := x.statuses([]wire.Ref{{RunID: run, Attempt: 1}})[0]; st.Status != wire.StatusDone || st.Outcome != wire.Succeeded || st.Result != nil {
		t.Errorf("its status: %+v", st)
	}
	if v := offer(0, 3); v.Verdict != wire.Accepted {
		t.Errorf("offered by an older server: %+v", v)
	}
}

// Offers without a sufficiently recent heartbeat are refused. The age of the binding does not matter.
func TestOffersByBeat(t *testing.T) {
	for _, tt := range []struct {
		name    string
		beat    int64
		verdict string
	}{
		{"the newest", 5, wire.Accepted}, {"an older one", 2, wire.Accepted}, {"too old", 1, wire.Refused}, {"not sent yet", 6, wire.Refused},
	} {
		now := instant{wall: epoch}
		x := newStillEngine(&now)
		x.handlers["h"] = newRegistered(HandlerFunc(func(context.Context, Run) error { return nil }))
		for range 5 {
			x.nextBeat()
			now.wall, now.mono = now.wall.Add(3*time.Second), now.mono+3*time.Second
		}
		now.wall, now.mono = now.wall.Add(-4*time.Second), now.mono-4*time.Second // 11 s after the first one
		bound := wire.Time{Time: epoch.Add(-time.Hour)}
		v := x.answerOffers(&wire.Offers{V: 1, BootID: "boot", Beat: tt.beat, Offers: []wire.Offer{{
			RunID: "r", Attempt: 1, Bind: 1, BoundAt: bound, Now: bound, DueAt: bound, Handler: "h",
		}}}, 0, now).Verdicts[0]
		if v.Verdict != tt.verdict || (v.Verdict == wire.Refused && v.Reason != wire.RefusedStale) {
			t.Errorf("%s: %+v", tt.name, v)
		}
	}
}
