package executor

import (
	"context"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

// errNameTaken says that the heartbeat of another boot stands under this instance's name.
var errNameTaken = errors.New("another process sends heartbeats under this instance's name")

// hold is what this boot knows of its key in the bucket of instances. Two processes of one name would each take the
// runs of the other for lost, so only one may hold the key: a boot takes it over, as a restarted process must not wait,
// and from then on writes it only where its own last heartbeat stands, or none. The goroutine that beats owns it, and
// goodbye after that one has ended.
type hold struct {
	seq   uint64 // of the last heartbeat that was acknowledged; 0 before the first
	taken bool   // another boot's heartbeat stood there when this one was last refused
	// A heartbeat that was sent and not acknowledged may be what stands there. For as long as it can, the key is taken
	// over once more rather than taken for another's.
	unsure   bool
	unsureAt instant
}

// anySeq stands for a heartbeat that does not ask what stands under the key.
const anySeq = -1

// expectations are the sequence numbers to try one after the other; 0 is a key that ran out or was deleted with its
// storage.
func (h *hold) expectations(now instant) []int64 {
	if h.seq == 0 {
		return []int64{anySeq}
	}
	seqs := []int64{int64(h.seq), 0}
	if h.unsure && since(h.unsureAt, now) <= wire.LeaseTTL {
		seqs = append(seqs, anySeq)
	}
	return seqs
}

// note takes in what became of a heartbeat sent at the given instant.
func (h *hold) note(sent instant, seq uint64, err error) {
	switch {
	case err == nil:
		*h = hold{seq: seq}
	case errors.Is(err, errNameTaken):
		h.taken, h.unsure = true, false
	case h.seq != 0 && !h.taken && maybeStored(err):
		h.unsure, h.unsureAt = true, sent
	}
}

// maybeStored is false for errors that say that a message did not reach its stream.
func maybeStored(err error) bool {
	var refused *streamError
	return !errors.As(err, &refused) && !errors.Is(err, nats.ErrNoResponders) &&
		!errors.Is(err, nats.ErrReconnectBufExceeded) && !errors.Is(err, nats.ErrConnectionClosed)
}

// write writes the key. The error is errNameTaken when another boot holds it.
func (l *link) write(ctx context.Context, sent instant, data []byte) error {
	var seq uint64
	var err error
	for _, expected := range l.hold.expectations(sent) {
		seq, err = l.store(ctx, l.keySubject(), expecting(expected), data)
		if !isWrongSequence(err) {
			break
		}
	}
	if isWrongSequence(err) {
		err = errNameTaken
	}
	l.hold.note(sent, seq, err)
	l.silent.Store(l.hold.taken)
	return err
}

// expecting is the header by which a stream takes a message only if the last one on its subject has this sequence number.
func expecting(seq int64) nats.Header {
	if seq == anySeq {
		return nil
	}
	return nats.Header{nats.ExpectedLastSubjSeqHdr: []string{strconv.FormatInt(seq, 10)}}
}

// The codes by which a stream says that another sequence number was expected; the latter while a message on the
// subject is on its way through a cluster.
const (
	codeWrongSequence       = 10071
	codeWrongSequenceOnRoad = 10164
)

func isWrongSequence(err error) bool {
	var refused *streamError
	return errors.As(err, &refused) && (refused.code == codeWrongSequence || refused.code == codeWrongSequenceOnRoad)
}
