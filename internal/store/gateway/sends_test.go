package gateway_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/store/gateway"
)

func TestAccept(t *testing.T) {
	w := newWorld(t)
	a, b := w.register("one", "g", "a", "10.0.0.1"), w.register("one", "g", "b", "10.0.0.1")
	o := offers(2)
	ids := w.accept("one", a.Hold(), o)
	if ids[0] < 1<<40 || ids[1] < 1<<40 || ids[0] == ids[1] {
		t.Errorf("log ids %v", ids)
	}
	none := func(what string, h gateway.Hold, o ...gateway.Offer) {
		t.Helper()
		if got, err := w.Accept(t.Context(), "one", h, o); err != nil || len(got) != 0 {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	with := func(o gateway.Offer, bind int) gateway.Offer { o.Bind = bind; return o }
	none("the same offers", a.Hold(), o...)
	none("no offers", a.Hold())
	none("a higher bind", a.Hold(), with(o[0], 2))
	none("another address", b.Hold(), with(o[0], 2))
	if err := w.RaiseBinds(t.Context(), []gateway.Offer{with(o[0], 3), with(o[1], 1)}); err != nil {
		t.Fatal(err)
	}
	known, err := w.Known(t.Context(), []gateway.Attempt{o[1].Attempt, o[0].Attempt})
	if err != nil || len(known) != 2 || known[0].Bind != 3 || known[1].Bind != 1 || known[0].State != gateway.Accepted || known[0].Instance != "a" || known[0].WireID != 1 {
		t.Errorf("%+v, %v", known, err)
	}

	if err := w.RequestKill(t.Context(), ids[:1], "killed"); err != nil {
		t.Fatal(err)
	}
	if changed, err := w.Withdraw(t.Context(), ids); err != nil || len(changed) != 2 {
		t.Fatal(changed, err)
	}
	if list, err := w.Results(t.Context(), ids); err != nil || len(list) != 2 || list[0].Result.Reason != "killed" || list[1].Result.Reason != "" || list[1].Result.Outcome != "unstarted" {
		t.Errorf("%+v, %v", list, err)
	}
	none("before the result is settled", a.Hold(), with(o[0], 4))
	again := w.accept("one", b.Hold(), []gateway.Offer{with(o[1], 2)}) // another boot
	if _, err := w.Settle(t.Context(), []gateway.SettledAttempt{{o[0].Attempt, "boot-a"}, {o[1].Attempt, "boot-a"}}); err != nil {
		t.Fatal(err)
	}
	none("a bind that was not started", a.Hold(), with(o[0], 3))
	again = append(again, w.accept("one", a.Hold(), []gateway.Offer{with(o[0], 4)})...)
	if again[0] <= ids[1] || again[1] <= ids[1] {
		t.Errorf("a new send has the log id %v, the old ones %v", again, ids)
	}
	if known, err := w.Known(t.Context(), []gateway.Attempt{o[0].Attempt}); err != nil || len(known) != 2 || !known[0].Settled || known[1].Settled {
		t.Errorf("both sends of an attempt: %+v, %v", known, err)
	}
	w.wantStates("unstarted unstarted accepted accepted")
}

// The same attempts are offered to several addresses at the same time. One of them gets each attempt, and none gets an error.
func TestAcceptOnce(t *testing.T) {
	w := newWorld(t)
	addresses := []gateway.Address{w.register("one", "g", "a", "10.0.0.1"), w.register("one", "g", "b", "10.0.0.1"), w.register("one", "g", "c", "10.0.0.1")}
	for range 20 {
		o := offers(50)
		var mu sync.Mutex
		accepted := make(map[gateway.Attempt]int)
		var all sync.WaitGroup
		for _, a := range addresses {
			all.Go(func() {
				ids, err := w.Accept(t.Context(), "one", a.Hold(), o)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				for attempt := range ids {
					accepted[attempt]++
				}
			})
		}
		all.Wait()
		for _, offer := range o {
			if n := accepted[offer.Attempt]; n != 1 {
				t.Errorf("an attempt was accepted %d times", n)
			}
		}
	}
}

func TestAnswer(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	ids := w.accept("one", a.Hold(), offers(6))
	w.send("one", a.Hold(), ids[1:]...)
	if at, _, err := w.Send(t.Context(), "one", []gateway.Hold{a.Hold()}, ids[1:]); err != nil || len(at) != 0 {
		t.Errorf("sent twice: %v, %v", at, err)
	}
	if changed, err := w.Withdraw(t.Context(), ids[1:]); err != nil || len(changed) != 0 {
		t.Errorf("withdrawn after it was sent: %v, %v", changed, err)
	}
	if _, err := w.Finish(t.Context(), []string{"g"}, []gateway.End{{LogID: ids[5], Result: gateway.Result{Outcome: "failed", Reason: "handler_error"}}}); err != nil {
		t.Fatal(err)
	}
	answers := []gateway.Answer{{ids[0], gateway.Taken, ""}, {ids[4], gateway.Unknown, "no answer"}, {ids[3], gateway.Unstarted, "refused"}, {ids[2], gateway.Taken, ""}, {ids[5], gateway.Taken, ""}}
	changed, err := w.Answer(t.Context(), answers)
	if slices.Sort(changed); err != nil || !slices.Equal(changed, ids[2:5]) {
		t.Errorf("changed %v of %v, %v", changed, ids, err)
	}
	w.wantStates("accepted sending taken unstarted unknown ended")
	if changed, err := w.Answer(t.Context(), []gateway.Answer{{ids[2], gateway.Unstarted, ""}, {ids[4], gateway.Unknown, ""}}); err != nil || len(changed) != 0 {
		t.Errorf("changed %v, %v", changed, err)
	}
	list, err := w.Results(t.Context(), ids)
	if err != nil || len(list) != 2 || list[0].LogID != ids[3] || list[0].Result.Outcome != "unstarted" || list[0].Result.Message != "refused" || list[1].Result.Reason != "handler_error" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestFinish(t *testing.T) {
	w := newWorld(t)
	w.open(gateway.Group{Name: "h", App: "h", Capacity: 1})
	a, b := w.register("one", "g", "a", "10.0.0.1"), w.register("one", "h", "b", "10.0.0.1")
	ids := w.accept("one", a.Hold(), offers(7))
	foreign := w.accept("one", b.Hold(), offers(1))
	w.send("one", a.Hold(), ids[:6]...)
	w.send("one", b.Hold(), foreign...)
	if _, err := w.Answer(t.Context(), []gateway.Answer{{ids[1], gateway.Taken, ""}, {ids[2], gateway.Unknown, ""}, {ids[3], gateway.Taken, ""}, {ids[4], gateway.Taken, ""}}); err != nil {
		t.Fatal(err)
	}
	for i, reason := range map[int]string{3: "killed", 4: "timeout", 5: "covered"} {
		if err := w.RequestKill(t.Context(), ids[i:i+1], reason); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.RequestKill(t.Context(), ids[3:4], "timeout"); err != nil { // the first one counts
		t.Fatal(err)
	}
	end := func(id int64, outcome, reason string, killed bool) gateway.End {
		return gateway.End{LogID: id, Result: gateway.Result{Outcome: outcome, Reason: reason, Message: "m", Output: "o"}, Killed: killed}
	}
	got, err := w.Finish(t.Context(), []string{"g", "other"}, []gateway.End{
		end(ids[5], "failed", "lost", true), end(ids[0], "succeeded", "", false), end(ids[0], "failed", "handler_error", false), end(ids[1], "unstarted", "", false), end(ids[2], "failed", "timeout", false),
		end(ids[3], "failed", "lost", true), end(ids[4], "failed", "lost", true), end(ids[6], "succeeded", "", false), end(foreign[0], "succeeded", "", false), end(1, "succeeded", "", false),
		end(ids[1], "succeeded", "", false),
	})
	want := []gateway.Disposition{gateway.Finished, gateway.Finished, gateway.Repeated, gateway.Finished, gateway.Finished, gateway.Finished, gateway.Finished, gateway.NotSent, gateway.NoSend, gateway.NoSend, gateway.Repeated}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	w.wantStates("ended unstarted ended ended ended ended accepted sending")
	list, err := w.Results(t.Context(), ids)
	if err != nil || len(list) != 6 {
		t.Fatal(list, err)
	}
	for i, want := range []string{"succeeded ", "unstarted ", "failed timeout", "cancelled killed", "failed timeout", "cancelled covered"} {
		if r := list[i].Result; r.Outcome+" "+r.Reason != want || r.Message != "m" || r.Output != "o" || list[i].EndedAt == nil {
			t.Errorf("result %d: %+v, want %s", i, r, want)
		}
	}
	if again, err := w.Finish(t.Context(), []string{"g"}, []gateway.End{end(ids[0], "failed", "x", false), end(ids[1], "succeeded", "", false)}); err != nil || !slices.Equal(again, []gateway.Disposition{gateway.Repeated, gateway.NotSent}) {
		t.Errorf("repeated: %v, %v", again, err)
	}
}

// A callback of an attempt that was declared lost replaces the result, and is published too.
func TestLateCallback(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	o := offers(3)
	ids := w.accept("one", a.Hold(), o)
	w.send("one", a.Hold(), ids[:2]...)
	lose := func(id int64) gateway.End {
		return gateway.End{LogID: id, Result: gateway.Result{Reason: "lost", Message: "gone", Permanent: true}}
	}
	if _, err := w.Answer(t.Context(), []gateway.Answer{{ids[0], gateway.Taken, ""}}); err != nil {
		t.Fatal(err)
	}
	got, err := w.Lose(t.Context(), "g", []gateway.End{lose(ids[0]), lose(ids[1]), lose(ids[2])})
	if err != nil || !slices.Equal(got, []gateway.Disposition{gateway.Finished, gateway.Repeated, gateway.NotSent}) {
		t.Errorf("%v, %v", got, err)
	}
	w.wantStates("lost sending accepted")
	list, err := w.Results(t.Context(), ids)
	if err != nil || len(list) != 1 || list[0].Result.Outcome != "failed" || list[0].Result.Reason != "lost" || !list[0].Result.Permanent {
		t.Errorf("%+v, %v", list, err)
	}
	settle := func() {
		t.Helper()
		if _, err := w.Settle(t.Context(), []gateway.SettledAttempt{{o[0].Attempt, ""}, {o[1].Attempt, ""}}); err != nil {
			t.Fatal(err)
		}
	}
	outstanding := func(want ...int64) {
		t.Helper()
		list, err := w.Outstanding(t.Context(), &a, 0, 10)
		var got []int64
		for _, s := range list {
			got = append(got, s.LogID)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("outstanding are %v, want %v, %v", got, want, err)
		}
	}
	settle()
	outstanding(ids[1], ids[2]) // without a result, nothing is settled
	for _, want := range []gateway.Disposition{gateway.Late, gateway.Repeated} {
		if got, err := w.Finish(t.Context(), []string{"g"}, []gateway.End{{LogID: ids[0], Result: gateway.Result{Outcome: "succeeded"}}}); err != nil || got[0] != want {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	outstanding(ids...)
	settle()
	outstanding(ids[1], ids[2])
}

func TestSweep(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	o := offers(4)
	ids := w.accept("one", a.Hold(), o)
	w.send("one", a.Hold(), ids[:3]...)
	if _, err := w.Answer(t.Context(), []gateway.Answer{{ids[1], gateway.Taken, ""}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(t.Context(), []string{"g"}, []gateway.End{{LogID: ids[0], Result: gateway.Result{Outcome: "succeeded"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Lose(t.Context(), "g", []gateway.End{{LogID: ids[1]}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Settle(t.Context(), []gateway.SettledAttempt{{o[0].Attempt, "boot-a"}, {o[1].Attempt, "boot-a"}, {o[2].Attempt, "boot-a"}}); err != nil {
		t.Fatal(err)
	}
	sweep := func(want int64, states string) {
		t.Helper()
		if _, n, err := w.Sweep(t.Context(), 0, 100); err != nil || n != want {
			t.Errorf("deleted %d, want %d, %v", n, want, err)
		}
		w.wantStates(states)
	}
	sweep(0, "ended lost sending accepted")
	w.exec(`UPDATE gateway_sends SET forget_at = forget_at - $1::interval`, gateway.Kept+time.Second)
	sweep(1, "lost sending accepted")
	w.exec(`UPDATE gateway_sends SET forget_at = forget_at - $1::interval`, gateway.LostKept)
	sweep(1, "sending accepted")
	w.exec(`DELETE FROM groups WHERE name = 'g'`)
	sweep(2, "")
}

// A sweep goes on from part to part, past sends that stay, until it finds sends that are too young.
func TestSweepInParts(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	o := offers(9)
	ids := w.accept("one", a.Hold(), o)
	w.exec(`UPDATE gateway_sends SET accepted_at = now() - $1::interval WHERE log_id <= $2`, gateway.Kept+time.Second, ids[6])
	w.exec(`UPDATE gateway_sends SET forget_at = now() - interval '1 s' WHERE log_id = ANY ($1)`, []int64{ids[1], ids[4], ids[8]}) // the others are not settled
	var parts []string
	next, deleted, err := w.Sweep(t.Context(), 0, 2)
	for ; err == nil && next > 0 && len(parts) < 9; next, deleted, err = w.Sweep(t.Context(), next, 2) {
		parts = append(parts, fmt.Sprintf("to %d: %d", slices.Index(ids, next), deleted))
	}
	if got := strings.Join(parts, ", "); err != nil || got != "to 1: 1, to 3: 0, to 5: 1" || deleted != 0 {
		t.Errorf("%s, then %d, %v", got, deleted, err)
	}
}

// Several gateways get the same callbacks in different orders, while the owner's answers arrive. Each end counts once.
func TestFinishOnce(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	ids := w.accept("one", a.Hold(), offers(200))
	w.send("one", a.Hold(), ids...)
	var mu sync.Mutex
	finished := make(map[int64]int)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			order := slices.Clone(ids)
			rand.New(rand.NewPCG(uint64(i), 1)).Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })
			for part := range slices.Chunk(order, 50) {
				var ends []gateway.End
				var answers []gateway.Answer
				for _, id := range part {
					ends = append(ends, gateway.End{LogID: id, Result: gateway.Result{Outcome: "succeeded", Output: fmt.Sprint(i)}})
					answers = append(answers, gateway.Answer{LogID: id, State: gateway.Taken})
				}
				if i == 0 {
					if _, err := w.Answer(t.Context(), answers); err != nil {
						t.Error(err)
					}
					continue
				}
				got, err := w.Finish(t.Context(), []string{"g"}, ends)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for j, d := range got {
					if d == gateway.Finished {
						finished[part[j]]++
					} else if d != gateway.Repeated {
						t.Errorf("disposition %s", d)
					}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if finished[id] != 1 {
			t.Errorf("%d ended %d times", id, finished[id])
		}
	}
	if s := w.states(); strings.Count(s, "ended") != len(ids) {
		t.Errorf("states: %s", s)
	}
}
