package rig

import (
	"bytes"
	"runtime"
	"sync"
	"time"
)

// Looks is a wall clock for executor.Config.Clock that remembers when each goroutine last looked at it. The SDK checks that an
// attempt may still start, and calls the handler, in one goroutine. So a handler learns from Taken when that check happened. No
// executor can exclude that its process is frozen between the two.
type Looks struct {
	wall func() time.Time // the clock that the executor sees; nil for the right time
	last sync.Map         // by goroutine: the right time of its last call of Now
}

// NewLooks returns a clock that shows wall, or the right time if that is nil.
func NewLooks(wall func() time.Time) *Looks { return &Looks{wall: wall} }

// Now is for executor.Config.Clock.
func (l *Looks) Now() time.Time {
	now := time.Now()
	l.last.Store(goroutine(), now)
	if l.wall != nil {
		return l.wall()
	}
	return now
}

// Taken returns when the caller's goroutine last looked, by the right time, and forgets it.
func (l *Looks) Taken() (at time.Time, ok bool) {
	v, ok := l.last.LoadAndDelete(goroutine())
	if !ok {
		return at, false
	}
	return v.(time.Time), true
}

// goroutine returns the number of the caller's goroutine. It takes it from the first line of the stack trace, "goroutine 7 [running]:".
func goroutine() string {
	var buf [64]byte
	return string(bytes.Fields(buf[:runtime.Stack(buf[:], false)])[1])
}
