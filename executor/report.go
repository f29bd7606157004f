package executor

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/internal/wire"
)

const (
	batchDelay      = 20 * time.Millisecond // results gather this long while others are on their way
	maxBatchBytes   = 512 << 10             // of one message, far below what a NATS server takes
	publishesAtOnce = 4
	publishTimeout  = 5 * time.Second
	// An acknowledged result is sent again after repeatFirst, doubling up to repeatMax, until it is settled.
	repeatFirst = 5 * time.Second
	repeatMax   = 60 * time.Second
	// retryEvery is the pace of what failed: a publish, a write to the spool.
	retryEvery = time.Second
)

// reporter brings results to the database: first into the spool, then to JetStream, again and again until they are
// settled. One goroutine owns the spool, one sends.
type reporter struct {
	spool      *spool
	spoolBytes int64
	log        *slog.Logger
	ready      func() (connected bool, maxPayload int64)
	publish    func(ctx context.Context, results [][]byte) error // each in JSON
	written    func([]*pending)                                  // the results are on disk, or will not be: their slots are free

	full     atomic.Bool // no room for further results
	writeNow chan struct{}
	sendNow  chan struct{}
	changed  chan struct{} // something was acknowledged

	mu      sync.Mutex
	pending map[spoolKey]*pending
	boots   map[attemptKey][]string // under which pending has an attempt; hardly ever more than one
	writing []*pending              // not in the spool yet; at most one for each slot
	removal []spoolKey              // settled, still in the spool
	queue   []*pending              // to be sent, in order
	flying  int                     // messages not acknowledged yet
	failing bool                    // the last message was not acknowledged
}

// pending is a result that is not settled.
type pending struct {
	key     spoolKey
	result  wire.Result
	json    []byte
	settled bool
	queued  bool // in queue, or on its way
	sent    bool // acknowledged by the stream at least once
	tries   int
	next    time.Time // when to send it again
}

func newReporter(s *spool, left []wire.Result, spoolBytes int64, log *slog.Logger) *reporter {
	r := &reporter{
		spool: s, spoolBytes: spoolBytes, log: log,
		writeNow: make(chan struct{}, 1), sendNow: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		pending: make(map[spoolKey]*pending), boots: make(map[attemptKey][]string),
	}
	for _, res := range left {
		r.queue = append(r.queue, r.hold(res, wire.AppendResult(nil, &res)))
	}
	r.full.Store(s.liveBytes >= spoolBytes)
	return r
}

// run works until ctx is done, and then writes what has not been written yet.
func (r *reporter) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.writeLoop(ctx) })
	wg.Go(func() { r.sendLoop(ctx) })
	wg.Wait()
	r.write()
	if err := r.spool.mend(); err != nil {
		r.log.Error("the result spool could not be written", "dir", r.spool.dir, "error", err)
	}
}

// add takes the result of an attempt that holds a slot.
func (r *reporter) add(res wire.Result) {
	json := wire.AppendResult(make([]byte, 0, 384+len(res.Output)+len(res.Message)), &res)
	r.mu.Lock()
	r.writing = append(r.writing, r.hold(res, json))
	r.mu.Unlock()
	wake(r.writeNow)
}

func (r *reporter) hold(res wire.Result, json []byte) *pending {
	key := keyOf(&res)
	if old := r.pending[key]; old != nil {
		old.settled = true // by what replaces it
	} else {
		r.boots[key.attemptKey] = append(r.boots[key.attemptKey], key.boot)
	}
	p := &pending{key: key, result: res, json: json, queued: true}
	r.pending[key] = p
	return p
}

// result returns an attempt's unsettled result: this boot's, or else an earlier one's.
func (r *reporter) result(key attemptKey, boot string) (res wire.Result, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pending[spoolKey{key, boot}]
	if boots := r.boots[key]; p == nil && len(boots) > 0 {
		p = r.pending[spoolKey{key, boots[len(boots)-1]}]
	}
	if p == nil {
		return wire.Result{}, false
	}
	return p.result, true
}

// settled forgets the results of these attempts. A ref without a boot means every boot's.
func (r *reporter) settled(refs []wire.Ref) {
	r.mu.Lock()
	for _, ref := range refs {
		key := attemptKey{ref.RunID, ref.Attempt}
		boots := []string{ref.BootID}
		if ref.BootID == "" {
			boots = slices.Clone(r.boots[key])
		}
		for _, boot := range boots {
			r.settle(spoolKey{key, boot})
		}
	}
	r.mu.Unlock()
	wake(r.writeNow)
	wake(r.changed)
}

func (r *reporter) settle(key spoolKey) {
	p := r.pending[key]
	if p == nil {
		return
	}
	p.settled = true
	delete(r.pending, key)
	r.removal = append(r.removal, key)
	if len(r.boots[key.attemptKey]) == 1 {
		delete(r.boots, key.attemptKey)
		return
	}
	left := slices.DeleteFunc(r.boots[key.attemptKey], func(boot string) bool { return boot == key.boot })
	if r.boots[key.attemptKey] = left; len(left) == 0 {
		delete(r.boots, key.attemptKey)
	}
}

// resend sends everything that is not settled again; the connection is new.
func (r *reporter) resend() {
	r.mu.Lock()
	for _, p := range r.pending {
		r.enqueue(p)
	}
	r.mu.Unlock()
	wake(r.sendNow)
}

func (r *reporter) enqueue(p *pending) {
	if !p.queued {
		p.queued = true
		r.queue = append(r.queue, p)
	}
}

// unsent counts the results that no stream has acknowledged yet.
func (r *reporter) unsent() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pending {
		if !p.sent {
			n++
		}
	}
	return n
}

// awaitSent waits until every result was acknowledged by the stream once, or ctx is done. It returns how many
// were not.
func (r *reporter) awaitSent(ctx context.Context) int {
	for {
		n := r.unsent()
		if n == 0 {
			return 0
		}
		select {
		case <-r.changed:
		case <-ctx.Done():
			return n
		}
	}
}

func (r *reporter) writeLoop(ctx context.Context) {
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.writeNow:
			r.write()
		case <-tick.C:
			if err := r.spool.mend(); err == nil {
				r.measure(nil)
			}
			r.repeat(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// write brings the spool up to date: new results with one sync for all, then what is settled.
func (r *reporter) write() {
	r.mu.Lock()
	results, removal := r.writing, r.removal
	r.writing, r.removal = nil, nil
	r.mu.Unlock()
	var err error
	if len(results) > 0 {
		err = r.spool.add(results)
	}
	if err == nil {
		err = r.spool.remove(removal)
	} else {
		for _, key := range removal {
			r.spool.drop(key)
		}
	}
	r.measure(err)
	if len(results) == 0 {
		return
	}
	r.written(results)
	r.mu.Lock()
	for _, p := range results {
		if !p.settled {
			r.queue = append(r.queue, p)
		}
	}
	r.mu.Unlock()
	wake(r.sendNow)
}

// measure notes whether the spool has room, and logs when that changes.
func (r *reporter) measure(err error) {
	full := err != nil || r.spool.broken || r.spool.liveBytes >= r.spoolBytes
	if r.full.Swap(full) == full {
		return
	}
	if full {
		r.log.Error("the result spool takes no more: offers are refused until it does",
			"dir", r.spool.dir, "bytes", r.spool.liveBytes, "max_bytes", r.spoolBytes, "error", err)
	} else {
		r.log.Info("the result spool takes results again", "dir", r.spool.dir)
	}
}

// repeat queues what is due to be sent again.
func (r *reporter) repeat(now time.Time) {
	r.mu.Lock()
	for _, p := range r.pending {
		if !p.queued && !p.next.After(now) {
			r.enqueue(p)
		}
	}
	waiting := len(r.queue) > 0
	r.mu.Unlock()
	if waiting {
		wake(r.sendNow)
	}
}

// sendLoop sends at once when nothing is on its way, and gathers results otherwise.
func (r *reporter) sendLoop(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, publishesAtOnce)
	for {
		select {
		case <-r.sendNow:
		case <-ctx.Done():
			return
		}
		for r.gather(ctx) {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return
			}
			taken, batch := r.take()
			wg.Go(func() {
				r.send(ctx, taken, batch)
				<-places
				wake(r.sendNow)
			})
		}
	}
}

// gather waits until a batch is worth sending. It is false when there is nothing to send, or nowhere to send it.
func (r *reporter) gather(ctx context.Context) bool {
	deadline := time.NewTimer(batchDelay)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		queued, flying := len(r.queue), r.flying
		r.mu.Unlock()
		if connected, _ := r.ready(); !connected || queued == 0 || ctx.Err() != nil {
			return false
		}
		if flying == 0 || queued >= wire.MaxResults {
			return true
		}
		select {
		case <-r.sendNow:
		case <-deadline.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// take removes the next batch from the queue.
func (r *reporter) take() (taken []*pending, batch [][]byte) {
	_, maxPayload := r.ready()
	room := min(maxBatchBytes, int(maxPayload)-4096)
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for ; n < len(r.queue) && len(batch) < wire.MaxResults; n++ {
		p := r.queue[n]
		if p.settled {
			continue
		}
		if len(batch) > 0 && len(p.json) > room {
			break
		}
		room -= len(p.json) + 1
		taken, batch = append(taken, p), append(batch, p.json)
	}
	r.queue = r.queue[n:]
	if len(r.queue) == 0 {
		r.queue = nil
	}
	r.flying++
	return taken, batch
}

func (r *reporter) send(ctx context.Context, taken []*pending, batch [][]byte) {
	var err error
	if len(batch) > 0 {
		sendCtx, cancel := context.WithTimeout(ctx, publishTimeout)
		err = r.publish(sendCtx, batch)
		cancel()
	}
	now := time.Now()
	r.mu.Lock()
	r.flying--
	news := len(batch) > 0 && ctx.Err() == nil && r.failing != (err != nil)
	if news {
		r.failing = err != nil
	}
	for _, p := range taken {
		p.queued = false
		if err != nil {
			p.next = now.Add(retryEvery)
			continue
		}
		p.sent = true
		p.next = now.Add(min(repeatFirst<<min(p.tries, 8), repeatMax))
		p.tries++
	}
	r.mu.Unlock()
	wake(r.changed)
	switch {
	case news && err != nil:
		r.log.Warn("results could not be sent; they stay in the spool and are sent again", "results", len(batch), "error", err)
	case news:
		r.log.Info("results are sent again")
	}
}

// wake signals a channel of capacity one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
