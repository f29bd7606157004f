package outbound

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

const (
	collectFor   = 25 * time.Millisecond  // results are published together
	logFirst     = 500 * time.Millisecond // how long a result waits for the last lines of its log
	lookEvery    = time.Second            // for results that are not settled
	mostResults  = 1000                   // in one look
	firstAgain   = 5 * time.Second        // a result is published again, and the wait doubles
	lastAgain    = time.Minute
	publishTime  = 3 * time.Second
	messageBytes = 700 << 10 // of results in one message; a result has at most 80 KiB, and JSON may need more
	mostInOne    = 100       // results in one message
	// mostPublishing is how many messages are on their way at a time.
	mostPublishing = 16
)

// publisher publishes results until they are settled. Postgres keeps them, so it keeps only what saves work.
type publisher struct {
	f    *Fleet
	wake chan struct{} // capacity 1

	held map[int64]held // results that wait for the end of their logs, by log id; only run uses it

	mu      sync.Mutex
	pending map[int64]bool // log ids of sends that this process has ended
	again   map[int64]repeat
}

// held is a result that waits for the end of its log, until an instant at most.
type held struct {
	send  gateway.Send
	until time.Time
}

// repeat is when a result is published again.
type repeat struct {
	at   time.Time
	wait time.Duration
}

func newPublisher(f *Fleet) *publisher {
	return &publisher{f: f, wake: make(chan struct{}, 1), held: make(map[int64]held), pending: make(map[int64]bool), again: make(map[int64]repeat)}
}

// mostPending bounds the memory of results that this process has stored. Others are found by the next look.
const mostPending = 100_000

// soon publishes the results of sends. They are in Postgres.
func (p *publisher) soon(logIDs []int64) {
	p.mu.Lock()
	for _, id := range logIDs {
		if len(p.pending) < mostPending {
			p.pending[id] = true
		}
	}
	p.mu.Unlock()
	lifecycle.Signal(p.wake)
}

// run publishes until ctx ends. Results that end later are published by the next owner of the address.
func (p *publisher) run(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		var err error
		var later <-chan time.Time
		if len(p.held) > 0 {
			later = time.After(logFirst / 5)
		}
		select {
		case <-ctx.Done():
			return
		case <-later:
			err = p.publishPending(ctx)
		case <-p.wake:
			if !lifecycle.Pause(ctx, collectFor) {
				return
			}
			err = p.publishPending(ctx)
		case <-look.C:
			err = p.publishUnsettled(ctx)
		}
		if err != nil && ctx.Err() == nil {
			p.f.Log.DebugContext(ctx, "cannot publish results, retrying", "err", err)
		}
	}
}

// publishPending publishes the results of sends that this process has ended, except those that wait for their logs.
func (p *publisher) publishPending(ctx context.Context) error {
	var sends []gateway.Send
	if ids := p.takePending(); len(ids) > 0 {
		limited, cancel := context.WithTimeout(ctx, storeTime)
		defer cancel()
		var err error
		if sends, err = p.f.Records.Results(limited, ids); err != nil {
			return err // the owners of the addresses find the results
		}
		p.tell(sends)
	}
	// A result that is marked as settled is published, too: the mark may belong to the result "lost", which came before this one.
	return p.publish(ctx, p.ripe(sends, time.Now()))
}

// takePending takes up to mostResults of the log ids that wait.
func (p *publisher) takePending() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]int64, 0, min(len(p.pending), mostResults))
	for id := range p.pending {
		if len(ids) == mostResults {
			lifecycle.Signal(p.wake)
			break
		}
		ids = append(ids, id)
		delete(p.pending, id)
	}
	return ids
}

// ripe returns those of the sends, and of those held before, whose results are published now, and holds the others. A result waits until the end of its log was read,
// so that it can say how many lines there are, but only if that will be soon.
func (p *publisher) ripe(sends []gateway.Send, now time.Time) (ripe []gateway.Send) {
	for i := range sends {
		p.held[sends[i].LogID] = held{sends[i], now.Add(logFirst)}
	}
	for id, h := range p.held {
		t := p.f.find(place{h.send.Group, h.send.Instance})
		if t != nil && now.Before(h.until) && t.endSoon(&h.send) {
			continue
		}
		ripe = append(ripe, h.send)
		delete(p.held, id)
	}
	return ripe
}

// publishUnsettled publishes the results of this process's addresses that are due to be published again.
func (p *publisher) publishUnsettled(ctx context.Context) error {
	var holds []gateway.Hold
	now := clock.Now()
	for _, t := range p.f.all() {
		if t.holds(now) {
			holds = append(holds, t.address.Hold())
		}
	}
	if len(holds) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	sends, err := p.f.Records.Unsettled(limited, holds, mostResults)
	if err != nil {
		return err
	}
	p.tell(sends)
	return p.publish(ctx, p.due(sends, time.Now()))
}

// tell tells the tenders which attempts have ended.
func (p *publisher) tell(sends []gateway.Send) {
	for i := range sends {
		s := &sends[i]
		if t := p.f.find(place{s.Group, s.Instance}); t != nil {
			t.ended(s)
		}
	}
}

// due returns the sends whose results must be published now, and forgets those that are not unsettled any more.
func (p *publisher) due(unsettled []gateway.Send, now time.Time) (due []gateway.Send) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := make(map[int64]repeat, len(unsettled))
	for _, s := range unsettled {
		r, ok := p.again[s.LogID]
		_, waits := p.held[s.LogID]
		if !waits && !p.pending[s.LogID] && (!ok || !now.Before(r.at)) {
			due = append(due, s)
		}
		if ok {
			known[s.LogID] = r
		}
	}
	if len(unsettled) < mostResults {
		p.again = known
	}
	return due
}

// publish publishes results, those of one instance together.
func (p *publisher) publish(ctx context.Context, sends []gateway.Send) error {
	of := make(map[place][]gateway.Send)
	for _, s := range sends {
		of[place{s.Group, s.Instance}] = append(of[place{s.Group, s.Instance}], s)
	}
	var publishing errgroup.Group
	publishing.SetLimit(mostPublishing)
	for at, sends := range of {
		publishing.Go(func() error { return p.publishOf(ctx, at, sends) })
	}
	return publishing.Wait()
}

func (p *publisher) publishOf(ctx context.Context, at place, sends []gateway.Send) error {
	load := wire.Load{Seq: -1} // older than any other
	t := p.f.find(at)
	if t != nil {
		t.mu.Lock()
		load = t.machine.Load()
		t.mu.Unlock()
	}
	for len(sends) > 0 {
		var encoded [][]byte
		size, n := 0, 0
		for _, s := range sends {
			r := resultOf(&s)
			if t != nil {
				t.describeLog(&s, &r)
			}
			b := wire.AppendResult(nil, &r)
			if size += len(b); n > 0 && (size > messageBytes || n == mostInOne) {
				break
			}
			encoded, n = append(encoded, b), n+1
		}
		limited, cancel := context.WithTimeout(ctx, publishTime)
		err := publish(limited, p.f.Conn, &nats.Msg{Subject: wire.ResultSubject(at.group), Data: wire.EncodeResults(load, encoded)})
		cancel()
		if err != nil {
			return err
		}
		p.published(sends[:n], time.Now())
		sends = sends[n:]
	}
	return nil
}

// published records when results are published again.
func (p *publisher) published(sends []gateway.Send, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range sends {
		wait := firstAgain
		if r, ok := p.again[s.LogID]; ok {
			wait = min(2*r.wait, lastAgain)
		}
		p.again[s.LogID] = repeat{now.Add(wait), wait}
	}
}

// resultOf returns the wire form of a send's result, without its log.
func resultOf(s *gateway.Send) wire.Result {
	r := wire.Result{
		Instance: s.Instance, BootID: s.BootID, RunID: s.Run.String(), Attempt: s.Number, Bind: s.Bind, Outcome: s.Result.Outcome, Reason: s.Result.Reason,
		Message: s.Result.Message, Output: s.Result.Output, Permanent: s.Result.Permanent,
	}
	if s.EndedAt != nil {
		r.FinishedAt = wire.Time{Time: *s.EndedAt}
	}
	if s.SentAt != nil && s.State != gateway.Unstarted {
		r.StartedAt = wire.Time{Time: *s.SentAt}
	}
	return r
}

// acknowledged reads the answer of a stream.
func acknowledged(data []byte) error {
	var ack struct {
		Stream string `json:"stream"`
		Error  *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(data, &ack); {
	case err != nil:
		return fmt.Errorf("read the acknowledgement of a stream: %w", err)
	case ack.Error != nil:
		return fmt.Errorf("the stream refused the message: %s (%d)", ack.Error.Description, ack.Error.Code)
	case ack.Stream == "":
		return fmt.Errorf("the answer is not the acknowledgement of a stream")
	}
	return nil
}
