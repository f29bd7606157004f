package roster

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// silence is the time without a heartbeat after which the attempts of a boot may be declared lost. It exceeds LeaseTTL by
// half a second, because the clocks of two machines do not run at exactly the same rate.
const silence = wire.LeaseTTL + 500*time.Millisecond

// bootsMax is the maximum number of boots of one instance name in memory. Two processes may share a name by mistake. If there
// are more boots, verdicts about this name take longer. A hostile client can cause that only in its own group.
const bootsMax = 8

// voices records when the boots of one instance name were last heard.
type voices struct {
	boots []voice
	lost  time.Time // when a boot was dropped because there were more than bootsMax
	stray time.Time // when the key last had an acknowledgement that another client had directed to it
}

type voice struct {
	boot  string
	heard time.Time // monotonic
}

func (v *voices) hear(boot string, now time.Time) {
	for i := range v.boots {
		if v.boots[i].boot == boot {
			v.boots[i].heard = now
			return
		}
	}
	if len(v.boots) == bootsMax {
		v.boots, v.lost = append(v.boots[:0], v.boots[1:]...), now
	}
	v.boots = append(v.boots, voice{boot, now})
}

// last returns an upper bound of the time of the boot's last heartbeat that was received. A nil receiver has heard no boot.
func (v *voices) last(boot string) time.Time {
	if v == nil {
		return time.Time{}
	}
	for _, b := range v.boots {
		if b.boot == boot {
			return b.heard
		}
	}
	return v.lost
}

// old reports whether all recorded times are too old to affect a verdict.
func (v *voices) old(now time.Time) bool {
	for _, b := range v.boots {
		if now.Sub(b.heard) <= silence {
			return false
		}
	}
	return now.Sub(v.lost) > silence && now.Sub(v.stray) > silence
}

// sole returns the boot that was heard last, unless another one was heard not long before it: then two processes may share the name.
func (v *voices) sole() (boot string, ok bool) {
	var newest voice
	if v != nil {
		for _, b := range v.boots {
			if b.heard.After(newest.heard) {
				newest = b
			}
		}
		for _, b := range v.boots {
			if b.boot != newest.boot && newest.heard.Sub(b.heard) <= silence {
				return "", false
			}
		}
	}
	return newest.boot, newest.boot != ""
}

// Silent reports whether an instance's boot had been silent for long enough at the given time. That is the case if this
// process has received everything in the bucket's stream up to seq, and no heartbeat of the boot in the 10.5 s before
// that time. The period starts at the earliest when this process may last have missed a heartbeat.
func (r *Roster) Silent(group, name, boot string, seq uint64, at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() || r.seq < seq {
		return false
	}
	last := r.gap
	if heard := r.voices[key{group, name}].last(boot); heard.After(last) {
		last = heard
	}
	return at.Sub(last) >= silence
}

// overdue is the time without a heartbeat after which the next one should have arrived.
const overdue = wire.HeartbeatEvery + 200*time.Millisecond

// Doubtful reports whether a heartbeat of an instance's boot is overdue at a time when its absence proves nothing, because this
// process may have missed it since, or the bucket may have refused it.
func (r *Roster) Doubtful(group, name, boot string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	heard := r.voices[key{group, name}].last(boot)
	return !r.since.IsZero() && time.Since(heard) > overdue && r.gap.After(heard)
}

// CaughtUp reports whether this process has received everything in the bucket's stream up to seq.
func (r *Roster) CaughtUp(seq uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.since.IsZero() && r.seq >= seq
}

// beatAge is the maximum age of a heartbeat that an offer may rely on. The executor needs the rest of the 10 s to
// receive the offer and to start the attempt.
const beatAge = 7 * time.Second

// Beat returns the number of the newest heartbeat of an instance's boot, for offers to rely on. The caller must read it
// before the transaction that binds. ok is false if that heartbeat is too old or belongs to another boot. The number is
// 0 for an older executor; offers to it carry no beat.
func (r *Roster) Beat(group, name, boot string) (beat int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.instances[key{group, name}]
	if i == nil || i.beat.BootID != boot || !i.fresh() {
		return 0, false
	}
	return i.beat.Beat, true
}

// fresh reports whether offers may rely on the instance's newest heartbeat.
func (i *instance) fresh() bool {
	age := wire.LeaseTTL
	if i.beat.Beat != 0 {
		age = beatAge
	}
	return time.Since(i.seen) <= age
}

// complete records that the watch has received everything that was in the stream when it began. seq was the stream's
// last sequence then. If the previous watch had already received seq, no message came between the two watches.
// Otherwise this process may have missed a heartbeat, and the gap restarts.
func (r *Roster) complete(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gap.IsZero() || seq != r.heardUpTo {
		r.gap = time.Now()
	}
	r.since = time.Now()
	r.population.complete(r.since)
	r.once.Do(func() { close(r.known) })
	r.seq = max(seq, r.initial)
	r.heardUpTo = r.seq
}

// received records a message of a key and its sequence. boot is the boot whose heartbeat it is, or "" if it is neither a heartbeat
// nor a goodbye. The caller holds the mutex, because CaughtUp must not count the message before its boot is recorded.
//
// The gap restarts if the watch has skipped messages: a heartbeat was replaced or removed before its delivery, and it may have been of
// any instance. A client that writes its own key very often can cause that all the time: then package verdict has another rule.
func (r *Roster) received(k key, boot string, seq uint64) {
	now := time.Now()
	if live := !r.since.IsZero(); live && seq > r.seq+1 {
		r.gap = now
	}
	if boot != "" {
		v := r.voices[k]
		if v == nil {
			v = &voices{}
			r.voices[k] = v
		}
		v.hear(boot, now)
	}
	if r.since.IsZero() {
		r.initial = max(r.initial, seq)
		return
	}
	r.seq = max(r.seq, seq)
	r.heardUpTo = r.seq
}

// disturbed records a value that is not a heartbeat, and its sequence. The bucket refuses the heartbeats of the key's instance until the
// value is removed, so the gap restarts. The caller holds the mutex.
func (r *Roster) disturbed(k key, seq uint64) {
	r.received(k, "", seq)
	if !r.gap.IsZero() {
		r.gap = time.Now()
	}
}

// interrupted records that the watch has ended.
func (r *Roster) interrupted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.seq, r.initial = time.Time{}, 0, 0
}

// lastSeq returns the sequence of the last message in the bucket's stream.
func (r *Roster) lastSeq(ctx context.Context) (uint64, error) {
	s, err := r.js.Stream(ctx, "KV_"+wire.BucketInstances)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.LastSeq, nil
}
