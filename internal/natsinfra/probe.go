package natsinfra

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	probeSubject = "belfry.v1.probe"
	probeBytes   = mib
	// A write of a few bytes may succeed on a disk that is full for all other streams. File systems allocate 4 KiB at a time, so
	// some of the next few probes of this size fail.
	probeSize = kib
)

// probe returns the stream that Write writes to. It is stored like the others, on disk and with as many copies, so that a probe fails
// for the same reasons. The stream keeps one message.
func probe(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              Probe,
		Description:       "The last message that a role wrote to find out whether JetStream accepts messages.",
		Subjects:          []string{probeSubject},
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardOld,
		MaxMsgsPerSubject: 1,
		MaxBytes:          probeBytes,
		MaxMsgSize:        64 * kib,
		Duplicates:        noDuplicates,
		Replicas:          replicas,
	}
}

// Write writes a small message to JetStream and waits until most copies of the stream have it. A nil error says that JetStream has
// a quorum and space. With an error that contains ErrNoStream, no server answers for the stream: it has no leader, it was deleted, or
// JetStream is off, as after a disk was full. All errors have the code unavailable.
func Write(ctx context.Context, js jetstream.JetStream) error {
	_, err := js.Publish(ctx, probeSubject, make([]byte, probeSize), jetstream.WithExpectStream(Probe), jetstream.WithRetryAttempts(0))
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return domain.WrapError(domain.Unavailable, "write to stream "+Probe, ErrNoStream)
	case err != nil:
		return domain.WrapError(domain.Unavailable, "write to stream "+Probe, err)
	}
	return nil
}

// ErrNoStream says that no server answers for a stream.
var ErrNoStream = errors.New("no server answers for the stream: it has no leader or was deleted, or JetStream is off")
