package rig

import (
	"testing"
	"time"
)

// Taken returns only looks of its own goroutine, by the right time.
func TestLooks(t *testing.T) {
	t.Parallel()
	wrong := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	l := NewLooks(func() time.Time { return wrong })
	if _, ok := l.Taken(); ok {
		t.Error("Taken returned a look before the first one")
	}
	before := time.Now()
	if got := l.Now(); !got.Equal(wrong) {
		t.Errorf("the clock shows %v", got)
	}
	other := make(chan bool)
	go func() {
		_, ok := l.Taken()
		other <- ok
	}()
	if <-other {
		t.Error("Taken returned the look of another goroutine")
	}
	if at, ok := l.Taken(); !ok || at.Before(before) || at.After(time.Now()) {
		t.Errorf("the look was at %v (%v)", at, ok)
	}
	if _, ok := l.Taken(); ok {
		t.Error("Taken returned the look twice")
	}
}
