package executor

import "github.com/belfryhq/belfry/executor/wire"

// beatsRemembered bounds the remembered heartbeats. The executor sends a heartbeat every 3 s, and at once after a
// reconnection or a drain, so about ten of them are recent enough for an offer to rely on.
const beatsRemembered = 64

// beats numbers the heartbeats of one boot and records when the sending of each began. An offer names the heartbeat
// that it relies on, so this table alone decides how long the attempt may still start: see "The fence" in doc.go.
type beats struct {
	last int64
	sent []sentBeat // those younger than wire.LeaseTTL, in order
}

type sentBeat struct {
	beat int64
	at   instant
}

// next returns the number of the next heartbeat. The caller sends that heartbeat after now.
func (b *beats) next(now instant) int64 {
	old := 0
	for old < len(b.sent) && expired(b.sent[old].at, now) {
		old++
	}
	old = max(old, len(b.sent)-beatsRemembered+1)
	b.sent = append(b.sent[:0], b.sent[old:]...)
	b.last++
	b.sent = append(b.sent, sentBeat{b.last, now})
	return b.last
}

// sentAt returns when the sending of a heartbeat began. ok is false if the number is unknown or if no attempt may start
// on that heartbeat any more.
func (b *beats) sentAt(beat int64, now instant) (at instant, ok bool) {
	for i := len(b.sent) - 1; i >= 0; i-- {
		if s := &b.sent[i]; s.beat == beat {
			return s.at, !expired(s.at, now)
		}
	}
	return instant{}, false
}

// expired reports whether an attempt may no longer start on a heartbeat whose sending began at the given instant.
func expired(sent, now instant) bool { return since(sent, now) >= wire.LeaseTTL }
