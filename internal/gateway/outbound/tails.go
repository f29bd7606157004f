package outbound

import (
	"container/heap"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

// tail is the log of one attempt, and how far the gateway has read it.
type tail struct {
	attempt gateway.Attempt
	logID   int64
	timeMS  int64
	next    int       // the number of the first line that was not published
	due     time.Time // of the next reading
	place   int       // in the queue; -1: it is being read, or it is done
	final   bool      // the run has ended: the log is read once more
	soon    bool      // few logs of ended runs were ahead when the run ended
	done    bool      // the end was read, or reading was given up
	unread  bool      // it is not read, because there were too many logs; done is true
	settled bool      // the result is settled
	faults  int
}

// tails are the logs of an address that are being read, and those whose results are not settled. They are not safe for concurrent use.
type tails struct {
	most   int // logs, and as many more of runs that did not succeed
	of     map[gateway.Attempt]*tail
	queue  tailQueue
	undone int // logs that are not done
	ending int // logs of ended runs whose end was not read
}

// finalFirst is how much earlier than their time the logs of ended runs are due, so that they come before the others.
const finalFirst = 24 * time.Hour

// mostAhead is how many logs of ended runs can be read before a result gives up to wait for its log.
const mostAhead = int(logFirst / leastPause)

// find returns the log of a send, or nil.
func (t *tails) find(id gateway.Attempt, logID int64) *tail {
	if l := t.of[id]; l != nil && l.logID == logID {
		return l
	}
	return nil
}

// add begins to read the log of an attempt that the executor has taken. If there are too many logs, it only remembers that this one is unread. It reports
// false if the log is known.
func (t *tails) add(a *address.Attempt, now time.Time) bool {
	old := t.of[a.Attempt]
	if a.SentAt.IsZero() || old != nil && old.logID == a.LogID {
		return false
	}
	if old != nil { // an earlier send of the attempt, which did not start
		t.drop(old)
	}
	if t.of == nil {
		t.of = make(map[gateway.Attempt]*tail)
	}
	l := &tail{attempt: a.Attempt, logID: a.LogID, timeMS: a.SentAt.UnixMilli(), next: 1, due: now.Add(readFirst), place: -1}
	t.of[a.Attempt] = l
	if l.unread = t.full(a.State == address.Ended && a.Outcome != wire.Succeeded); l.unread {
		l.done = true
		return true
	}
	t.begin(l)
	return true
}

// full reports whether there are too many logs to read another one. With those of failed runs, there may be twice as many.
func (t *tails) full(failed bool) bool {
	most := t.most
	if failed {
		most *= 2
	}
	return t.undone >= most
}

// begin puts a log into the queue.
func (t *tails) begin(l *tail) {
	l.unread, l.done = false, false
	t.undone++
	heap.Push(&t.queue, l)
}

// insist begins to read the unread log of an attempt that did not succeed, unless there are too many of these too.
func (t *tails) insist(id gateway.Attempt) {
	if l := t.of[id]; l != nil && l.unread && !t.full(true) {
		t.begin(l)
	}
}

// finish makes the log of an attempt be read for the last time.
func (t *tails) finish(id gateway.Attempt, settled bool, now time.Time) {
	l := t.of[id]
	if l == nil {
		return
	}
	l.settled = l.settled || settled
	switch {
	case l.done && l.settled:
		t.drop(l)
	case !l.final && !l.done:
		l.final, l.soon = true, t.ending < mostAhead
		t.ending++
		if l.place >= 0 {
			l.due = now.Add(-finalFirst)
			heap.Fix(&t.queue, l.place)
		}
	}
}

// take returns the log to read next, or nil. The caller calls put after it has read the log.
func (t *tails) take(now time.Time) *tail {
	if len(t.queue) == 0 || t.queue[0].due.After(now) {
		return nil
	}
	return heap.Pop(&t.queue).(*tail) //nolint:forcetypeassert // the queue has nothing else
}

// put takes back a log that was read: up to its end, or it is due again.
func (t *tails) put(l *tail, done bool, due time.Time) {
	if t.of[l.attempt] != l { // dropped meanwhile
		return
	}
	if !done {
		l.due = due
		heap.Push(&t.queue, l)
		return
	}
	l.done = true
	if t.undone--; l.final {
		t.ending--
	}
	if l.settled {
		t.drop(l)
	}
}

// drop forgets a log.
func (t *tails) drop(l *tail) {
	if delete(t.of, l.attempt); l.place >= 0 {
		heap.Remove(&t.queue, l.place)
	}
	if !l.done {
		if t.undone--; l.final {
			t.ending--
		}
	}
	l.done = true
}

// tailQueue implements heap.Interface. The log that is due first is the first.
type tailQueue []*tail

func (q tailQueue) Len() int           { return len(q) }
func (q tailQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q tailQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements heap.Interface.
func (q *tailQueue) Push(x any) {
	l := x.(*tail) //nolint:forcetypeassert // see take
	l.place = len(*q)
	*q = append(*q, l)
}

// Pop implements heap.Interface.
func (q *tailQueue) Pop() any {
	last := len(*q) - 1
	l := (*q)[last]
	(*q)[last], *q = nil, (*q)[:last]
	l.place = -1
	return l
}
