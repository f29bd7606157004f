package results

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// overflow is a dispatcher's state of the overflow stream. Results move there if a group exceeds its share of the dispatcher's
// memory. The stream limits the number of messages per group. Small results are packed into large messages, so the limit is
// also an effective limit in bytes.
type overflow struct {
	mu   sync.Mutex
	full map[string]time.Time // when the stream refused a group's results
}

const (
	publishTimeout = 5 * time.Second
	fullFor        = time.Second // how long a refusal of a group's results is cached
	spillAgain     = 2 * time.Second
	readPeriod     = time.Second
	readGroups     = 4  // groups that are read at the same time
	readMessages   = 16 // messages of one group that are read at once
	unusedConsumer = time.Minute
)

// packed is the first byte of a message with several parts. No JSON text begins with it. Each part follows its length in four bytes.
const packed = 0

// spill moves messages of a group to the overflow stream. If the stream refuses them, it acknowledges them: they are not settled, so
// their executors keep them and send them again.
func (c *Consumer) spill(ctx context.Context, msgs []*intake.Message) {
	for len(msgs) > 0 {
		data, n := pack(msgs)
		now := msgs[:n]
		msgs = msgs[n:]
		group := now[0].Group
		outcome := intake.NotSettled
		if !c.overflow.isFull(group) {
			stored, refused := c.publishOverflow(ctx, group, data)
			switch {
			case stored:
				outcome = intake.Overflowed
			case refused:
				c.overflow.note(group)
			default:
				for _, m := range now {
					_ = m.NakWithDelay(spillAgain) // if this fails, JetStream delivers the message after AckWait
				}
				continue
			}
		}
		c.fair.Count(group, outcome, n)
		for _, m := range now {
			_ = m.Ack() // if this fails, the message is delivered again and changes nothing
		}
	}
}

// shed acknowledges a result for which there is no room. It is not settled, so its executor keeps it and sends it again.
func (c *Consumer) shed(m *intake.Message) {
	c.fair.Count(m.Group, intake.NotSettled, 1)
	_ = m.Ack()
}

// publishOverflow stores a message in the overflow stream. If it is neither stored nor refused, NATS did not answer.
func (c *Consumer) publishOverflow(ctx context.Context, group string, data []byte) (stored, refused bool) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	_, err := c.JetStream.Publish(ctx, wire.OverflowSubject(group), data)
	var api *jetstream.APIError
	return err == nil, errors.As(err, &api)
}

func (o *overflow) isFull(group string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, refused := o.full[group]
	if refused && time.Since(at) >= fullFor {
		delete(o.full, group)
		return false
	}
	return refused
}

func (o *overflow) note(group string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.full[group] = time.Now()
}

// pack returns a message with the data of the first n messages. It returns a single message unchanged, so that a message of the
// maximum size still fits.
func pack(msgs []*intake.Message) (data []byte, n int) {
	size := 1
	for _, m := range msgs {
		if size += 4 + len(m.Data()); size > wire.MaxMessageBytes {
			break
		}
		n++
	}
	if n < 2 {
		return msgs[0].Data(), 1
	}
	data = append(make([]byte, 0, wire.MaxMessageBytes), packed)
	for _, m := range msgs[:n] {
		data = binary.BigEndian.AppendUint32(data, uint32(len(m.Data())))
		data = append(data, m.Data()...)
	}
	return data, n
}

// parts returns the messages that a message contains.
func parts(m *intake.Message) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		data := m.Data()
		if len(data) == 0 || data[0] != packed || m.Subject() != wire.OverflowSubject(m.Group) {
			yield(data)
			return
		}
		for data = data[1:]; len(data) > 0; {
			n := len(data)
			if n >= 4 {
				n = int(min(binary.BigEndian.Uint32(data), uint32(n-4))) + 4
			}
			if !yield(data[min(4, n):n]) {
				return
			}
			data = data[n:]
		}
	}
}

// readOverflow reads results of the overflow stream when their groups have room again, until ctx ends.
func (c *Consumer) readOverflow(ctx context.Context) {
	for lifecycle.Rest(ctx, readPeriod) {
		for read := true; read && ctx.Err() == nil && c.Peers.Connected(); {
			var err error
			if read, err = c.readOverflowOnce(ctx); err != nil && ctx.Err() == nil {
				c.Log.WarnContext(ctx, "cannot read the overflow of results, retrying", "err", err)
			}
		}
	}
}

// readOverflowOnce reads some messages of some groups. It reports whether it has read any.
func (c *Consumer) readOverflowOnce(ctx context.Context) (bool, error) {
	stream, err := c.JetStream.Stream(ctx, wire.StreamOverflow)
	if errors.Is(err, jetstream.ErrStreamNotFound) || (err == nil && stream.CachedInfo().State.Msgs == 0) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(wire.OverflowSubject("*")))
	if err != nil {
		return false, err
	}
	var groups []string
	for subject := range info.State.Subjects {
		if group := strings.TrimPrefix(subject, wire.OverflowSubject("")); c.fair.HasRoom(group) {
			groups = append(groups, group)
		}
	}
	rand.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	found := false
	for _, group := range groups[:min(len(groups), readGroups)] {
		n, err := c.readOverflowOf(ctx, stream, group)
		if err != nil {
			return found, err
		}
		found = found || n > 0
	}
	return found, nil
}

// readOverflowOf reads some messages of a group. All dispatchers share the group's consumer, which exists while the group has
// results in the stream.
func (c *Consumer) readOverflowOf(ctx context.Context, stream jetstream.Stream, group string) (n int, err error) {
	consumer, err := stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: consumerName + "-" + group, FilterSubject: wire.OverflowSubject(group), AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: intake.AckWait, MaxAckPending: -1, InactiveThreshold: unusedConsumer,
	})
	if err != nil {
		return 0, err
	}
	batch, err := consumer.FetchNoWait(readMessages)
	if err != nil {
		return 0, err
	}
	for m := range batch.Messages() {
		c.fair.Add(m)
		n++
	}
	return n, batch.Error()
}
