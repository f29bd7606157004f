package executor

import (
	"context"
	"errors"
	"time"
)

// Handler runs attempts. The executor calls Handle once for each attempt, from many goroutines concurrently. Handle
// should return soon after ctx is done. context.Cause(ctx) then returns ErrTimeout, ErrKilled or ErrDrained. A nil
// error means success. With Permanent and RetryAfter, a handler controls what follows an error. A Handler may also
// implement Initializer and io.Closer.
type Handler interface {
	Handle(ctx context.Context, run Run) error
}

// HandlerFunc is an adapter that makes a function a Handler.
type HandlerFunc func(ctx context.Context, run Run) error

// Handle implements Handler.
func (f HandlerFunc) Handle(ctx context.Context, run Run) error { return f(ctx, run) }

// Initializer is implemented by a Handler that needs preparation before its first run. The first run calls Init, and
// calls never overlap. If Init fails, that run fails too, and the next run calls Init again. ctx stays valid as long as
// handlers may run. If the handler is also an io.Closer, the executor closes it when Run ends, provided that Init
// succeeded.
type Initializer interface {
	Init(ctx context.Context) error
}

// The causes for which the executor cancels a handler's context, as returned by context.Cause.
var (
	ErrTimeout = errors.New("executor: the job's timeout has passed")
	ErrKilled  = errors.New("executor: the run was killed")
	ErrDrained = errors.New("executor: the executor is shutting down")
)

// Permanent marks err as an error that a retry cannot fix: the run fails without further attempts. Permanent(nil) is
// nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// RetryAfter requests that the next attempt starts d after this one, instead of the backoff of the retry policy. It has
// no effect if the retry policy allows no further attempt. d is at least one millisecond. RetryAfter(nil, d) is nil.
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

// IsPermanent reports whether Permanent marked err or an error that err wraps.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// RetryDelay returns the delay that RetryAfter attached to err or to an error that err wraps. ok is false if there is
// none.
func RetryDelay(err error) (d time.Duration, ok bool) {
	var r *retryAfterError
	if !errors.As(err, &r) {
		return 0, false
	}
	return r.after, true
}
