package intake

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/executor/wire"
)

// FairConfig holds the dependencies and settings of a Fair. All fields but Bounds, Gather, Read and Registry are required.
type FairConfig struct {
	JetStream jetstream.JetStream
	Log       *slog.Logger
	Registry  prometheus.Registerer
	Kind      string // of the messages, for metrics and logs: result or log
	Stream    string
	Durable   string // the consumer that all dispatchers share
	Workers   int
	Limit     int // messages of one batch
	// Gather is how long the first message of a batch waits for more messages. 0 means 2 ms. A larger value saves transactions.
	Gather time.Duration
	Bounds Bounds
	// Handle handles a batch and acknowledges its messages. Several workers call it at once.
	Handle func(ctx context.Context, batch []*Message)
	// Excess stores messages of one group elsewhere, because the group exceeds its share. It acknowledges and counts them. One
	// goroutine calls it.
	Excess func(ctx context.Context, batch []*Message)
	// Shed is called with a message for which not even Excess has room. It acknowledges and counts the message, and does not
	// block.
	Shed func(m *Message)
	// Read, if set, adds messages from elsewhere with Add until ctx ends.
	Read func(ctx context.Context)
}

// Fair takes messages from a stream and handles them so that no group delays another one: see the comment of the package. Create
// one with NewFair and call Run.
type Fair struct {
	cfg     FairConfig
	metrics *metrics
	warned  *limits
	turn    chan struct{} // held by the worker that gathers a batch
	ready   chan struct{} // capacity 1: messages wait in the queues
	beyond  chan struct{} // capacity 1: messages wait in excess
	room    chan struct{} // capacity 1: the queues or away changed
	closed  chan struct{} // closed when no messages will follow

	mu      sync.Mutex
	queues  *queues
	excess  *queues
	away    bool   // Postgres is unavailable
	behind  uint64 // undelivered messages of all groups, as of the last delivery
	endedAt time.Time
}

// NewFair returns a Fair.
func NewFair(cfg FairConfig) *Fair {
	cfg.Gather = cmp.Or(cfg.Gather, gatherTime)
	f := &Fair{
		cfg: cfg, warned: newLimits(warningsPerSecond, 1), turn: make(chan struct{}, 1), ready: make(chan struct{}, 1), beyond: make(chan struct{}, 1), room: make(chan struct{}, 1),
		closed: make(chan struct{}),
		queues: newQueues(cfg.Bounds.withDefaults(), share),
		excess: newQueues(Bounds{GroupBytes: excessGroup, TotalBytes: excessTotal}, maxBatch),
	}
	f.metrics = newMetrics(cfg.Kind, f.heldBytes, cfg.Registry)
	return f
}

// fetchAhead is how many messages the client library holds in addition to the queues.
const fetchAhead = 64

const (
	drainTime   = 5 * time.Second // how long queued messages are handled after the context has ended
	extendTick  = time.Second
	extendAfter = AckWait / 2
	againAfter  = time.Second // delay before the redelivery of a message for which there was no room
)

// Run takes and handles messages until ctx ends. It then continues for at most drainTime with the queued messages, and hands the
// rest back to JetStream.
func (f *Fair) Run(ctx context.Context) {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var fetchers, workers, extender sync.WaitGroup
	fetchers.Go(func() { f.fetchLoop(ctx) })
	if f.cfg.Read != nil {
		fetchers.Go(func() { f.cfg.Read(ctx) })
	}
	for range f.cfg.Workers {
		workers.Go(func() { f.work(working) })
	}
	workers.Go(func() { f.excessLoop(working) })
	extender.Go(func() { f.extendLoop(working) })
	fetchers.Wait()
	f.mu.Lock()
	f.endedAt = time.Now()
	f.mu.Unlock()
	close(f.closed)
	workers.Wait()
	stop()
	extender.Wait()
	f.handBack()
}

// fetchLoop fetches messages until ctx ends.
func (f *Fair) fetchLoop(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		f.cfg.Log.WarnContext(ctx, "cannot fetch messages of executors, retrying", "kind", f.cfg.Kind, "err", err)
		pause(ctx, time.Second)
	}
}

// fetch fetches messages until ctx ends or the consumer cannot be read.
func (f *Fair) fetch(ctx context.Context) error {
	cons, err := f.cfg.JetStream.CreateOrUpdateConsumer(ctx, f.cfg.Stream, jetstream.ConsumerConfig{
		// There is no MaxAckPending, because it would apply to all groups together: the waiting messages of one group could stop
		// the delivery for all groups.
		Durable: f.cfg.Durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: AckWait, MaxAckPending: -1,
	})
	if err != nil {
		return err
	}
	iter, err := cons.Messages(jetstream.PullMaxMessages(fetchAhead), jetstream.PullHeartbeat(5*time.Second)) // no bound in bytes: see Run
	if err != nil {
		return err
	}
	defer iter.Stop()
	stop := context.AfterFunc(ctx, iter.Drain)
	defer stop()
	for {
		m, err := next(iter)
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		f.accept(ctx, m)
	}
}

// accept puts a message into its queue. If there is no room, it waits while Postgres is unavailable. Otherwise messages of the
// group that exceeds its share go to the excess.
func (f *Fair) accept(ctx context.Context, msg jetstream.Msg) {
	m, err := message(msg)
	if err != nil {
		f.cfg.Log.WarnContext(ctx, "cannot read the metadata of a message, it is dropped", "kind", f.cfg.Kind, "subject", msg.Subject(), "err", err)
		_ = msg.Term()
		return
	}
	for f.mustWait(m) {
		select {
		case <-f.room:
		case <-ctx.Done():
			_ = m.Nak() // it is delivered again, to another dispatcher
			return
		}
	}
	f.mu.Lock()
	f.behind = m.behind
	f.mu.Unlock()
	evicted, ok := f.put(m)
	if !ok {
		evicted = append(evicted, m)
	}
	f.divert(evicted)
}

func message(msg jetstream.Msg) (*Message, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	return &Message{
		Msg: msg, Group: wire.GroupOfSubject(msg.Subject()), size: sizeOf(msg), touched: time.Now(), behind: meta.NumPending,
		id: messageID{meta.Stream, meta.Sequence.Stream, meta.Timestamp.UnixNano()},
	}, nil
}

// headerBytes is the approximate memory that a header needs in addition to its text.
const headerBytes = 128

// sizeOf returns the approximate memory that a message needs. It includes headers. Belfry does not use them here, but an executor
// may send many.
func sizeOf(msg jetstream.Msg) int {
	size := len(msg.Data())
	for name, values := range msg.Headers() {
		size += headerBytes + len(name)
		for _, v := range values {
			size += headerBytes + len(v)
		}
	}
	return max(size, leastLen)
}

// mustWait reports whether Postgres is unavailable and there is no room for a message.
func (f *Fair) mustWait(m *Message) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.away && f.queues.held[m.id] == nil && (!f.queues.fits(m) || f.queues.full(m))
}

// put puts a message into its queue. If the process is full, it removes and returns messages of the group that holds most. ok is
// false if the group of the message exceeds its share.
func (f *Fair) put(m *Message) (evicted []*Message, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queues.replace(m) || f.excess.replace(m) {
		return nil, true
	}
	if !f.queues.fits(m) {
		return nil, false
	}
	for f.queues.full(m) {
		out := f.queues.evict(m)
		if out == nil {
			return evicted, false
		}
		evicted = append(evicted, out)
	}
	f.queues.push(m)
	if f.queues.waiting == 1 || f.queues.waiting >= f.cfg.Limit {
		notify(f.ready)
	}
	return evicted, true
}

// divert puts messages into the excess, and sheds those for which there is no room.
func (f *Fair) divert(msgs []*Message) {
	var shed []*Message
	f.mu.Lock()
	for _, m := range msgs {
		if !f.excess.fits(m) || f.excess.full(m) {
			shed = append(shed, m)
			continue
		}
		f.excess.push(m)
		notify(f.beyond)
	}
	f.mu.Unlock()
	for _, m := range shed {
		f.cfg.Shed(m)
	}
}

// Add adds a message of a group from elsewhere. If the group has no room, the message is delivered again later.
func (f *Fair) Add(msg jetstream.Msg) {
	m, err := message(msg)
	if err != nil {
		_ = msg.Term()
		return
	}
	evicted, ok := f.put(m)
	f.divert(evicted)
	if !ok {
		_ = m.NakWithDelay(againAfter)
	}
}

// HasRoom reports whether a group uses less than half of its bound. It ignores the total of all groups, because messages of larger
// groups are removed to make room.
func (f *Fair) HasRoom(group string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 2*f.queues.bytesOf(group) < f.queues.bounds.GroupBytes
}

// Away tells the Fair whether Postgres is unavailable. While it is, a full queue stops the fetcher.
func (f *Fair) Away(away bool) {
	f.mu.Lock()
	changed := f.away != away
	f.away = away
	f.mu.Unlock()
	if changed {
		notify(f.room)
	}
}

// Waiting returns how many messages of a group wait in its queue. It adds those in the stream that were not delivered yet, of
// whichever groups, because some may be of this one.
func (f *Fair) Waiting(group string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queues.waitingOf(group) + int(min(f.behind, math.MaxInt32))
}

// work handles batches until no messages are left, or until drainTime after the last was fetched.
func (f *Fair) work(ctx context.Context) {
	for {
		batch := f.gather()
		if len(batch) == 0 {
			return
		}
		f.cfg.Handle(ctx, batch)
		f.finish(f.queues, batch)
	}
}

func (f *Fair) finish(q *queues, batch []*Message) {
	f.mu.Lock()
	q.release(batch)
	f.mu.Unlock()
	notify(f.room)
}

// gather waits for a message, collects further messages for a while, and returns them as a batch. It returns nil if no messages
// will follow. One worker gathers at a time, so that the batches are large.
func (f *Fair) gather() []*Message {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	waiting, over := f.state(f.queues)
	for ; waiting == 0 && !over; waiting, over = f.state(f.queues) {
		select {
		case <-f.ready:
		case <-f.closed:
		}
	}
	if !over {
		timer := time.NewTimer(f.cfg.Gather)
		for full := f.fillsBatch(); !full; {
			select {
			case <-f.ready: // possibly the signal for the first message
				full = f.fillsBatch()
			case <-timer.C:
				full = true
			case <-f.closed:
				full = true
			}
		}
		timer.Stop()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.overdue() {
		return nil
	}
	batch := f.queues.take(f.cfg.Limit, false)
	if f.queues.waiting > 0 {
		notify(f.ready)
	}
	return batch
}

// state returns how many messages wait. over reports whether no further messages will come.
func (f *Fair) state(q *queues) (waiting int, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return q.waiting, !f.endedAt.IsZero()
}

// fillsBatch reports whether the messages that wait fill a batch.
func (f *Fair) fillsBatch() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queues.waiting >= f.cfg.Limit || f.queues.cost >= maxBatch
}

// overdue reports whether drainTime has passed since the end of the context. The caller holds the lock.
func (f *Fair) overdue() bool { return !f.endedAt.IsZero() && time.Since(f.endedAt) > drainTime }

// excessLoop stores messages elsewhere until none are left, or until drainTime after the last was fetched.
func (f *Fair) excessLoop(ctx context.Context) {
	for {
		waiting, over := f.state(f.excess)
		for ; waiting == 0 && !over; waiting, over = f.state(f.excess) {
			select {
			case <-f.beyond:
			case <-f.closed:
			}
		}
		f.gatherExcess()
		f.mu.Lock()
		var batch []*Message
		if !f.overdue() {
			batch = f.excess.take(excessLimit, true)
		}
		f.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		f.cfg.Excess(ctx, batch)
		f.finish(f.excess, batch)
	}
}

// gatherExcess waits until excessTime has passed or a batch is full, so that small messages are stored together.
func (f *Fair) gatherExcess() {
	timer := time.NewTimer(excessTime)
	defer timer.Stop()
	for {
		f.mu.Lock()
		full := f.excess.bytes >= maxBatch
		f.mu.Unlock()
		if full {
			return
		}
		select {
		case <-f.beyond:
		case <-timer.C:
			return
		case <-f.closed:
			return
		}
	}
}

const excessTime = time.Second

// excessLimit is the maximum number of messages that Excess gets at once.
const excessLimit = 1000

// extendLoop extends the acknowledgement time of messages that wait for long.
func (f *Fair) extendLoop(ctx context.Context) {
	for pause(ctx, extendTick) {
		for _, m := range f.due(time.Now()) {
			_ = m.InProgress() // if this fails, JetStream delivers the message again
		}
	}
}

// due returns copies of the messages whose acknowledgement time must be extended.
func (f *Fair) due(now time.Time) []jetstream.Msg {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []jetstream.Msg
	for _, q := range []*queues{f.queues, f.excess} {
		for _, m := range q.held {
			if now.Sub(m.touched) >= extendAfter {
				m.touched = now
				out = append(out, m.Msg)
			}
		}
	}
	return out
}

// handBack hands the remaining messages back to JetStream, which delivers them to another dispatcher.
func (f *Fair) handBack() {
	f.mu.Lock()
	var left []*Message
	for _, q := range []*queues{f.queues, f.excess} {
		left = slices.AppendSeq(left, maps.Values(q.held))
		q.active = nil
	}
	f.queues.release(left[:len(f.queues.held)])
	f.excess.release(left[len(left)-len(f.excess.held):])
	f.mu.Unlock()
	for _, m := range left {
		_ = m.Nak() // if this fails, JetStream delivers the message after AckWait
	}
}

// heldBytes returns the size of the held messages by group.
func (f *Fair) heldBytes() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]int)
	for _, q := range []*queues{f.queues, f.excess} {
		for name, g := range q.groups {
			out[name] += g.bytes
		}
	}
	return out
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits for d or until ctx ends, and reports whether ctx is still valid.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
