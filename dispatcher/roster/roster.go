// Package roster knows which instances live and how loaded they are, from their heartbeats in the instance bucket
// and from the load that every answer and result carries.
//
// It also knows which heartbeat of an instance an offer may rely on, and for how long a boot has been silent: death verdicts
// need both, see package dispatcher.
//
// It is a view, never the truth: an instance that it shows may be dead, and Postgres decides what is bound to
// whom. It times instances out by itself, on its own monotonic clock, because the bucket tells its watchers of
// goodbyes but not of expiries. A value that is no heartbeat of a known version changes nothing, as an executor can
// have JetStream's acknowledgement of its own publish delivered to another group's key. It is told of: see Strange.
package roster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/dispatcher/route"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Roster is a live view of all instances. Make one with New and Run it. Safe for concurrent use.
type Roster struct {
	js   jetstream.JetStream
	log  *slog.Logger
	wake chan struct{} // capacity 1: an instance joined, or has more room
	redo chan struct{} // capacity 1: begin the watch anew

	strange chan Strange
	told    map[string]time.Time // when each key's strange value was told of; Run's own

	mu        sync.Mutex // guards what follows
	instances map[key]*instance
	voices    map[key]*voices
	since     time.Time // when the watch had all values; zero while there is none
	gap       time.Time // since then every heartbeat was received; zero before the first watch
	seq       uint64    // of the stream's message that the watch received last
	heardUpTo uint64    // the same, of the last watch where there is none
	initial   uint64    // the highest among the values that were there when the watch began
}

// Strange is a value in the bucket that is no heartbeat.
type Strange struct {
	Key    string
	Value  []byte
	Reason error
}

// What says strange things does so every few seconds, and one word of it is enough.
const (
	tellAgain = 10 * time.Minute
	toldMax   = 1000 // keys
)

type key struct{ group, name string }

type instance struct {
	beat    wire.Heartbeat
	load    wire.Load // the newest by Seq
	offered int       // slots offered since load was said
	seen    time.Time // of the last heartbeat, monotonic
	shunned time.Time // until then it gets nothing: it refused although it seemed to have room
}

// New returns an empty roster.
func New(js jetstream.JetStream, log *slog.Logger) *Roster {
	return &Roster{
		js: js, log: log, wake: make(chan struct{}, 1), redo: make(chan struct{}, 1), instances: make(map[key]*instance),
		voices:  make(map[key]*voices),
		strange: make(chan Strange, 16), told: make(map[string]time.Time),
	}
}

// Room signals that an instance joined or has more room than before.
func (r *Roster) Room() <-chan struct{} { return r.wake }

// Strange tells of values that are no heartbeats, of each key once in ten minutes. What nobody takes is dropped.
func (r *Roster) Strange() <-chan Strange { return r.strange }

// Reconnected makes the roster watch anew. The connection's owner calls it when NATS is back, as the bucket may
// have been made anew.
func (r *Roster) Reconnected() { lifecycle.Signal(r.redo) }

// Run watches the bucket until ctx ends.
func (r *Roster) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.watch(ctx); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "watching the instances; trying again", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			case <-r.redo:
			}
		}
	}
	return nil
}

func (r *Roster) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kv, err := r.js.KeyValue(ctx, wire.BucketInstances)
	if err != nil {
		return err
	}
	last, err := r.lastSeq(ctx) // read before the watch begins, which delivers what is there then and all that follows
	if err != nil {
		return err
	}
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer w.Stop() //nolint:errcheck // the subscription ends with ctx as well
	defer r.interrupted()
	sweep := time.NewTicker(time.Second)
	defer sweep.Stop()
	heard := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.redo:
			return nil
		case <-sweep.C:
			r.sweep()
			if time.Since(heard) > wire.LeaseTTL {
				// Nobody lives, or the bucket was made anew and the watch waits for a sequence that is far away.
				return nil
			}
		case e, ok := <-w.Updates():
			heard = time.Now()
			switch {
			case !ok:
				return nil
			case e == nil:
				r.complete(last)
			case e.Operation() == jetstream.KeyValuePut:
				r.beat(e.Key(), e.Value(), e.Revision())
			default:
				r.gone(e.Key(), e.Revision())
			}
		}
	}
}

// Since returns since when the watch is complete, the zero time while it is not.
func (r *Roster) Since() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since
}

func (r *Roster) beat(k string, value []byte, seq uint64) {
	b, err := heartbeat(k, value)
	if err != nil {
		group, name, _ := wire.SplitInstanceKey(k)
		r.mu.Lock()
		r.received(key{group, name}, "", seq)
		r.mu.Unlock()
		r.tell(Strange{k, value, err})
		return
	}
	group, name := b.Group, b.Instance
	load := possible(wire.Load{Capacity: b.Capacity, Running: b.Running, Seq: b.Seq, Draining: b.Draining})
	r.mu.Lock()
	r.received(key{group, name}, b.BootID, seq)
	old := r.instances[key{group, name}]
	if old == nil || old.beat.BootID != b.BootID {
		r.instances[key{group, name}] = &instance{beat: b, load: load, seen: time.Now()}
		r.mu.Unlock()
		lifecycle.Signal(r.wake)
		return
	}
	old.beat, old.seen = b, time.Now()
	r.mu.Unlock()
	r.Load(group, name, b.BootID, load)
}

// heartbeat reads a value of the bucket.
func heartbeat(k string, value []byte) (b wire.Heartbeat, err error) {
	group, name, ok := wire.SplitInstanceKey(k)
	if !ok {
		return b, errors.New("the key is not <group>.<instance>")
	}
	if err := wire.Decode(value, &b); err != nil {
		return b, err
	}
	if b.Group != group || b.Instance != name {
		return b, fmt.Errorf("group and instance are %q and %q, which the key does not say", b.Group, b.Instance)
	}
	switch {
	case !wire.ValidInstance(name):
		return b, fmt.Errorf("instance %.80q: a name has 1 to 128 letters, digits, _ and -, and begins with a letter or digit", name)
	case b.BootID == "" || len(b.BootID) > wire.MaxBootID:
		return b, fmt.Errorf("boot_id has %d bytes; 1 to %d are taken", len(b.BootID), wire.MaxBootID)
	}
	if b.Beat < 0 {
		return b, fmt.Errorf("beat is %d: heartbeats are counted from 1", b.Beat)
	}
	return b, nil
}

func (r *Roster) tell(s Strange) {
	now := time.Now()
	if at, ok := r.told[s.Key]; ok && now.Sub(at) < tellAgain {
		return
	}
	if len(r.told) >= toldMax {
		clear(r.told)
	}
	r.told[s.Key] = now
	select {
	case r.strange <- s:
	default:
	}
}

func (r *Roster) gone(k string, seq uint64) {
	group, name, ok := wire.SplitInstanceKey(k)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.received(key{group, name}, "", seq)
	if ok {
		delete(r.instances, key{group, name})
	}
}

func (r *Roster) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, i := range r.instances {
		if time.Since(i.seen) > wire.LeaseTTL {
			delete(r.instances, k)
		}
	}
	for k, v := range r.voices {
		if v.old(time.Now()) {
			delete(r.voices, k)
		}
	}
}

// slotsMax is more slots than an instance can have. What it says is cut to it, so that sums do not overflow.
const slotsMax = 1 << 20

func possible(l wire.Load) wire.Load {
	l.Capacity = min(max(l.Capacity, 0), slotsMax)
	l.Running = min(max(l.Running, 0), slotsMax)
	return l
}

// Load takes what an instance says of its slots, unless something newer of the same boot is known.
func (r *Roster) Load(group, name, boot string, load wire.Load) {
	load = possible(load)
	r.mu.Lock()
	i := r.instances[key{group, name}]
	if i == nil || i.beat.BootID != boot || load.Seq < i.load.Seq {
		r.mu.Unlock()
		return
	}
	before := i.load.Capacity - i.load.Running - i.offered
	i.load, i.offered = load, 0
	more := load.Capacity-load.Running > before
	r.mu.Unlock()
	if more {
		lifecycle.Signal(r.wake)
	}
}

// Offered notes that n slots of an instance were offered, until it says its load itself.
func (r *Roster) Offered(group, name, boot string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.instances[key{group, name}]; i != nil && i.beat.BootID == boot {
		i.offered += n
	}
}

// Shun keeps an instance from being chosen for a while, so that one which refuses although it seems to have room is
// not asked again and again.
func (r *Roster) Shun(group, name, boot string, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.instances[key{group, name}]; i != nil && i.beat.BootID == boot {
		i.shunned = time.Now().Add(d)
	}
}

// Drop forgets an instance that nobody answered for. Its next heartbeat brings it back.
func (r *Roster) Drop(group, name, boot string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.instances[key{group, name}]; i != nil && i.beat.BootID == boot {
		delete(r.instances, key{group, name})
	}
}

// Candidates returns the live, not draining instances of a group that offer the target (domain.JobSpec.Target).
// The caller owns the result.
func (r *Roster) Candidates(group, target string) []*route.Candidate {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*route.Candidate
	for k, i := range r.instances {
		if k.group != group || i.load.Draining || i.beat.Draining || !i.fresh() || !offers(&i.beat, target) ||
			time.Now().Before(i.shunned) {
			continue
		}
		out = append(out, &route.Candidate{
			Instance: k.name, BootID: i.beat.BootID, Beat: i.beat.Beat, Capacity: i.load.Capacity, Running: i.load.Running + i.offered,
		})
	}
	return out
}

// Offering returns the live instances of a group that offer the target, by name, be they candidates now or not.
func (r *Roster) Offering(group, target string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for k, i := range r.instances {
		if k.group == group && time.Since(i.seen) <= wire.LeaseTTL && offers(&i.beat, target) {
			out = append(out, k.name)
		}
	}
	slices.Sort(out)
	return out
}

func offers(b *wire.Heartbeat, target string) bool {
	return domain.Offers(b.Handlers, b.Languages, target)
}

// Boot returns the boot of an instance that lives, as far as is known here.
func (r *Roster) Boot(group, name string) (boot string, alive bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.instances[key{group, name}]
	if i == nil || time.Since(i.seen) > wire.LeaseTTL {
		return "", false
	}
	return i.beat.BootID, true
}

// Instances lists the live instances of a group, of all groups where it is "", by group and name.
func (r *Roster) Instances(group string) []domain.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []domain.Instance{}
	for k, i := range r.instances {
		if (group != "" && k.group != group) || time.Since(i.seen) > wire.LeaseTTL {
			continue
		}
		out = append(out, domain.Instance{
			ID: k.name, Group: k.group, BootID: i.beat.BootID, Handlers: i.beat.Handlers, Languages: i.beat.Languages,
			Capacity: i.load.Capacity, Running: i.load.Running, Draining: i.load.Draining || i.beat.Draining,
			Labels: i.beat.Labels, Version: i.beat.Version, Host: i.beat.Host, StartedAt: domain.At(i.beat.StartedAt.Time),
			SeenAt: domain.At(time.Now().Add(-time.Since(i.seen))),
		})
	}
	slices.SortFunc(out, func(a, b domain.Instance) int {
		if c := strings.Compare(a.Group, b.Group); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}
