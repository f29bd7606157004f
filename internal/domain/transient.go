package domain

import (
	"context"
	"errors"
)

// Refused reports whether an error of the store means that Postgres refuses a value of the call: text that is not valid, a number out
// of range, a value that a constraint forbids. The same call never succeeds. A batch without the value can.
func Refused(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Code == Invalid || e.Code == Conflict)
}

// Transient reports whether an error of the store means that Postgres is unavailable or too slow at the moment. The same
// call can succeed later. Any other error means that Postgres refused the call.
func Transient(err error) bool {
	return CodeOf(err) == Unavailable || errors.Is(err, context.DeadlineExceeded)
}
