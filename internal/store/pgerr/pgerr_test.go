package pgerr

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestTranslate(t *testing.T) {
	state := func(code, constraint string) error {
		return fmt.Errorf("insert: %w", &pgconn.PgError{Code: code, ConstraintName: constraint})
	}
	for _, c := range []struct {
		name     string
		err      error
		code     domain.Code
		location string
	}{
		{"no row", pgx.ErrNoRows, domain.NotFound, ""},
		{"job name taken", state("23505", "jobs_name_key"), domain.Conflict, "name"},
		{"another unique constraint", state("23505", "x_pkey"), domain.Conflict, ""},
		{"unknown group", state("23503", "jobs_group_fkey"), domain.Invalid, "group"},
		{"unknown child", state("23503", "job_children_child_fkey"), domain.Invalid, "children"},
		{"NUL in text", state("22021", ""), domain.Invalid, ""},
		{"number out of range", state("22003", ""), domain.Invalid, ""},
		{"starting up", state("57P03", ""), domain.Unavailable, ""},
		{"shut down", state("57P01", ""), domain.Unavailable, ""},
		{"disk full", state("53100", ""), domain.Unavailable, ""},
		{"idle in transaction", state("25P03", ""), domain.Unavailable, ""},
		{"lock timeout", state("55P03", ""), domain.Unavailable, ""},
		{"syntax error", state("42601", ""), domain.Internal, ""},
		{"refused", &net.OpError{Op: "dial", Err: errors.New("connection refused")}, domain.Unavailable, ""},
		{"broken connection", fmt.Errorf("read: %w", io.ErrUnexpectedEOF), domain.Unavailable, ""},
		{"connection that database/sql found broken", fmt.Errorf("read: %w", driver.ErrBadConn), domain.Unavailable, ""},
		{"own bug", errors.New("cannot scan"), domain.Internal, ""},
		{"domain error", domain.NewError(domain.Forbidden, "no"), domain.Forbidden, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Translate(c.err)
			if got := domain.CodeOf(err); got != c.code {
				t.Fatalf("code is %s, want %s (%v)", got, c.code, err)
			}
			if !errors.Is(err, c.err) {
				t.Error("the cause is lost")
			}
			var e *domain.Error
			if errors.As(err, &e) && c.location != "" && (len(e.Fields) != 1 || e.Fields[0].Location != c.location) {
				t.Errorf("fields are %v, want one at %s", e.Fields, c.location)
			}
		})
	}
}

func TestTranslateDelete(t *testing.T) {
	err := TranslateDelete(&pgconn.PgError{Code: "23503", ConstraintName: "jobs_group_fkey"})
	if domain.CodeOf(err) != domain.Conflict {
		t.Errorf("a group with jobs: %v, want a conflict", err)
	}
}

func TestTranslateLeavesAlone(t *testing.T) {
	if Translate(nil) != nil {
		t.Error("nil became an error")
	}
	if err := Translate(context.Canceled); !errors.Is(err, context.Canceled) || domain.CodeOf(err) != domain.Internal {
		t.Errorf("a cancelled context became %v", err)
	}
}
