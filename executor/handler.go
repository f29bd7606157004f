package executor

import (
	"context"
	"errors"
	"time"
)

// Handler runs attempts. Handle is called once for each attempt, by many goroutines at once. It should return soon after
// ctx is done; context.Cause(ctx) then tells ErrTimeout, ErrKilled and ErrDrained apart. A nil error is success. Permanent
// and RetryAfter steer what follows an error. A Handler may also be an Initializer and an io.Closer.
type Handler interface {
	Handle(ctx context.Context, run Run) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, run Run) error

// Handle implements Handler.
func (f HandlerFunc) Handle(ctx context.Context, run Run) error { return f(ctx, run) }

// Initializer is a Handler to be made ready before its first run. Init is called once at a time, by the first
// run; if it fails, so does that run, and the next run calls it again. ctx lives as long as handlers may run.
// A handler that is also an io.Closer is closed when Run ends, provided that Init succeeded.
type Initializer interface {
	Init(ctx context.Context) error
}

// The causes for which a handler's context is cancelled, as context.Cause tells them.
var (
	ErrTimeout = errors.New("executor: the job's timeout has passed")
	ErrKilled  = errors.New("executor: the run was killed")
	ErrDrained = errors.New("executor: the executor is shutting down")
)

// Permanent marks err as one that no retry can mend: the run fails without further attempts. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// RetryAfter asks that the next attempt, if the retry policy has one left, come d after this one, whatever the
// policy's backoff says. d is at least one millisecond. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, max(d, time.Millisecond)}
}

type retryAfterError struct {
	err   error
	after time.Duration
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// IsPermanent reports whether err, or an error it wraps, was marked by Permanent.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// RetryDelay returns the delay that RetryAfter put on err, or on an error it wraps.
func RetryDelay(err error) (d time.Duration, ok bool) {
	var r *retryAfterError
	if !errors.As(err, &r) {
		return 0, false
	}
	return r.after, true
}
