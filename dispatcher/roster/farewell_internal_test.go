package roster

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
)

// deletion is an entry of the bucket.
type deletion struct {
	jetstream.KeyValueEntry
	key   string
	value string
	op    jetstream.KeyValueOp
}

func (d deletion) Key() string                     { return d.key }
func (d deletion) Value() []byte                   { return []byte(d.value) }
func (d deletion) Operation() jetstream.KeyValueOp { return d.op }

func TestFarewellsAreRead(t *testing.T) {
	const claim = `{"v":1,"settled_boot":"b1"}`
	for name, c := range map[string]struct {
		entry deletion
		want  int
	}{
		"all settled":        {deletion{key: "g.i", value: claim, op: jetstream.KeyValueDelete}, 1},
		"of an older SDK":    {deletion{key: "g.i", op: jetstream.KeyValueDelete}, 0},
		"not settled":        {deletion{key: "g.i", value: `{"v":1}`, op: jetstream.KeyValueDelete}, 0},
		"another version":    {deletion{key: "g.i", value: `{"v":2,"settled_boot":"b1"}`, op: jetstream.KeyValueDelete}, 0},
		"not a message":      {deletion{key: "g.i", value: "bye", op: jetstream.KeyValueDelete}, 0},
		"a purge":            {deletion{key: "g.i", value: claim, op: jetstream.KeyValuePurge}, 0},
		"not an instance":    {deletion{key: "g", value: claim, op: jetstream.KeyValueDelete}, 0},
		"a bad boot":         {deletion{key: "g.i", value: `{"v":1,"settled_boot":"\u0000"}`, op: jetstream.KeyValueDelete}, 0},
		"more than it needs": {deletion{key: "g.i", value: claim + fmt.Sprint(make([]int, goodbyeMax)), op: jetstream.KeyValueDelete}, 0},
	} {
		r := New(nil, slog.New(slog.DiscardHandler))
		r.farewell(c.entry)
		if got := r.Farewells(); len(got) != c.want || c.want == 1 && got[0] != (Farewell{"g", "i", "b1"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A boot is looked at several times, at first soon, and then no more.
func TestFarewellsAreLookedAtSeveralTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(nil, slog.New(slog.DiscardHandler))
		begun := time.Now()
		for range 2 { // the second one is a repetition
			r.farewell(deletion{key: "g.i", value: `{"v":1,"settled_boot":"b1"}`, op: jetstream.KeyValueDelete})
		}
		var looks []time.Duration
		for range 240 {
			if n := len(r.Farewells()); n > 1 {
				t.Fatalf("%d boots", n)
			} else if n == 1 {
				looks = append(looks, time.Since(begun))
			}
			time.Sleep(250 * time.Millisecond)
		}
		if got, want := fmt.Sprint(looks), "[0s 250ms 750ms 1.75s 3.75s 7.75s 15.75s]"; got != want {
			t.Errorf("looks %s, want %s", got, want)
		}
		if len(r.farewells) != 0 {
			t.Errorf("%d are kept", len(r.farewells))
		}
	})
}

// One group cannot keep others from being looked at.
func TestFarewellsAreBounded(t *testing.T) {
	r := New(nil, slog.New(slog.DiscardHandler))
	for i := range 2 * farewellsOfGroup {
		r.farewell(deletion{key: wire.InstanceKey("hostile", fmt.Sprint("i", i)), value: `{"v":1,"settled_boot":"b1"}`, op: jetstream.KeyValueDelete})
	}
	r.farewell(deletion{key: "g.i", value: `{"v":1,"settled_boot":"b1"}`, op: jetstream.KeyValueDelete})
	got := r.Farewells()
	if len(got) != farewellsOfGroup+1 || got[len(got)-1].Group != "g" {
		t.Errorf("%d boots, the last one %v", len(got), got[len(got)-1])
	}
	for i := range farewellsMax {
		r.farewell(deletion{key: wire.InstanceKey(fmt.Sprint("g", i), "i"), value: `{"v":1,"settled_boot":"b1"}`, op: jetstream.KeyValueDelete})
	}
	if len(r.farewells) != farewellsMax {
		t.Errorf("%d are kept, want %d", len(r.farewells), farewellsMax)
	}
}
