package outbound

import "sync"

// batch makes calls together. While one is on its way, further items wait, and the next call has all of them. So a single item waits for nothing, and
// many items at the same time cost few calls.
type batch[I, O any] struct {
	most int                        // items in one call
	do   func(items []I) (O, error) // makes the call; one at a time

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

// call returns the result of the call that has the item.
func (b *batch[I, O]) call(item I) (O, error) {
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

// run makes calls until no item waits.
func (b *batch[I, O]) run() {
	for {
		b.mu.Lock()
		n := min(len(b.waiting), b.most)
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
	}
}
