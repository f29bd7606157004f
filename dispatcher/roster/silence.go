package roster

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// silence is for how long no heartbeat of a boot must have been received before its attempts may be declared lost. The
// half second more than LeaseTTL is for clocks of two machines that do not run at the same rate.
const silence = wire.LeaseTTL + 500*time.Millisecond

// bootsMax bounds the boots that are remembered of one instance name. Two processes may share a name by mistake. With more
// boots than the bound, verdicts about this name take longer; a hostile client can do that to its own group only.
const bootsMax = 8

// voices remembers when the boots of one instance name were last heard.
type voices struct {
	boots []voice
	lost  time.Time // when a boot was dropped, as there were more than bootsMax
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

// hearAll takes all boots as heard, as a heartbeat of any of them may have been missed.
func (v *voices) hearAll(now time.Time) {
	for i := range v.boots {
		v.boots[i].heard = now
	}
}

// last returns when the boot was heard last, as far as is remembered: it was not heard later.
func (v *voices) last(boot string) time.Time {
	for _, b := range v.boots {
		if b.boot == boot {
			return b.heard
		}
	}
	return v.lost
}

// old reports whether nothing that is remembered matters any more.
func (v *voices) old(now time.Time) bool {
	for _, b := range v.boots {
		if now.Sub(b.heard) <= silence {
			return false
		}
	}
	return now.Sub(v.lost) > silence
}

// Silent reports whether an instance's boot had been silent for long enough at the given moment: this process has
// received everything that the bucket's stream held up to seq, and no heartbeat of the boot in the 10 s before that moment.
// The 10 s count from when this process began to receive heartbeats without a gap.
func (r *Roster) Silent(group, name, boot string, seq uint64, at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() || r.seq < seq {
		return false
	}
	last := r.gap
	if v := r.voices[key{group, name}]; v != nil {
		if heard := v.last(boot); heard.After(last) {
			last = heard
		}
	}
	return at.Sub(last) >= silence
}

// CaughtUp reports whether this process has received everything that the bucket's stream held up to seq.
func (r *Roster) CaughtUp(seq uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.since.IsZero() && r.seq >= seq
}

// beatAge is how old a heartbeat may be for an offer to rely on it. The executor has the rest of the 10 s to receive the
// offer and start the attempt.
const beatAge = 7 * time.Second

// Beat returns the number of the newest heartbeat of an instance's boot, for offers to rely on. The caller reads it before
// the transaction that binds. It is not ok if that heartbeat is too old, or another boot's. 0 is an older executor's, whose
// offers carry no beat.
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

// complete notes that all that the stream held up to seq when the watch began has been received. Where the last watch had
// received just that, nothing came between the two; otherwise a heartbeat may have come and gone unheard.
func (r *Roster) complete(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gap.IsZero() || seq != r.heardUpTo {
		r.gap = time.Now()
	}
	r.since = time.Now()
	r.seq = max(seq, r.initial)
	r.heardUpTo = r.seq
}

// received notes a message of a key, with its sequence, and the boot whose heartbeat it is, "" if it is none. The mutex is
// held: CaughtUp must not count the message before its boot is noted.
//
// A message replaces the one before it on its key. If the watch has passed over messages, one of them may have been a
// heartbeat of that key that was replaced before it could be delivered. The boots that were heard under the key count as
// heard now, unless the newest message is of the same boot, and so later than whatever it replaced.
func (r *Roster) received(k key, boot string, seq uint64) {
	now := time.Now()
	v := r.voices[k]
	if live := !r.since.IsZero(); live && seq > r.seq+1 && v != nil && !(len(v.boots) == 1 && v.boots[0].boot == boot) {
		v.hearAll(now)
	}
	if boot != "" {
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

// interrupted notes that the watch has ended.
func (r *Roster) interrupted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.seq, r.initial = time.Time{}, 0, 0
}

// lastSeq returns the sequence of the newest message in the bucket's stream.
func (r *Roster) lastSeq(ctx context.Context) (uint64, error) {
	s, err := r.js.Stream(ctx, "KV_"+wire.BucketInstances)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.LastSeq, nil
}
