package outbound

import (
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

// Executors read a log from its first line at each call, with the only thread that also takes runs. So a tender reads one log at a time, none while a request that
// starts a run waits, and it pauses for a multiple of what the last call took.
const (
	readTime   = 10 * time.Second
	readFirst  = 500 * time.Millisecond // after the run was taken
	readAgain  = time.Second
	readPauses = 20 // times the last call
	leastPause = 20 * time.Millisecond
	mostTails  = 2000    // logs of one address; and as many more of runs that did not succeed
	mostLines  = 100_000 // of one run
	mostFaults = 5       // in a row; then the log is given up
	fullPage   = 1000    // lines; pyxxl answers with no more, so there may be more to read
)

// follow begins to read the log of an attempt. The caller holds mu.
func (t *tender) follow(a *address.Attempt) {
	now := time.Now()
	if !t.tails.add(a, now) {
		return
	}
	if a.State == address.Ended {
		t.tails.finish(a.Attempt, t.machine.Known(a.Attempt) == nil, now)
	}
	lifecycle.Signal(t.readSoon)
}

// finishTail makes the log of an attempt be read for the last time. The caller holds mu.
func (t *tender) finishTail(id gateway.Attempt, settled bool) {
	t.tails.finish(id, settled, time.Now())
	lifecycle.Signal(t.readSoon)
}

// endSoon reports whether the end of the log of a run that has ended will be read soon.
func (t *tender) endSoon(s *gateway.Send) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.tails.find(s.Attempt, s.LogID)
	return l != nil && l.soon && !l.done
}

// unreadLog is the message of a run whose log is not read.
const unreadLog = "The log of this run is only at the executor, because it completes runs faster than the gateway can read their logs."

// describeLog says in the result of a send how many lines of its log were published, or that the log is not read.
func (t *tender) describeLog(s *gateway.Send, r *wire.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.tails.find(s.Attempt, s.LogID)
	if l == nil {
		return
	}
	if r.LastLine = int64(l.next - 1); l.unread && r.Message == "" {
		r.Message = unreadLog
	}
}

// logReader reads the logs of a tender's executor.
type logReader struct{ *tender }

// readLogs reads the logs of attempts and publishes their lines.
func (t *logReader) readLogs() {
	for t.ctx.Err() == nil {
		l := t.nextTail()
		if l == nil {
			wait := time.NewTimer(readFirst / 5)
			select {
			case <-t.ctx.Done():
			case <-t.readSoon:
			case <-wait.C:
			}
			wait.Stop()
			continue
		}
		begun := time.Now()
		t.read(l)
		if !lifecycle.Pause(t.ctx, max(readPauses*time.Since(begun), leastPause)) {
			return
		}
	}
}

// nextTail returns the log to read next, or nil. Logs of ended runs come first.
func (t *logReader) nextTail() *tail {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls > 0 || !t.leased(clock.Now()) {
		return nil
	}
	return t.tails.take(time.Now())
}

// read reads a log from the first line that was not published.
func (t *logReader) read(l *tail) {
	t.mu.Lock()
	from, final := l.next, l.final
	t.mu.Unlock()
	e, err := t.executorNow()
	if err != nil { // the group is closed, so no process can read the log
		t.readNext(l, from, final, true, true)
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, readTime)
	defer cancel()
	page, answer := e.Log(ctx, l.logID, l.timeMS, from)
	if answer.Outcome != protocol.Taken {
		n := 0
		if l.faults == mostFaults-1 {
			n, _ = t.publishLines(l, from, []string{"The gateway gave up reading this log: " + answer.Message})
		}
		t.readNext(l, from+n, final, false, false)
		return
	}
	lines := page.Lines
	if !final && len(lines) > 0 {
		lines = lines[:len(lines)-1] // the executor may add to the last line
	}
	lines = lines[:min(len(lines), mostLines+1-from)]
	if from+len(lines) > mostLines {
		lines = append(slices.Clip(lines[:len(lines)-1]), "The gateway does not read more lines of this log.")
		final = true
	}
	n, err := t.publishLines(l, from, lines)
	whole := len(page.Lines) < fullPage || page.AtEnd || from+n > mostLines
	t.readNext(l, from+n, final, whole, err == nil)
}

// readNext records what was read of a log. final says that the run had ended before the reading.
func (t *logReader) readNext(l *tail, next int, final, whole, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := time.Now()
	if l.final && (next > l.next || !final) {
		due = due.Add(-finalFirst) // the rest
	} else {
		due = due.Add(readAgain)
	}
	l.next = next
	if l.faults++; ok {
		l.faults = 0
	}
	done := final && whole && ok || l.faults >= mostFaults
	if t.tails.put(l, done, due); done {
		lifecycle.Signal(t.f.results.wake)
	}
}

// publishLines publishes lines of an attempt, the first of which has the given number, and returns how many it published.
func (t *logReader) publishLines(l *tail, first int, lines []string) (published int, err error) {
	now := wire.Time{Time: time.Now()}
	for published < len(lines) {
		m := wire.Logs{V: wire.Version, Instance: t.address.Instance, RunID: l.attempt.Run.String(), Attempt: l.attempt.Number}
		size := 0
		for _, text := range lines[published:] {
			text = protocol.Clip(text, wire.MaxLogLineBytes)
			if size += len(text) + 100; len(m.Lines) > 0 && (size > wire.MaxLogBytes || len(m.Lines) == wire.MaxLogLines) {
				break
			}
			m.Lines = append(m.Lines, wire.LogLine{N: int64(first + published + len(m.Lines)), At: now, Level: "info", Text: text})
		}
		ctx, cancel := context.WithTimeout(t.ctx, publishTime)
		err := publish(ctx, t.f.Conn, &nats.Msg{Subject: wire.LogSubject(t.address.Group), Data: wire.Encode(m)})
		cancel()
		if err != nil {
			return published, err
		}
		published += len(m.Lines)
	}
	return published, nil
}
