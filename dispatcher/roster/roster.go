// Package roster tracks the live instances and their load. It reads the heartbeats in the instance bucket and the load
// in every answer and result.
// The roster also tracks which heartbeat of an instance an offer may rely on, and how long a boot has been silent.
// Death verdicts need both: see package dispatcher.
//
// A group's newest instances beyond its limit are not part of the roster, and a Guard removes their heartbeats from the
// bucket.
//
// The roster is only a view. An instance in it may be dead, and Postgres decides which attempt is bound to which
// instance. The roster expires instances itself, on its own monotonic clock, because the bucket notifies watchers of
// deletions but not of expiries. The roster ignores values that are not heartbeats of a known version, and reports them: see
// Malformed. Such values can occur because an executor can direct JetStream's acknowledgement of its publish to another
// group's key.
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

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/dispatcher/route"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Roster is a live view of all instances. Create one with New, then call Run. It is safe for concurrent use.
type Roster struct {
	js   jetstream.JetStream
	log  *slog.Logger
	wake chan struct{} // capacity 1: an instance joined or has more room
	redo chan struct{} // capacity 1: restart the watch
	news chan struct{} // capacity 1: a group has its first instance
	once sync.Once     // guards the closing of known

	known chan struct{} // closed when a watch has received all values for the first time

	astray chan struct{} // capacity 1: strays has a key

	malformed chan Malformed
	reported  map[string]time.Time // when each key's malformed value was last reported; used only by Run
	reports   map[string]int       // number of values reported of each group since reportsAt; used only by Run
	reportsAt time.Time

	mu         sync.Mutex // guards the fields below
	instances  map[key]*instance
	voices     map[key]*voices
	farewells  []farewell
	strays     map[key]uint64 // keys of instances that hold a misdirected acknowledgement, with its sequence
	population population
	most       map[string]int // max_instances of groups that are known
	since      time.Time      // when the watch had received all values; zero without a complete watch
	gap        time.Time      // every heartbeat since then was stored and received; zero before the first watch
	seq        uint64         // stream sequence of the last message that the watch received
	heardUpTo  uint64         // the same, kept after the watch has ended
	initial    uint64         // the highest sequence among the initial values of the watch
}

// Malformed is a value in the bucket that is not a heartbeat.
type Malformed struct {
	Key    string
	Value  []byte
	Reason error
}

// A faulty writer repeats its value every few seconds, so each key is reported once per reportAgain.
const (
	reportAgain = 10 * time.Minute
	reportedMax = 1000 // keys
	reportsMax  = 100  // of one group in reportAgain, so that one group does not fill the dead letters of all groups
)

type key struct{ group, name string }

type instance struct {
	beat    wire.Heartbeat
	load    wire.Load // the newest by Seq
	offered int       // slots offered since load was reported
	seen    time.Time // time of the last heartbeat, monotonic
	shunned time.Time // gets no offers until then, because it refused an offer although it seemed to have room
	refused string    // the reason of that refusal
}

// New returns an empty roster.
func New(js jetstream.JetStream, log *slog.Logger) *Roster {
	return &Roster{
		js: js, log: log, wake: make(chan struct{}, 1), redo: make(chan struct{}, 1),
		news: make(chan struct{}, 1), known: make(chan struct{}), instances: make(map[key]*instance),
		voices: make(map[key]*voices),
		strays: make(map[key]uint64), astray: make(chan struct{}, 1),
		population: population{groups: make(map[string]map[string]*resident)},
		malformed:  make(chan Malformed, 16), reported: make(map[string]time.Time), reports: make(map[string]int),
	}
}

// Room returns a channel that signals that an instance joined or has more room than before.
func (r *Roster) Room() <-chan struct{} { return r.wake }

// Known returns a channel that is closed when the roster has received the heartbeats of all instances for the first time.
func (r *Roster) Known() <-chan struct{} { return r.known }

// Malformed returns a channel of values that are not heartbeats, at most one per key in ten minutes. If the receiver is
// too slow, values are dropped.
func (r *Roster) Malformed() <-chan Malformed { return r.malformed }

// Reconnected makes the roster restart its watch. The owner of the connection calls it after a reconnection to NATS,
// because the bucket may have been recreated.
func (r *Roster) Reconnected() { lifecycle.Signal(r.redo) }

// Run watches the bucket until ctx ends.
func (r *Roster) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.watch(ctx); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "cannot watch the heartbeats, retrying", "err", err)
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
	last, err := r.lastSeq(ctx) // read before the watch begins; the watch delivers the values at its start and all later messages
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
				// There are no instances, or the bucket was recreated and the watch waits for a much higher sequence.
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
				r.farewell(e)
				r.gone(e.Key(), e.Revision())
			}
		}
	}
}

func (r *Roster) beat(k string, value []byte, seq uint64) {
	if len(value) > wire.MaxHeartbeat {
		r.reject(k, value, seq) // it is not stored as a dead letter, because it is large
		return
	}
	b, err := heartbeat(k, value)
	if err != nil && intake.IsAcknowledgement(value) {
		r.misdirected(k, seq)
		r.report(Malformed{k, value, intake.ErrAcknowledgement})
		return
	}
	if err != nil {
		r.reject(k, value, seq)
		r.report(Malformed{k, value, err})
		return
	}
	group, name := b.Group, b.Instance
	load := possible(wire.Load{Capacity: b.Capacity, Running: b.Running, Seq: b.Seq, Draining: b.Draining})
	r.mu.Lock()
	r.received(key{group, name}, b.BootID, seq)
	r.put(key{group, name}, seq, len(value), b.StartedAt.Time)
	if r.population.exceeds(key{group, name}, r.limit(group), time.Now()) {
		delete(r.instances, key{group, name})
		r.mu.Unlock()
		return
	}
	old := r.instances[key{group, name}]
	if old == nil || old.beat.BootID != b.BootID {
		r.instances[key{group, name}] = &instance{beat: b, load: load, seen: time.Now()}
		r.mu.Unlock()
		lifecycle.Signal(r.wake)
		return
	}
	recovered := old.beat.Unfit != nil && b.Unfit == nil
	old.beat, old.seen = b, time.Now()
	r.mu.Unlock()
	if recovered {
		lifecycle.Signal(r.wake)
	}
	r.Load(group, name, b.BootID, load)
}

// reject records a value that is not used as a heartbeat.
func (r *Roster) reject(k string, value []byte, seq uint64) {
	group, name, ok := wire.SplitInstanceKey(k)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disturbed(key{group, name}, seq)
	// The guard uses the name as a purge filter, so a name with a wildcard must not be recorded.
	if ok && wire.ValidInstance(name) && domain.ValidGroupName(group) {
		r.put(key{group, name}, seq, len(value), time.Time{})
	}
}

// straysMax bounds the recorded keys that no instance is known to use.
const straysMax = 64

// misdirected records an acknowledgement that an executor, possibly of another group, has directed to a key. As long as it is
// stored there, the bucket refuses the heartbeats of the key's instance, so the guard removes it at once. The key does not count as an
// instance of its group.
func (r *Roster) misdirected(k string, seq uint64) {
	group, name, ok := wire.SplitInstanceKey(k)
	at := key{group, name}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disturbed(at, seq)
	v := r.voices[at]
	if v != nil {
		v.stray = time.Now()
	}
	if v == nil && (len(r.strays) >= straysMax || !ok || !wire.ValidInstance(name) || !domain.ValidGroupName(group)) {
		return
	}
	r.strays[at] = seq
	lifecycle.Signal(r.astray)
}

// stray is a key with a misdirected acknowledgement.
type stray struct {
	key
	seq  uint64
	boot string // the only boot that was heard under the key; "" if there are several or none
}

// takeStrays returns the keys with a misdirected acknowledgement, and forgets them.
func (r *Roster) takeStrays() (taken []stray) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, seq := range r.strays {
		boot, _ := r.voices[k].sole()
		taken = append(taken, stray{k, seq, boot})
	}
	clear(r.strays)
	return taken
}

// heartbeat decodes and checks a value of the bucket.
func heartbeat(k string, value []byte) (b wire.Heartbeat, err error) {
	group, name, ok := wire.SplitInstanceKey(k)
	if !ok {
		return b, errors.New("the key is not <group>.<instance>")
	}
	if err := wire.Decode(value, &b); err != nil {
		return b, err
	}
	if b.Group != group || b.Instance != name {
		return b, fmt.Errorf("group %q and instance %q do not match the key", b.Group, b.Instance)
	}
	switch {
	case !wire.ValidInstance(name):
		return b, fmt.Errorf("instance %.80q: a name has 1 to 128 letters, digits, _ and -, and begins with a letter or digit", name)
	case !wire.ValidBootID(b.BootID):
		return b, fmt.Errorf("boot_id %.80q: it has 1 to %d bytes of UTF-8 without control characters", b.BootID, wire.MaxBootID)
	}
	if b.Beat < 0 {
		return b, fmt.Errorf("beat is %d: heartbeats are counted from 1", b.Beat)
	}
	return b, nil
}

func (r *Roster) report(s Malformed) {
	now := time.Now()
	if at, ok := r.reported[s.Key]; ok && now.Sub(at) < reportAgain {
		return
	}
	if now.Sub(r.reportsAt) >= reportAgain {
		clear(r.reports)
		r.reportsAt = now
	}
	group, _, _ := strings.Cut(s.Key, ".")
	if r.reports[group] >= reportsMax || len(r.reports) >= reportedMax && r.reports[group] == 0 {
		return
	}
	if len(r.reported) >= reportedMax {
		clear(r.reported)
	}
	r.reports[group]++
	r.reported[s.Key] = now
	select {
	case r.malformed <- s:
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
		r.population.delete(key{group, name}, seq)
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
	r.population.sweep(time.Now())
	for k, v := range r.voices {
		if v.old(time.Now()) {
			delete(r.voices, k)
		}
	}
}

// slotsMax is more than the slots of any instance. Reported values are limited to it, so that sums do not overflow.
const slotsMax = 1 << 20

func possible(l wire.Load) wire.Load {
	l.Capacity = min(max(l.Capacity, 0), slotsMax)
	l.Running = min(max(l.Running, 0), slotsMax)
	return l
}

// Load records the load that an instance reports, unless a newer load of the same boot is known.
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

// Offered records that n slots of an instance were offered. They count until the instance reports its load.
func (r *Roster) Offered(group, name, boot string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.instances[key{group, name}]; i != nil && i.beat.BootID == boot {
		i.offered += n
	}
}

// Shun excludes an instance from the candidates for d. The dispatcher then does not keep asking an instance that
// refuses offers although it seems to have room. The reason is that of the refusal.
func (r *Roster) Shun(group, name, boot, reason string, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.instances[key{group, name}]; i != nil && i.beat.BootID == boot {
		i.shunned, i.refused = time.Now().Add(d), reason
	}
}

// Drop removes an instance that did not answer. Its next heartbeat adds it again.
func (r *Roster) Drop(group, name, boot string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.instances[key{group, name}]; i != nil && i.beat.BootID == boot {
		delete(r.instances, key{group, name})
	}
}

// Candidates returns the live instances of a group that offer the target (domain.JobSpec.Target), are not draining
// and report no problem.
// The caller owns the result.
func (r *Roster) Candidates(group, target string) []*route.Candidate {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*route.Candidate
	for k, i := range r.instances {
		if k.group != group || i.draining() || i.beat.Unfit != nil || !i.fresh() || !offers(&i.beat, target) ||
			time.Now().Before(i.shunned) {
			continue
		}
		out = append(out, &route.Candidate{
			Instance: k.name, BootID: i.beat.BootID, Beat: i.beat.Beat, Capacity: i.load.Capacity, Running: i.load.Running + i.offered,
		})
	}
	return out
}

// Absence returns why a group has no candidate for a target.
func (r *Roster) Absence(group, target string) route.Absence {
	r.mu.Lock()
	defer r.mu.Unlock()
	absence, draining, unfit := route.NoInstance, false, false
	for k, i := range r.instances {
		if k.group != group || time.Since(i.seen) > wire.LeaseTTL {
			continue
		}
		absence = route.NoOffer
		if offers(&i.beat, target) {
			switch {
			case i.draining():
				draining = true
			case i.beat.Unfit != nil:
				unfit = true
			default:
				return route.NoOffer // it refused offers, or its heartbeat is too old for one
			}
		}
	}
	switch {
	case unfit:
		return route.AllUnfit
	case draining:
		return route.AllDrain
	}
	return absence
}

// Offering returns the names of all live instances of a group that offer the target, sorted. It includes instances that
// are not candidates now.
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
	return domain.Offers(b.Handlers, b.Languages, b.Lacks, target)
}

// Boot returns the boot of an instance, if the instance is alive in the roster.
func (r *Roster) Boot(group, name string) (boot string, alive bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.instances[key{group, name}]
	if i == nil || time.Since(i.seen) > wire.LeaseTTL {
		return "", false
	}
	return i.beat.BootID, true
}

// Instances lists the live instances of a group, or of all groups if group is "", sorted by group and name.
func (r *Roster) Instances(group string) []domain.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []domain.Instance{}
	for k, i := range r.instances {
		if (group != "" && k.group != group) || time.Since(i.seen) > wire.LeaseTTL {
			continue
		}
		out = append(out, domain.Instance{
			ID: k.name, Group: k.group, BootID: i.beat.BootID, Handlers: i.beat.Handlers, Languages: i.beat.Languages, Lacks: i.beat.Lacks,
			Capacity: i.load.Capacity, Running: i.load.Running, Draining: i.draining(),
			Labels: i.beat.Labels, Version: i.beat.Version, Host: i.beat.Host, StartedAt: domain.At(i.beat.StartedAt.Time),
			SeenAt: domain.At(time.Now().Add(-time.Since(i.seen))), NotOffered: i.notOffered(time.Now()),
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
