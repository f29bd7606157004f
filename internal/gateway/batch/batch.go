// Package batch makes calls together: while one is on its way, further items wait, and the next call has all of them. So a single item waits for nothing, and
// many items at the same time cost few calls.
package batch

import (
	"sync"
	"time"
)

// Batch makes calls. Create one with New. It is safe for concurrent use.
type Batch[I, O any] struct {
	most int              // of the sizes of the items in one call
	size func(item I) int // nil: each has the size 1
	rest time.Duration    // between a call and the next one
	do   func(items []I) (O, error)

	mu      sync.Mutex
	waiting []waiter[I, O] // guarded by mu; the callers bound it, because each waits for its item
	running bool           // guarded by mu
}

type waiter[I, O any] struct {
	item I
	done chan outcome[O] // capacity 1
}

type outcome[O any] struct {
	value O
	err   error
}

// New returns a Batch. It makes calls with do, one at a time, and rests after each of them, so that more items come together. most limits the sum of the
// sizes of the items in a call; an item that is larger has its own call. If size is nil, each item has the size 1.
func New[I, O any](most int, size func(item I) int, rest time.Duration, do func(items []I) (O, error)) *Batch[I, O] {
	return &Batch[I, O]{most: most, size: size, rest: rest, do: do}
}

// Call returns the result of the call that has the item.
func (b *Batch[I, O]) Call(item I) (O, error) {
	w := waiter[I, O]{item, make(chan outcome[O], 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, w)
	if !b.running {
		b.running = true
		go b.run()
	}
	b.mu.Unlock()
	o := <-w.done
	return o.value, o.err
}

// Waiting returns how many items are in no call yet.
func (b *Batch[I, O]) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// run makes a call, and then the next one, until no item waits.
func (b *Batch[I, O]) run() {
	b.mu.Lock()
	n := b.next()
	if n == 0 {
		b.waiting, b.running = nil, false
		b.mu.Unlock()
		return
	}
	now := b.waiting[:n]
	b.waiting = b.waiting[n:]
	b.mu.Unlock()
	items := make([]I, n)
	for i := range now {
		items[i] = now[i].item
	}
	value, err := b.do(items)
	for i := range now {
		now[i].done <- outcome[O]{value, err}
	}
	time.AfterFunc(b.rest, b.run)
}

// next returns how many of the waiting items the next call has. The caller holds mu.
func (b *Batch[I, O]) next() (n int) {
	if b.size == nil {
		return min(len(b.waiting), b.most)
	}
	for size := 0; n < len(b.waiting); n++ {
		if size += b.size(b.waiting[n].item); n > 0 && size > b.most {
			break
		}
	}
	return n
}
