package executor

import (
	"context"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

// errNameTaken means that another boot's heartbeat is stored under this instance's name.
var errNameTaken = errors.New("another process sends heartbeats under this instance's name")

// hold is the state of this boot's key in the bucket of instances. Only one process may hold the key, because two
// processes with one name would each declare the other's runs lost. A boot first takes the key over, so that a
// restarted process need not wait. After that, it writes the key only if the key holds its own last heartbeat or does
// not exist. The goroutine that runs link.beat owns hold; after it has ended, goodbye uses hold.
type hold struct {
	seq   uint64 // sequence number of the last acknowledged heartbeat; 0 before the first
	taken bool   // the last write was refused because another boot's heartbeat was stored
	// The last write has overwritten a value that was not a heartbeat.
	contested bool
	// A heartbeat that was sent and not acknowledged may be the stored one. As long as that is possible, this boot
	// takes the key over again instead of treating it as another boot's.
	unsure   bool
	unsureAt instant
}

// anySeq marks a heartbeat that overwrites the key unconditionally.
const anySeq = -1

// expectations returns the sequence numbers to try, in order. 0 stands for a key that has expired or was deleted with
// its storage.
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

// note records the outcome of a heartbeat that was sent at the given instant.
func (h *hold) note(sent instant, seq uint64, err error) {
	switch {
	case err == nil:
		*h = hold{seq: seq}
	case errors.Is(err, errNameTaken):
		h.taken, h.unsure = true, false
	// A stream without a quorum may store a heartbeat when it has a leader again, long after it was sent. So every further
	// failure extends the time.
	case h.seq != 0 && !h.taken && (h.unsure || maybeStored(err)):
		h.unsure, h.unsureAt = true, sent
	}
}

// maybeStored returns false for errors after which the message is certainly not in the stream.
func maybeStored(err error) bool {
	var refused *streamError
	return !errors.As(err, &refused) && !errors.Is(err, nats.ErrNoResponders) &&
		!errors.Is(err, nats.ErrReconnectBufExceeded) && !errors.Is(err, nats.ErrConnectionClosed)
}

// write writes the key. It returns errNameTaken if another boot holds the key.
func (l *link) write(ctx context.Context, sent instant, data []byte) error {
	var seq uint64
	var err error
	for _, expected := range l.hold.expectations(sent) {
		seq, err = l.store(ctx, l.keySubject(), expecting(expected), data)
		if !isWrongSequence(err) {
			break
		}
	}
	contested := false
	if at := l.overwrite.Load(); isWrongSequence(err) && at != nil && since(*at, sent) <= wire.LeaseTTL {
		contested = true
		seq, err = l.store(ctx, l.keySubject(), expecting(anySeq), data)
	}
	if isWrongSequence(err) {
		err = errNameTaken
	}
	l.hold.note(sent, seq, err)
	l.hold.contested = contested && err == nil
	l.silent.Store(l.hold.taken)
	return err
}

// expecting returns the header that makes a stream accept a message only if the last message on its subject has this
// sequence number.
func expecting(seq int64) nats.Header {
	if seq == anySeq {
		return nil
	}
	return nats.Header{nats.ExpectedLastSubjSeqHdr: []string{strconv.FormatInt(seq, 10)}}
}

// The error codes of a stream that expected another sequence number. It returns the second one while a message on the
// subject is in flight in a cluster.
const (
	codeWrongSequence       = 10071
	codeWrongSequenceOnRoad = 10164
)

func isWrongSequence(err error) bool {
	var refused *streamError
	return errors.As(err, &refused) && (refused.code == codeWrongSequence || refused.code == codeWrongSequenceOnRoad)
}
