package gateway_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

func TestRegister(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	if a.Owner != "one" || a.Epoch != 1 || a.BootID != "boot-a" || a.Registrations != 1 || a.Source != netip.MustParseAddr("10.0.0.1") || a.SourceChangedAt != nil || a.LeavingAt != nil || a.Kind != "java" {
		t.Errorf("a new address: %+v", a)
	}
	if err := w.Leave(t.Context(), "g", "a"); err != nil {
		t.Fatal(err)
	}
	held, err := w.Renew(t.Context(), "one", []gateway.Hold{a.Hold()}, lease)
	if err != nil || len(held) != 1 || held[0].LeavingAt == nil {
		t.Errorf("after it said that it stops: %+v, %v", held, err)
	}
	b := w.register("two", "g", "a", "10.0.0.1")
	if b.Owner != "one" || b.Epoch != 1 || b.Registrations != 2 || b.SourceChangedAt != nil || b.LeavingAt != nil || b.RegisteredAt.Before(a.RegisteredAt) {
		t.Errorf("at another gateway: %+v", b)
	}
	if c := w.register("two", "g", "a", "10.0.0.2"); c.SourceChangedAt == nil || c.Source != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("from another source: %+v", c)
	}
	w.register("one", "g", "b", "10.0.0.1")
	w.register("one", "g", "c", "10.0.0.1")
	r := gateway.Registration{Group: "g", Instance: "d", Source: netip.MustParseAddr("10.0.0.1")}
	if _, err := w.Register(t.Context(), "one", r, 3, lease); domain.CodeOf(err) != domain.Limited {
		t.Errorf("one too many: %v", err)
	}
	r.Group = "h"
	if _, err := w.Register(t.Context(), "one", r, 3, lease); domain.CodeOf(err) != domain.NotFound {
		t.Errorf("a group that is not open: %v", err)
	}
	w.register("one", "g", "a", "10.0.0.1") // a known one has its place
}

// A drain belongs to the executor: registrations and take-overs keep it, until the executor leaves and comes back.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	if err := w.Drain(t.Context(), "two", a.Hold()); !errors.Is(err, gateway.ErrNotHeld) {
		t.Errorf("by another gateway: %v", err)
	}
	if err := w.Drain(t.Context(), "one", a.Hold()); err != nil {
		t.Fatal(err)
	}
	if b := w.register("two", "g", "a", "10.0.0.1"); b.DrainedAt == nil {
		t.Error("a registration ended the drain")
	}
	if err := w.Release(t.Context(), "one", []gateway.Hold{a.Hold()}); err != nil {
		t.Fatal(err)
	}
	if taken, err := w.TakeOver(t.Context(), "two", 9, lease); err != nil || len(taken) != 1 || taken[0].DrainedAt == nil {
		t.Errorf("the next owner: %+v, %v", taken, err)
	}
	if err := w.Leave(t.Context(), "g", "a"); err != nil {
		t.Fatal(err)
	}
	if b := w.register("two", "g", "a", "10.0.0.1"); b.DrainedAt != nil {
		t.Errorf("after the executor came back: %+v", b)
	}
}

// A process takes over what another one has left, with the same boot. The former owner then changes nothing.
func TestTakeOver(t *testing.T) {
	w := newWorld(t)
	a, b := w.register("one", "g", "a", "10.0.0.1"), w.register("one", "g", "b", "10.0.0.1")
	ids := w.accept("one", a.Hold(), offers(4))
	w.send("one", a.Hold(), ids[1:]...)
	if changed, err := w.Answer(t.Context(), []gateway.Answer{{LogID: ids[2], State: gateway.Taken}}); err != nil || !slices.Equal(changed, ids[2:3]) {
		t.Fatal(changed, err)
	}
	if done, err := w.Finish(t.Context(), []string{"g"}, []gateway.End{{LogID: ids[3], Result: gateway.Result{Outcome: "succeeded"}}}); err != nil || done[0] != gateway.Finished {
		t.Fatal(done, err)
	}
	w.wantStates("accepted sending taken ended")
	if taken, err := w.TakeOver(t.Context(), "two", 10, lease); err != nil || len(taken) != 0 {
		t.Errorf("while the lease holds: %+v, %v", taken, err)
	}
	if err := w.Release(t.Context(), "two", []gateway.Hold{a.Hold()}); err != nil {
		t.Fatal(err)
	}
	if err := w.Release(t.Context(), "one", []gateway.Hold{a.Hold()}); err != nil {
		t.Fatal(err)
	}
	taken, err := w.TakeOver(t.Context(), "two", 10, lease)
	if err != nil || len(taken) != 1 || taken[0].Instance != "a" || taken[0].Owner != "two" || taken[0].Epoch != 2 || taken[0].BootID != "boot-a" {
		t.Fatalf("after the lease: %+v, %v", taken, err)
	}
	w.wantStates("unstarted unknown taken ended")

	held, err := w.Renew(t.Context(), "one", []gateway.Hold{a.Hold(), b.Hold()}, lease)
	if err != nil || len(held) != 1 || held[0].Instance != "b" {
		t.Errorf("the former owner renews %+v, %v", held, err)
	}
	if _, err := w.Accept(t.Context(), "one", a.Hold(), offers(1)); !errors.Is(err, gateway.ErrNotHeld) {
		t.Errorf("the former owner accepts: %v", err)
	}
	if at, left, err := w.Send(t.Context(), "one", []gateway.Hold{b.Hold(), a.Hold()}, ids); len(at) > 0 || left[0] <= 0 || left[1] != 0 || err != nil {
		t.Errorf("the former owner sends: %v, the leases are %v, %v", at, left, err)
	}
	if removed, err := w.Remove(t.Context(), "one", a.Hold()); removed || err != nil {
		t.Errorf("the former owner removes: %v, %v", removed, err)
	}

	list, err := w.Outstanding(t.Context(), &taken[0], 0, 10)
	if err != nil || len(list) != 4 || list[0].LogID != ids[0] || list[0].Result.Outcome != "unstarted" || list[1].EndedAt != nil || list[3].Result.Outcome != "succeeded" || list[1].SentAt == nil {
		t.Errorf("what the new owner finds: %+v, %v", list, err)
	}
	// The answer that the former owner got late is true.
	if changed, err := w.Answer(t.Context(), []gateway.Answer{{LogID: ids[1], State: gateway.Taken}}); err != nil || len(changed) != 1 {
		t.Errorf("a late answer: %v, %v", changed, err)
	}
	if removed, err := w.Remove(t.Context(), "two", taken[0].Hold()); removed || err != nil {
		t.Errorf("removed with results that are not settled: %v, %v", removed, err)
	}
	if removed, err := w.Remove(t.Context(), "one", b.Hold()); !removed || err != nil {
		t.Errorf("an idle address: %v, %v", removed, err)
	}
	w.expire()
	if _, err := w.Accept(t.Context(), "two", taken[0].Hold(), offers(1)); !errors.Is(err, gateway.ErrNotHeld) {
		t.Errorf("accepted after the end of the lease: %v", err)
	}
	if held, err := w.Renew(t.Context(), "two", []gateway.Hold{taken[0].Hold()}, lease); err != nil || len(held) != 1 {
		t.Errorf("a lease that ended without a new owner: %+v, %v", held, err)
	}
}

// An owner sends while another process takes over, again and again. A send that Send has returned is never routed again.
func TestSendsAndTakeOversRace(t *testing.T) {
	w := newWorld(t)
	a := w.register("0", "g", "a", "10.0.0.1")
	for round := range 15 {
		owner, hold := fmt.Sprint(round), a.Hold()
		ids := w.accept(owner, hold, offers(40))
		sent := make(map[int64]time.Time)
		begin := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			n := 0
			for part := range slices.Chunk(ids, 4) {
				if n++; n == 1+round%8 {
					close(begin)
				}
				at, _, err := w.Send(t.Context(), owner, []gateway.Hold{hold}, part)
				if err != nil {
					t.Error(err)
				}
				maps.Copy(sent, at)
			}
		})
		both.Go(func() {
			<-begin
			for n := 0; n == 0 && !t.Failed(); {
				w.exec(`UPDATE gateway_addresses SET lease_until = now() - interval '1 s' WHERE owner = $1`, owner)
				taken, err := w.TakeOver(t.Context(), fmt.Sprint(round+1), 10, lease)
				if n = len(taken); err != nil {
					t.Error(err)
				}
				if n > 0 {
					a = taken[0]
				}
			}
		})
		both.Wait()
		for _, id := range ids {
			var state string
			if err := w.pool.QueryRow(t.Context(), `SELECT state FROM gateway_sends WHERE log_id = $1`, id).Scan(&state); err != nil {
				t.Fatal(err)
			}
			if _, returned := sent[id]; returned != (state == "unknown") || !returned && state != "unstarted" {
				t.Fatalf("round %d: send %d is %s; Send has returned it: %v", round, id, state, returned)
			}
		}
	}
}
