package followup

import (
	"context"
	"time"
)

// RestAfter sets how long there must be no follow-up before the workers rest.
func (w *Workers) RestAfter(d time.Duration) { w.restAfter = d }

// Resting reports whether the workers rest.
func (w *Workers) Resting() bool { return w.resting.Load() }

// Sessions returns how often the workers have begun to work, after a rest or for the first time.
func (w *Workers) Sessions() int { return int(w.sessions.Load()) }

// StopIn works until begun is closed, and then stops as before a rest, trying for d at a time.
func (w *Workers) StopIn(ctx context.Context, begun <-chan struct{}, d time.Duration) error {
	w.stopWithin = d
	client, err := w.newClient()
	if err != nil || !w.start(ctx, client) {
		return err
	}
	<-begun
	return w.stop(ctx, client)
}
