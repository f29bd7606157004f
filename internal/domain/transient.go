package domain

import (
	"context"
	"errors"
)

// Transient reports whether an error of the store means that Postgres is unavailable or too slow at the moment. The same
// call can succeed later. Any other error means that Postgres refused the call.
func Transient(err error) bool {
	return CodeOf(err) == Unavailable || errors.Is(err, context.DeadlineExceeded)
}
