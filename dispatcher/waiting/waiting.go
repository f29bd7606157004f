// Package waiting tracks, in the memory of one process, which groups, targets and instances have waiting runs.
//
// The set is a hint that saves work. Postgres stores the waiting runs, and the loss of the hint delays runs by a second or two.
package waiting

import (
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Poll is the time between two passes over the waiting runs if no signal starts one earlier.
const Poll = time.Second

// Batch is the maximum number of waiting runs that are assigned in one transaction.
const Batch = 500

// Kinds is the set of keys for which runs wait (see engine.WaitingKey). New runs with such a key queue behind the waiting
// ones. It is safe for concurrent use.
type Kinds struct {
	wake      chan struct{} // capacity 1
	elsewhere chan struct{} // capacity 1

	mu       sync.Mutex
	kinds    map[engine.WaitingKey]bool
	assigner bool // this process has an assigner that runs
}

// NewKinds returns an empty set.
func NewKinds() *Kinds {
	return &Kinds{wake: make(chan struct{}, 1), elsewhere: make(chan struct{}, 1)}
}

// Has reports whether runs with a key wait.
func (k *Kinds) Has(key engine.WaitingKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kinds[key]
}

// Any reports whether the set has a key.
func (k *Kinds) Any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.kinds) > 0
}

// Set replaces the set.
func (k *Kinds) Set(keys []engine.WaitingKey) {
	kinds := make(map[engine.WaitingKey]bool, len(keys))
	for _, key := range keys {
		kinds[key] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kinds = kinds
}

// Remove takes one key out of the set.
func (k *Kinds) Remove(key engine.WaitingKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kinds, key)
}

// Wake signals that a run began to wait: to the assigner of this process or, if none runs here, to those of others.
func (k *Kinds) Wake() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.assigner {
		lifecycle.Signal(k.wake)
	} else {
		lifecycle.Signal(k.elsewhere)
	}
}

// Assign says whether an assigner runs in this process. When it ends, a signal that it has not received goes to those of
// other processes.
func (k *Kinds) Assign(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.assigner = on
	if on {
		return
	}
	select {
	case <-k.wake:
		lifecycle.Signal(k.elsewhere)
	default:
	}
}

// Heard is Wake for a signal of another process. It is not passed on.
func (k *Kinds) Heard() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.assigner {
		lifecycle.Signal(k.wake)
	}
}

// Woken returns a channel that receives a value after each Wake. Only the assigner receives from it.
func (k *Kinds) Woken() <-chan struct{} { return k.wake }

// Elsewhere receives after a Wake that is for the assigners of other processes.
func (k *Kinds) Elsewhere() <-chan struct{} { return k.elsewhere }
