package roster

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// A Farewell is a boot that said goodbye with all its attempts settled. No attempt starts in it any more.
type Farewell struct{ Group, Instance, BootID string }

// farewell is a Farewell with the time of the next look at the attempts that are bound to the boot.
type farewell struct {
	Farewell
	next time.Time
	wait time.Duration
}

const (
	// A process that has not received the goodbye yet may still bind attempts to the boot. So the dispatcher looks several
	// times: at once, and then at doubling distances, for about 16 s. A process binds only to boots whose last heartbeat is at
	// most 7 s old. An attempt that is missed nevertheless is found by the death verdict.
	firstLook = 250 * time.Millisecond
	lastLook  = 8 * time.Second

	// A hostile client can say goodbye only in its own group, and causes at most this many looks at a time.
	farewellsOfGroup = 64
	farewellsMax     = 4096
	goodbyeMax       = 1 << 10 // bytes
)

// farewell records the goodbye of an instance if it says that all attempts of the boot are settled.
func (r *Roster) farewell(e jetstream.KeyValueEntry) {
	if e.Operation() != jetstream.KeyValueDelete || len(e.Value()) == 0 || len(e.Value()) > goodbyeMax {
		return
	}
	group, name, ok := wire.SplitInstanceKey(e.Key())
	var m wire.Goodbye
	if !ok || !wire.ValidInstance(name) || !domain.ValidGroupName(group) || wire.Decode(e.Value(), &m) != nil || !wire.ValidBootID(m.SettledBoot) {
		return // an ordinary goodbye
	}
	f := Farewell{group, name, m.SettledBoot}
	r.mu.Lock()
	defer r.mu.Unlock()
	ofGroup := 0
	for _, known := range r.farewells {
		if known.Farewell == f {
			return
		}
		if known.Group == group {
			ofGroup++
		}
	}
	if ofGroup < farewellsOfGroup && len(r.farewells) < farewellsMax {
		r.farewells = append(r.farewells, farewell{f, time.Now(), firstLook})
	}
}

// Farewells returns the boots that have said goodbye and that the caller should look at now. Each boot is returned several times.
// The caller may route every attempt again that is bound to such a boot and is not known to have started there.
func (r *Roster) Farewells() (due []Farewell) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.farewells[:0]
	for _, f := range r.farewells {
		if !now.Before(f.next) {
			due = append(due, f.Farewell)
			f.next, f.wait = now.Add(f.wait), 2*f.wait
		}
		if f.wait <= 2*lastLook {
			kept = append(kept, f)
		}
	}
	r.farewells = kept
	return due
}
