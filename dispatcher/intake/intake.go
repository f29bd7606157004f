// Package intake takes messages from a JetStream consumer in batches, as results and logs are settled: a batch is
// whatever has come while the one before was worked on. What was fetched when the context ends is still handed on, so
// that only what a request on its way brings has to wait for its redelivery.
package intake

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// AckWait is how long a fetched message may stay unacknowledged before it is given to somebody else. Settling twice does
// no harm, and the results that a dead dispatcher had fetched keep verdicts about instances waiting for so long.
const AckWait = 10 * time.Second

// gatherTime is how long the first message of a batch waits for others.
const gatherTime = 2 * time.Millisecond

// requestTime is far longer than sending a request takes.
const requestTime = 100 * time.Millisecond

// ackPending bounds the messages that all takers together have fetched and not acknowledged.
const ackPending = 4000

// Run hands batches of up to limit messages of the durable consumer to handle, one batch at a time, until ctx ends. As
// much again is fetched meanwhile, and no more: what waits here for longer than AckWait comes again, and if that is
// because the work is slow, it makes more of it. Handle acknowledges what it is done with. The error says why the
// consumer cannot be read.
func Run(ctx context.Context, js jetstream.JetStream, stream, durable string, limit int, handle func(context.Context, []jetstream.Msg)) error {
	cons, err := js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: AckWait, MaxAckPending: ackPending,
	})
	if err != nil {
		return err
	}
	// Without a bound in bytes: each pull would then end with a word of its own, which finds no room behind a full batch,
	// and pushes a message out. Messages have a megabyte at most.
	iter, err := cons.Messages(jetstream.PullMaxMessages(limit), jetstream.PullHeartbeat(5*time.Second))
	if err != nil {
		return err
	}
	msgs := make(chan jetstream.Msg)
	ended := make(chan error, 1)
	go func() {
		defer close(msgs)
		for {
			m, err := next(iter)
			if err != nil {
				ended <- err
				return
			}
			msgs <- m
		}
	}()
	stop := context.AfterFunc(ctx, iter.Drain)
	defer stop()
	for open := true; open; {
		var batch []jetstream.Msg
		if batch, open = gather(msgs, limit); len(batch) > 0 {
			handle(context.WithoutCancel(ctx), batch)
		}
	}
	iter.Stop()
	if err := <-ended; !errors.Is(err, jetstream.ErrMsgIteratorClosed) {
		return err
	}
	return nil
}

// next waits for a message. The iterator asks the server for more only as Next begins or has a message, and not while its
// last request is being sent: where all that was asked for has come by then, nothing makes it ask again, and it would be
// silent until it misses a heartbeat. So a wait begins twice, the second time when no request can be on its way any more.
func next(iter jetstream.MessagesContext) (jetstream.Msg, error) {
	m, err := iter.Next(jetstream.NextMaxWait(requestTime))
	if errors.Is(err, nats.ErrTimeout) {
		m, err = iter.Next()
	}
	return m, err
}

// gather waits for one message and takes what has come by then. It reports whether there will be more.
func gather(msgs <-chan jetstream.Msg, limit int) (batch []jetstream.Msg, open bool) {
	m, ok := <-msgs
	if !ok {
		return nil, false
	}
	batch = append(batch, m)
	timer := time.NewTimer(gatherTime)
	defer timer.Stop()
	for len(batch) < limit {
		select {
		case m, ok := <-msgs:
			if !ok {
				return batch, false
			}
			batch = append(batch, m)
		case <-timer.C:
			return batch, true
		}
	}
	return batch, true
}
