package intake

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// AckWait is the time after which JetStream delivers an unacknowledged message again, possibly to another dispatcher. A
// message that is settled twice does no harm. If a dispatcher dies, verdicts about instances wait this long for the
// results that it had fetched.
const AckWait = 10 * time.Second

// gatherTime is how long the first message of a batch waits for more messages.
const gatherTime = 2 * time.Millisecond

// requestTime is how long the first wait of next lasts. Sending a request takes much less time.
const requestTime = 100 * time.Millisecond

// ackPending bounds the messages that all dispatchers together have fetched but not acknowledged.
const ackPending = 4000

// Run passes batches of up to limit messages of the durable consumer to handle, one batch at a time, until ctx ends. A batch
// holds the messages that arrived while the previous one was handled. When the context ends, Run still handles the messages
// that it has fetched. Only messages of a request in flight must wait for their redelivery.
//
// While a batch is handled, Run fetches at most limit further messages. JetStream redelivers messages that wait here for
// longer than AckWait, and redelivery would add work when handling is slow. handle must acknowledge the messages. Run
// returns an error if it cannot read the consumer.
func Run(ctx context.Context, js jetstream.JetStream, stream, durable string, limit int, handle func(context.Context, []jetstream.Msg)) error {
	cons, err := js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: AckWait, MaxAckPending: ackPending,
	})
	if err != nil {
		return err
	}
	// The pull has no bound in bytes. With one, each pull would end with a status message, which finds no room behind a
	// full batch and displaces a message. A message has at most one megabyte.
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

// next waits for a message. The iterator requests more messages only when Next begins or has a message, and not while
// its last request is being sent. If all requested messages have arrived by then, nothing triggers the next request,
// and the iterator blocks until it misses a heartbeat. next therefore starts the wait twice. At the second start, no
// request can be in flight.
func next(iter jetstream.MessagesContext) (jetstream.Msg, error) {
	m, err := iter.Next(jetstream.NextMaxWait(requestTime))
	if errors.Is(err, nats.ErrTimeout) {
		m, err = iter.Next()
	}
	return m, err
}

// gather waits for one message and collects further ones for gatherTime. open reports whether more messages may follow.
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
