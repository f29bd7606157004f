package executor

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

const (
	logDelay      = 200 * time.Millisecond // lines of a running attempt are collected for this long
	logBatch      = 100                    // or until there are this many
	logsAtOnce    = 4
	logBytes      = 16 << 20 // bound on waiting lines of all attempts
	logRunBytes   = 1 << 20  // bound on waiting lines of one attempt
	lineOverhead  = 80       // bytes of a line in JSON, in addition to its text
	logEnvelope   = 1024     // bytes of a message, in addition to its lines
	logLineEscape = 6        // the most bytes that JSON needs for one byte of text
	// Above these bounds, hold blocks the writer of an attempt's output while lines are being sent. The bounds are half
	// of what may wait. The bound over all attempts applies only to attempts above a fair share.
	logRunCrowd = logRunBytes / 2
	logCrowd    = logBytes / 2
	logShare    = 64 << 10
	// logPatience is how long hold blocks while no line is sent. After that, hold does not block again until a line was
	// sent.
	logPatience = 5 * time.Second
)

// logShipper sends the lines of runs' logs, in order within an attempt. Lines that cannot be sent wait in bounded
// memory. If it is full, the shipper drops the oldest lines of an attempt and inserts a line with their number.
type logShipper struct {
	log     *slog.Logger
	ready   func() (connected bool, maxPayload int64)
	publish func(ctx context.Context, key attemptKey, lines []wire.LogLine) error
	changed chan struct{} // signalled after each send
	listed  chan struct{} // signalled when waiting gets an attempt

	mu      sync.Mutex
	work    *sync.Cond    // signalled when due is not empty or the shipper stops
	due     []*attemptLog // to be sent now
	waiting []*attemptLog // to be sent at the next tick; there are ticks while it is not empty
	bytes   int
	active  int       // number of attempts in due or waiting, or held by a worker
	pause   time.Time // no lines are sent before this time, because a publish failed
	stopped bool
}

// attemptLog holds the lines of one attempt that are not acknowledged yet. The shipper's mutex guards it.
type attemptLog struct {
	key    attemptKey
	ship   *logShipper
	chunk  []wire.LogLine // being sent; repeated unchanged, so that a duplicate is recognized by its first line
	lines  []wire.LogLine
	bytes  int // of lines
	cut    int64
	cutEnd wire.LogLine // the last line that was dropped
	place  logPlace
	ended  bool
	sent   chan struct{} // closed when a chunk was sent; nil if nothing waits for it
	stuck  bool          // hold timed out, and nothing has been sent since
}

// logPlace is the list that holds an attempt's log.
type logPlace int

const (
	nowhere logPlace = iota
	inWaiting
	inDue // or a worker holds it
)

func newLogShipper(log *slog.Logger) *logShipper {
	s := &logShipper{log: log, changed: make(chan struct{}, 1), listed: make(chan struct{}, 1)}
	s.work = sync.NewCond(&s.mu)
	return s
}

// run sends lines until ctx is done. It has a timer only while lines wait.
func (s *logShipper) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range logsAtOnce {
		wg.Go(func() { s.worker(ctx) })
	}
	for ctx.Err() == nil {
		select {
		case <-s.listed:
		case <-ctx.Done():
		}
		for s.waits() && ctx.Err() == nil {
			select {
			case now := <-time.After(logDelay):
				s.tick(now)
			case <-ctx.Done():
			}
		}
	}
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.work.Broadcast()
	wg.Wait()
}

// add queues a line. It does no I/O and does not wait for lines to be sent.
func (s *logShipper) add(a *attemptLog, line wire.LogLine) {
	size := lineBytes(line)
	s.mu.Lock()
	defer s.mu.Unlock()
	a.lines = append(a.lines, line)
	a.bytes += size
	s.bytes += size
	for len(a.lines) > 0 && (a.bytes > logRunBytes || s.bytes > logBytes) {
		s.cutOldest(a)
	}
	s.list(a)
}

func (s *logShipper) cutOldest(a *attemptLog) {
	size := lineBytes(a.lines[0])
	a.cut++
	a.cutEnd = a.lines[0]
	a.lines = a.lines[1:]
	a.bytes -= size
	s.bytes -= size
}

// hold waits until an attempt that writes faster than its lines are sent has room, so that no lines are dropped. If
// NATS is unavailable or accepts nothing, it does not wait.
func (a *attemptLog) hold() {
	s := a.ship
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.crowded(a) && !a.stuck && !s.stopped {
		if connected, _ := s.ready(); !connected {
			return
		}
		if a.sent == nil {
			a.sent = make(chan struct{})
		}
		if a.place == inWaiting && s.pause.IsZero() { // a few long lines are a full batch here
			a.place = inDue
			s.due = append(s.due, a)
			s.work.Signal()
		}
		sent := a.sent
		s.mu.Unlock()
		patience := time.NewTimer(logPatience)
		stuck := false
		select {
		case <-sent:
		case <-patience.C:
			stuck = true
		}
		patience.Stop()
		s.mu.Lock()
		a.stuck = a.stuck || stuck
	}
}

func (s *logShipper) crowded(a *attemptLog) bool {
	return a.bytes > logRunCrowd || s.bytes > logCrowd && a.bytes > logShare
}

// end records that no more lines follow, so that the last ones are sent at once.
func (s *logShipper) end(a *attemptLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.ended = true
	s.list(a)
}

// list puts an attempt into its list: due if it has a full batch or has ended, otherwise waiting. The caller holds mu.
func (s *logShipper) list(a *attemptLog) {
	empty := len(a.chunk) == 0 && len(a.lines) == 0 && a.cut == 0
	if empty {
		return
	}
	prompt := (a.ended || len(a.lines) >= logBatch) && s.pause.IsZero()
	if a.place == nowhere {
		s.active++
	}
	switch {
	case a.place == inDue, a.place == inWaiting && !prompt: // it is listed already
	case prompt: // it may also stay in waiting, where tick skips it
		a.place = inDue
		s.due = append(s.due, a)
		s.work.Signal()
	default:
		a.place = inWaiting
		s.waiting = append(s.waiting, a)
		wake(s.listed)
	}
}

func (s *logShipper) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}

// tick moves the waiting attempts to due.
func (s *logShipper) tick(now time.Time) {
	connected, _ := s.ready()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !connected || now.Before(s.pause) {
		return
	}
	s.pause = time.Time{}
	for _, a := range s.waiting {
		if a.place == inWaiting {
			a.place = inDue
			s.due = append(s.due, a)
		}
	}
	s.waiting = nil
	s.work.Broadcast()
}

func (s *logShipper) worker(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.due) == 0 && !s.stopped {
			s.work.Wait()
		}
		if s.stopped {
			return
		}
		a := s.due[0]
		s.due = s.due[1:]
		s.fill(a)
		chunk := a.chunk
		s.mu.Unlock()
		err := s.send(ctx, a.key, chunk)
		s.mu.Lock()
		a.place = nowhere
		s.active--
		if err != nil {
			s.pause = time.Now().Add(retryEvery)
		} else {
			a.chunk = nil
			a.stuck = false
			if a.sent != nil {
				close(a.sent)
				a.sent = nil
			}
		}
		s.list(a)
		wake(s.changed)
	}
}

// fill makes the next chunk from the waiting lines, unless the last chunk must be sent again.
func (s *logShipper) fill(a *attemptLog) {
	if len(a.chunk) > 0 {
		return
	}
	room := wire.MaxLogBytes - logEnvelope
	if a.cut > 0 {
		a.chunk = append(a.chunk, wire.LogLine{N: a.cutEnd.N, At: a.cutEnd.At, Level: "warn",
			Text: fmt.Sprintf("… %d lines were cut here: they could not be sent in time", a.cut)})
		a.cut = 0
		room -= lineBytes(a.chunk[0])
	}
	n := 0
	for n < len(a.lines) && len(a.chunk) < wire.MaxLogLines {
		size := lineBytes(a.lines[n])
		if size > room && len(a.chunk) > 0 {
			break
		}
		room -= size
		a.bytes -= size
		s.bytes -= size
		a.chunk = append(a.chunk, a.lines[n])
		n++
	}
	a.lines = a.lines[n:]
	if len(a.lines) == 0 {
		a.lines = nil
	}
}

func (s *logShipper) send(ctx context.Context, key attemptKey, chunk []wire.LogLine) error {
	if len(chunk) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err := s.publish(ctx, key, chunk)
	if err != nil {
		s.log.Debug("cannot send log lines, retrying", "run_id", key.run, "attempt", key.attempt, "err", err)
	}
	return err
}

// awaitSent waits until every line was sent or ctx is done.
func (s *logShipper) awaitSent(ctx context.Context) {
	for {
		s.mu.Lock()
		idle := s.active == 0
		s.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return
		}
	}
}

// lineBytes returns an upper bound of a line's size in JSON.
func lineBytes(l wire.LogLine) int {
	n := lineOverhead + len(l.Text)
	for i := range len(l.Text) {
		if c := l.Text[i]; c < 0x20 || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c == 0x7f {
			n += logLineEscape - 1
		}
	}
	return n
}
