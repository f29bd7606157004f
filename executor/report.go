package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

const (
	batchDelay      = 20 * time.Millisecond // results are collected for this long while others are being sent
	maxBatchBytes   = 512 << 10             // bound of one message, far below a NATS server's limit
	publishesAtOnce = 4
	publishTimeout  = 5 * time.Second
	removalMax      = 4096 // settled results that may wait to be recorded in the spool
	// An acknowledged result is sent again until it is settled, first after repeatFirst, then after doubling delays up
	// to repeatMax. It is not sent again while the dispatcher settles results that were acknowledged before it: see
	// inTurn.
	repeatFirst = 5 * time.Second
	repeatMax   = 60 * time.Second
	turnSlack   = 2 * time.Second // how far the order of settling can differ from the order of acknowledgement
	// retryEvery is the delay before a failed publish or spool write is tried again.
	retryEvery = time.Second
	// At shutdown, the reporter checks its connection every settledEvery, and logs that it waits after settledTold.
	settledEvery = 100 * time.Millisecond
	settledTold  = 2 * time.Second
)

// reporter delivers results. It writes them into the spool, and then publishes them to JetStream until they are settled.
// One goroutine owns the spool, another one sends.
type reporter struct {
	spool      *spool
	spoolBytes int64
	log        *slog.Logger
	ready      func() (connected bool, maxPayload int64)
	publish    func(ctx context.Context, results [][]byte) error // each result in JSON
	written    func([]*pending)                                  // called when results are on disk, or when writing them failed; it frees their slots

	trouble  atomic.Pointer[wire.Unfit] // why results may not be kept on disk; nil: they are
	probed   error                      // of the last probe of the spool; used only by the goroutine that owns the spool
	probeAt  time.Time                  // when to probe the spool again; used like probed
	writeNow chan struct{}
	sendNow  chan struct{}
	changed  chan struct{} // signalled when a publish returns or results are settled

	wellSince time.Time // since when a spool in trouble is well; zero: it is not; used like probed

	mu      sync.Mutex
	pending map[attemptKey]*pending // the newest result of each attempt; in rare cases, an earlier boot has another one
	writing []*pending              // not in the spool yet; at most one per slot
	removal []*pending              // settled, but still in the spool
	queue   []*pending              // to be sent, in order
	flying  int                     // messages that are not acknowledged yet
	failing bool                    // the last message was not acknowledged
	heard   time.Time               // when results were last settled
	reached time.Time               // the latest acknowledgement time among the settled results
}

// pending is a result that is not settled.
type pending struct {
	result   wire.Result
	json     []byte   // the result's part of its line; nil before it is in the spool
	entry    *entry   // the entry in the ledger, which holds a slot until the result is in the spool; nil if an earlier process wrote the result
	line     line     // its line in the spool; used only by the goroutine that owns the spool
	earlier  *pending // an earlier boot's result of the same attempt
	settled  bool
	replaced bool      // a later result of the same boot replaced it
	queued   bool      // in the queue or being sent
	sent     time.Time // when the stream first acknowledged it; zero before that
	tries    int
	next     time.Time // when to send it again
}

func newReporter(s *spool, left []*pending, spoolBytes int64, log *slog.Logger) *reporter {
	r := &reporter{
		spool: s, spoolBytes: spoolBytes, log: log,
		writeNow: make(chan struct{}, 1), sendNow: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		pending: make(map[attemptKey]*pending),
	}
	for _, p := range left {
		r.hold(p)
		r.queue = append(r.queue, p)
	}
	r.trouble.Store(r.diagnose(nil))
	return r
}

// run works until ctx is done. Then it writes the results that are not on disk yet.
func (r *reporter) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.writeLoop(ctx) })
	wg.Go(func() { r.sendLoop(ctx) })
	wg.Wait()
	r.write()
	if err := r.spool.repair(); err != nil {
		r.log.Error("cannot write the result spool, results that are only in memory are lost with this process", "dir", r.spool.dir, "err", err)
	}
}

// add queues the results of attempts that hold slots.
func (r *reporter) add(results ...*pending) {
	r.mu.Lock()
	for _, p := range results {
		r.hold(p)
	}
	r.writing = append(r.writing, results...)
	r.mu.Unlock()
	wake(r.writeNow)
}

// hold registers a result. The caller holds mu, or no other goroutine uses the reporter yet.
func (r *reporter) hold(p *pending) {
	key := attemptKey{p.result.RunID, p.result.Attempt}
	p.queued, p.earlier = true, r.pending[key]
	if old := p.earlier; old != nil && old.result.BootID == p.result.BootID {
		old.settled, old.replaced, p.earlier = true, true, old.earlier
		r.removal = append(r.removal, old)
	}
	r.pending[key] = p
}

// result returns an attempt's newest unsettled result, if there is one.
func (r *reporter) result(key attemptKey) (res wire.Result, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pending[key]
	if p == nil {
		return wire.Result{}, false
	}
	return p.result, true
}

// settled removes the results of these attempts. A ref without a boot id covers all boots.
func (r *reporter) settled(refs []wire.Ref) {
	r.mu.Lock()
	for _, ref := range refs {
		r.settle(attemptKey{ref.RunID, ref.Attempt}, ref.BootID)
	}
	r.heard = time.Now()
	many := len(r.removal) >= removalMax
	r.mu.Unlock()
	// The spool records them with the next results or at the next tick.
	if many || r.trouble.Load() != nil {
		wake(r.writeNow)
	}
	wake(r.changed)
}

// settle removes the results of one attempt. The caller holds mu.
func (r *reporter) settle(key attemptKey, boot string) {
	newest := r.pending[key]
	if newest == nil {
		return
	}
	for at := &newest; *at != nil; {
		p := *at
		if boot != "" && p.result.BootID != boot {
			at = &p.earlier
			continue
		}
		p.settled = true
		if p.sent.After(r.reached) {
			r.reached = p.sent
		}
		r.removal = append(r.removal, p)
		*at = p.earlier
	}
	if newest == nil {
		delete(r.pending, key)
	} else {
		r.pending[key] = newest
	}
}

// each visits all unsettled results. The caller holds mu.
func (r *reporter) each(visit func(*pending)) {
	for _, p := range r.pending {
		for ; p != nil; p = p.earlier {
			visit(p)
		}
	}
}

// resend queues all unsettled results after a reconnection.
func (r *reporter) resend() {
	r.mu.Lock()
	r.each(r.enqueue)
	r.mu.Unlock()
	wake(r.sendNow)
}

func (r *reporter) enqueue(p *pending) {
	if !p.queued {
		p.queued = true
		r.queue = append(r.queue, p)
	}
}

// left counts the results that are not settled, and those of them that the stream has not acknowledged.
func (r *reporter) left() (unsettled, unsent int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.each(func(p *pending) {
		unsettled++
		if p.sent.IsZero() {
			unsent++
		}
	})
	return unsettled, unsent
}

// awaitSettled waits until every result is settled. An acknowledgement of the stream is not enough, because the
// dispatcher may take a result from the stream without settling it. The wait ends d after begin, or later if the stream
// has not acknowledged every result: then it ends flushTimeout after begin. It also ends when there was no connection
// for flushTimeout.
func (r *reporter) awaitSettled(ctx context.Context, begin time.Time, d time.Duration) {
	look := time.NewTicker(settledEvery)
	defer look.Stop()
	connected, told := begin, false
	for {
		unsettled, unsent := r.left()
		passed := time.Since(begin)
		if unsettled == 0 || passed >= d && (unsent == 0 || passed >= flushTimeout) {
			return
		}
		if ok, _ := r.ready(); ok {
			connected = time.Now()
		} else if time.Since(connected) >= flushTimeout {
			return
		}
		if passed >= settledTold && !told {
			told = true
			r.log.Info("waiting until the results are settled", "results", unsettled, "within", d)
		}
		select {
		case <-r.changed:
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reporter) writeLoop(ctx context.Context) {
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.writeNow:
			runtime.Gosched() // lets other handlers return and share this write and its sync; on one CPU, each result would otherwise need its own sync
			r.write()
		case <-tick.C:
			if err := r.spool.repair(); err != nil {
				r.measure(err)
			} else {
				r.probe(time.Now())
				r.write()
			}
			r.repeat(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// write writes all new and all settled results into the spool, with at most one sync.
func (r *reporter) write() {
	r.mu.Lock()
	results, removal := r.writing, r.removal
	r.writing, r.removal = nil, nil
	r.mu.Unlock()
	err := r.spool.update(results, removal)
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

// probe tries to write to the spool, so that an instance without results to write notices a full disk before it takes
// runs.
func (r *reporter) probe(now time.Time) {
	if now.Before(r.probeAt) {
		return
	}
	r.probeAt = now.Add(wire.HeartbeatEvery)
	r.probed = r.spool.probe()
}

// measure records whether the spool can keep more results, and logs each change. err is the error of a write. A trouble is over after
// the spool has been well for a while, because space that is freed on a full disk may be taken again at once.
func (r *reporter) measure(err error) {
	now := r.diagnose(err)
	before := r.trouble.Load()
	if now != nil || before == nil {
		r.wellSince = time.Time{}
	} else if r.wellSince.IsZero() {
		r.wellSince = time.Now()
	}
	if now == nil && before != nil && time.Since(r.wellSince) < wire.HeartbeatEvery {
		return
	}
	r.trouble.Store(now)
	switch {
	case now != nil && before == nil:
		r.log.Error("the result spool is full or cannot be written, offers are refused until it has room and can be written",
			"dir", r.spool.dir, "bytes", r.spool.liveBytes, "max_bytes", r.spoolBytes, "err", now.Message)
	case now == nil && before != nil:
		r.log.Info("the result spool has room again", "dir", r.spool.dir)
	}
}

// diagnose returns why the spool may not keep another result, nil if it can. err is the error of a write, if any.
func (r *reporter) diagnose(err error) *wire.Unfit {
	switch {
	case r.spool.broken && (err == nil || errors.Is(err, errSpoolBroken)):
		if known := r.trouble.Load(); known != nil {
			return known // the first error says more
		}
		return newUnfit(wire.UnfitSpoolUnwritable, errSpoolBroken.Error())
	case err == nil && r.probed != nil:
		err = r.probed
	case err == nil && r.spool.liveBytes >= r.spoolBytes:
		return newUnfit(wire.UnfitSpoolFull,
			fmt.Sprintf("results of %d bytes wait to be settled, at most %d bytes are kept", r.spool.liveBytes, r.spoolBytes))
	case err == nil:
		return nil
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return newUnfit(wire.UnfitSpoolFull, err.Error())
	}
	return newUnfit(wire.UnfitSpoolUnwritable, err.Error())
}

// repeat queues the results that are due to be sent again.
func (r *reporter) repeat(now time.Time) {
	r.mu.Lock()
	r.each(func(p *pending) {
		if !p.queued && !p.next.After(now) && !r.inTurn(p, now) {
			r.enqueue(p)
		}
	})
	waiting := len(r.queue) > 0
	r.mu.Unlock()
	if waiting {
		wake(r.sendNow)
	}
}

// inTurn reports whether a result is probably still in the stream, behind results that are being settled. Sending it
// again would only delay it. The caller holds mu.
func (r *reporter) inTurn(p *pending, now time.Time) bool {
	return now.Sub(r.heard) < repeatFirst && p.sent.After(r.reached.Add(-turnSlack)) && now.Sub(p.sent) < repeatMax
}

// sendLoop sends at once if no message is being sent, and otherwise collects results first.
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

// gather waits until a batch is worth sending. It returns false if there is nothing to send or no connection.
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
	most := min(len(r.queue), wire.MaxResults)
	taken, batch = make([]*pending, 0, most), make([][]byte, 0, most)
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
		if p.sent.IsZero() {
			//sim:seam result-acknowledged
			p.sent = now
		}
		p.next = now.Add(min(repeatFirst<<min(p.tries, 8), repeatMax))
		p.tries++
	}
	r.mu.Unlock()
	wake(r.changed)
	switch {
	case news && err != nil:
		r.log.Warn("cannot send results, they stay in the spool and are sent again", "results", len(batch), "err", err)
	case news:
		r.log.Info("results can be sent again")
	}
}

// wake signals a channel of capacity one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
