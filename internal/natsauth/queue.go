package natsauth

import (
	"context"
	"sync"
)

// The bounds of the log-ins that wait. Beyond them, log-ins get no answer: the server refuses them after its own
// timeout, and their clients retry.
const (
	maxWaiting = 8192 // in all lanes
	maxInLane  = 2048
	maxLanes   = 1024 // further lanes share one
)

// queue keeps waiting log-ins in lanes, one for each group and one for each host of unknown tokens. Lanes take turns,
// so that a storm of log-ins in one lane delays the log-ins of another by one turn only. It is safe for concurrent use.
type queue[T any] struct {
	ready chan struct{} // a token for each item

	mu    sync.Mutex
	lanes map[string]*lane[T]
	turns []*lane[T] // the lanes with items; the first is next
	size  int
}

type lane[T any] struct {
	name  string
	items []T
}

func newQueue[T any]() *queue[T] {
	return &queue[T]{ready: make(chan struct{}, maxWaiting), lanes: make(map[string]*lane[T])}
}

// push adds an item to a lane. If the lane is full, the item is dropped. If the whole queue is full, the last item of the
// longest lane is dropped, or the new one if its own lane is the longest. push returns the lane of a dropped item.
func (q *queue[T]) push(name string, item T) (dropped string, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[name]
	if l == nil && len(q.lanes) >= maxLanes {
		name = ""
		l = q.lanes[name]
	}
	if l == nil {
		l = &lane[T]{name: name}
	}
	if len(l.items) >= maxInLane {
		return name, true
	}
	if q.size == maxWaiting {
		longest := q.longest()
		if len(longest.items) <= len(l.items)+1 {
			return name, true
		}
		dropped, full = longest.name, true
		longest.items = longest.items[:len(longest.items)-1] // it stays longer than l, so it is not empty
	} else {
		q.size++
		q.ready <- struct{}{} // never blocks: it has room for maxWaiting
	}
	if len(l.items) == 0 {
		q.lanes[name] = l
		q.turns = append(q.turns, l)
	}
	l.items = append(l.items, item)
	return dropped, full
}

func (q *queue[T]) longest() *lane[T] {
	longest := q.turns[0]
	for _, l := range q.turns {
		if len(l.items) > len(longest.items) {
			longest = l
		}
	}
	return longest
}

// pop waits for an item and takes it. ok is false when ctx has ended.
func (q *queue[T]) pop(ctx context.Context) (item T, ok bool) {
	select {
	case <-ctx.Done():
		return item, false
	case <-q.ready:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.turns[0]
	q.turns = q.turns[1:]
	item, l.items = l.items[0], l.items[1:]
	q.size--
	if len(l.items) == 0 {
		delete(q.lanes, l.name)
	} else {
		q.turns = append(q.turns, l)
	}
	return item, true
}
