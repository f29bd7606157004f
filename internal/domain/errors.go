package domain

import (
	"errors"
	"strings"
)

// Code says what kind of error an Error is. The REST API maps each code to one HTTP status.
type Code string

// The codes. An error without a code counts as Internal.
const (
	Invalid     Code = "invalid"     // the input is not valid; Fields names the faulty fields
	NotFound    Code = "not_found"   // it does not exist, or the caller may not see it
	Conflict    Code = "conflict"    // the current state does not allow it, such as after a stale version
	Forbidden   Code = "forbidden"   // the caller is authenticated but not authorized
	Limited     Code = "limited"     // a limit of the group is reached; a retry may succeed when runs have ended
	Unavailable Code = "unavailable" // Postgres or NATS is unavailable; a retry may succeed
	Internal    Code = "internal"    // a bug or a broken machine
)

// FieldError describes one faulty field of an input. Location is a dotted path such as "schedule.expr". Message says what is wrong
// and how to correct it.
type FieldError struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Error is the only error type that crosses package boundaries.
type Error struct {
	Code    Code
	Message string
	Fields  []FieldError
	Err     error // the wrapped cause, if any; never shown to API clients
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	for i, f := range e.Fields {
		if i == 0 && e.Message != "" {
			b.WriteString(": ")
		} else if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(f.Location + ": " + f.Message)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// NewError returns an error of the given code without a cause.
func NewError(code Code, message string) *Error { return &Error{Code: code, Message: message} }

// WrapError returns an error of the given code that wraps a cause.
func WrapError(code Code, message string, err error) *Error {
	return &Error{Code: code, Message: message, Err: err}
}

// CodeOf returns the code of the first Error in err's chain, or Internal if there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}

// Faults collects field errors, so that one error can report all of them.
type Faults struct{ fields []FieldError }

// Add adds a fault of the field at location.
func (f *Faults) Add(location, message string) {
	f.fields = append(f.fields, FieldError{location, message})
}

// AddAll adds the field errors of err. An error without field errors is added as a fault at location.
func (f *Faults) AddAll(location string, err error) {
	if err == nil {
		return
	}
	var e *Error
	if errors.As(err, &e) && len(e.Fields) > 0 {
		f.fields = append(f.fields, e.Fields...)
		return
	}
	f.Add(location, err.Error())
}

// Err returns nil if there are no faults, otherwise an Invalid error with all of them.
func (f *Faults) Err(message string) error {
	if len(f.fields) == 0 {
		return nil
	}
	return &Error{Code: Invalid, Message: message, Fields: f.fields}
}
