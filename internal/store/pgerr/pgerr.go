// Package pgerr translates errors of pgx and Postgres into domain errors. It is the only place that knows SQLSTATEs and
// constraint names. Callers check the domain.Code of an error and never its text.
package pgerr

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/domain"
)

// SQLSTATEs that are handled separately. Classes are compared by their first two characters.
const (
	uniqueViolation     = "23505"
	foreignKeyViolation = "23503"
	notNullViolation    = "23502"
	checkViolation      = "23514"
	readOnly            = "25006" // a standby, during a failover
	tooManyConnections  = "53300"
	serializationFailed = "40001"
	deadlock            = "40P01"
	idleTimeout         = "25P03"
	transactionTimeout  = "25P04"
	objectInUse         = "55006"
	lockNotAvailable    = "55P03" // lock_timeout

	classConnection = "08"
	classData       = "22" // text that is not valid, a number out of range
	classResources  = "53" // disk full, out of memory
	classOperator   = "57" // shutting down, starting up, cancelled
	classSystem     = "58" // an input or output error
)

// conflicts maps each unique constraint that a caller's input can violate to the faulty field and the message.
var conflicts = map[string]domain.FieldError{
	"groups_pkey":                 {Location: "name", Message: "a group of this name exists"},
	"jobs_name_key":               {Location: "name", Message: "the group has a job of this name"},
	"users_name_key":              {Location: "username", Message: "a user of this name exists"},
	"calendars_pkey":              {Location: "name", Message: "a calendar of this name exists"},
	"gateway_groups_app_key":      {Location: "alias", Message: "another group has this app name"},
	"gateway_wire_ids_job_key":    {Location: "job_id", Message: "the job has another wire id in the group"},
	"api_tokens_user_id_name_key": {Location: "name", Message: "you have a token of this name"},
}

// Translate maps err to a domain error whose code says what the caller can do about it:
//
//   - no row: NotFound
//   - a unique constraint: Conflict, with the field where the constraint names one
//   - an unknown group or child job: Invalid, with the field
//   - a value that Postgres refuses: Invalid
//   - Postgres cannot be reached, starts, stops, is full, or gave up a lock: Unavailable
//   - everything else: Internal
//
// A nil err, a context's error and an error that already is a domain error are returned unchanged.
func Translate(err error) error { return translate(err, false) }

// TranslateDelete is Translate for a DELETE statement: if a foreign key forbids it, the code is Conflict.
func TranslateDelete(err error) error { return translate(err, true) }

// Deadlocked reports whether Postgres aborted the transaction because of a deadlock. The caller may repeat it.
func Deadlocked(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == deadlock
}

// Duplicate reports whether a statement failed because a unique index has such an entry.
func Duplicate(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == uniqueViolation
}

func translate(err error, deleting bool) error {
	if err == nil {
		return nil
	}
	var de *domain.Error
	if errors.As(err, &de) {
		return err
	}
	var pe *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return domain.WrapError(domain.NotFound, "the object does not exist", err)
	case errors.As(err, &pe):
		return translateServer(pe, deleting, err)
	case unreachable(err):
		return domain.WrapError(domain.Unavailable, "Postgres cannot be reached", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return domain.WrapError(domain.Internal, "the database call went wrong", err)
}

func translateServer(pe *pgconn.PgError, deleting bool, err error) error {
	switch pe.Code {
	case uniqueViolation:
		e := domain.WrapError(domain.Conflict, "it exists already", err)
		if f, ok := conflicts[pe.ConstraintName]; ok {
			e.Message, e.Fields = f.Message, []domain.FieldError{f}
		}
		return e
	case foreignKeyViolation:
		return translateReference(pe, deleting, err)
	case notNullViolation, checkViolation:
		return domain.WrapError(domain.Invalid, "a value is not allowed", err)
	case readOnly, tooManyConnections, serializationFailed, deadlock, idleTimeout, transactionTimeout, objectInUse, lockNotAvailable:
		return domain.WrapError(domain.Unavailable, "Postgres cannot complete the request now", err)
	}
	switch pe.Code[:min(2, len(pe.Code))] {
	case classData:
		return domain.WrapError(domain.Invalid, "a value is not allowed", err)
	case classConnection, classResources, classOperator, classSystem:
		return domain.WrapError(domain.Unavailable, "Postgres is not available", err)
	}
	return domain.WrapError(domain.Internal, "the database call went wrong", err)
}

// references maps each foreign key that a caller's input can violate to the field that names the unknown object, and to
// the message if the key prevents a deletion.
var references = map[string]struct {
	unknown domain.FieldError
	inUse   string
}{
	"jobs_group_fkey": {
		domain.FieldError{Location: "group", Message: "there is no group of this name"},
		"the group has jobs; delete them first",
	},
	"event_triggers_job_fkey": {
		domain.FieldError{Location: "job_id", Message: "there is no such job"},
		"the job has event triggers",
	},
	"gateway_groups_group_fkey": {unknown: domain.FieldError{Location: "group", Message: "there is no group of this name"}},
	"job_children_child_fkey": {
		domain.FieldError{Location: "children", Message: "a child names a job that does not exist"},
		"the job is a child of other jobs; take it out of them first",
	},
}

// translateReference translates the violation of a foreign key. deleting says whether the statement deletes the referenced row
// or writes the key, because Postgres reports both in the same way except for the text.
func translateReference(pe *pgconn.PgError, deleting bool, err error) error {
	ref, known := references[pe.ConstraintName]
	switch {
	case deleting && known:
		return domain.WrapError(domain.Conflict, ref.inUse, err)
	case deleting:
		return domain.WrapError(domain.Conflict, "it is still in use", err)
	case known:
		e := domain.WrapError(domain.Invalid, ref.unknown.Message, err)
		e.Fields = []domain.FieldError{ref.unknown}
		return e
	}
	return domain.WrapError(domain.Invalid, "it refers to something that does not exist", err)
}

// unreachable reports whether the connection failed or broke. A context that ended while a healthy server was working
// does not count.
func unreachable(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return !errors.Is(err, context.Canceled)
	}
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed)
}
