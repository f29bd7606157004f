package domain

import (
	"errors"
	"strings"
)

// Code says what kind of error an Error is. The REST API maps each code to one HTTP status.
type Code string

// The codes. An error that carries none is Internal.
const (
	Invalid     Code = "invalid"     // the input is wrong; Fields says where
	NotFound    Code = "not_found"   // there is no such thing, or the caller may not see it
	Conflict    Code = "conflict"    // the state of the thing forbids it, such as a stale version
	Forbidden   Code = "forbidden"   // the caller is known and may not
	Unavailable Code = "unavailable" // Postgres or NATS is away; trying again may help
	Internal    Code = "internal"    // a bug or a broken machine
)

// FieldError names one faulty field of an input, as a dotted path such as "schedule.expr", and says what is
// wrong with it and how to mend it.
type FieldError struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Error is the one error type that crosses package borders.
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

// NewError makes an error of the given code without a cause.
func NewError(code Code, message string) *Error { return &Error{Code: code, Message: message} }

// WrapError makes an error of the given code around a cause.
func WrapError(code Code, message string, err error) *Error {
	return &Error{Code: code, Message: message, Err: err}
}

// CodeOf returns the code of the first Error in err's chain, Internal where there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}

// Faults collects field errors, so that a caller hears of all of them at once.
type Faults struct{ fields []FieldError }

// Add notes that the field at location is faulty.
func (f *Faults) Add(location, message string) {
	f.fields = append(f.fields, FieldError{location, message})
}

// AddAll notes the field errors that err carries; any other error is noted under location.
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

// Err returns nil when nothing was added, else an Invalid error with every field.
func (f *Faults) Err(message string) error {
	if len(f.fields) == 0 {
		return nil
	}
	return &Error{Code: Invalid, Message: message, Fields: f.fields}
}
