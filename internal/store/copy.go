package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/plan"
)

// plannedRuns are new rows of runs_live. They are written by COPY, which fills pages a thousand rows at a time. An
// INSERT costs Postgres more, because it writes each row and its write-ahead log record separately. But COPY fails if a
// run already exists; see wasPlanned.
type plannedRuns []plannedRun

type plannedRun struct {
	key    versionKey
	group  string
	plain  bool
	run    *plan.Run
	rungAt time.Time // when a ring takes it
}

// plannedBytes is about the size of an encoded row.
const plannedBytes = 128

const copyPlanned = `COPY runs_live (id, job_id, job_version, group_name, cause, plain, fire_time, due_at, rung_at) FROM STDIN (FORMAT binary)`

// copyHeader is the signature, no flags and no extension. copyTrailer is a row with -1 columns.
const (
	copyHeader  = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"
	copyTrailer = "\xff\xff"
)

// insert writes the rows in the caller's transaction. If one of them already exists, the transaction fails. Rows are
// written in the order of their due instants, across jobs, so that runs that fire and end together are stored together.
func (p plannedRuns) insert(ctx context.Context, tx pgx.Tx) error {
	if len(p) == 0 {
		return nil
	}
	rows := append(make([]byte, 0, len(p)*plannedBytes), copyHeader...)
	for _, at := range p.order() {
		rows = p[at.place].append(rows)
	}
	rows = append(rows, copyTrailer...)
	_, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(rows), copyPlanned)
	return err
}

// plannedAt is the sort key of a row. It is smaller than the row, so sorting moves less memory.
type plannedAt struct {
	due   int64  // Unix microseconds
	id    uint64 // the first 8 bytes of the id, which almost always differ
	place int32
}

// order returns the rows' sort keys by due instant, then by id.
func (p plannedRuns) order() []plannedAt {
	all := make([]plannedAt, len(p))
	for i := range p {
		run := p[i].run
		all[i] = plannedAt{run.DueAt.UnixMicro(), binary.BigEndian.Uint64(run.ID[:]), int32(i)}
	}
	slices.SortFunc(all, func(a, b plannedAt) int {
		if c := cmp.Compare(a.due, b.due); c != 0 {
			return c
		}
		if c := cmp.Compare(a.id, b.id); c != 0 {
			return c
		}
		return bytes.Compare(p[a.place].run.ID[:], p[b.place].run.ID[:])
	})
	return all
}

// append appends the row in the binary format of COPY: the length of each column, then its value.
func (r *plannedRun) append(to []byte) []byte {
	to = binary.BigEndian.AppendUint16(to, 9) // columns
	to = append(column(to, len(r.run.ID)), r.run.ID[:]...)
	to = binary.BigEndian.AppendUint64(column(to, 8), uint64(r.key.job))
	to = binary.BigEndian.AppendUint32(column(to, 4), uint32(r.key.version))
	to = append(column(to, len(r.group)), r.group...)
	to = append(column(to, len(r.run.Cause)), r.run.Cause...)
	to = appendBool(to, r.plain)
	for _, at := range []time.Time{r.run.FireTime, r.run.DueAt, r.rungAt} {
		to = appendTime(to, at)
	}
	return to
}

// postgresEpoch is the epoch of Postgres, the beginning of the year 2000, in Unix microseconds.
const postgresEpoch = 946_684_800_000_000

// column appends the length of a column, or of an element of an array; -1 is NULL.
func column(to []byte, size int) []byte { return binary.BigEndian.AppendUint32(to, uint32(size)) }

// wasPlanned reports whether a transaction failed because it planned a run that exists.
func wasPlanned(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == "23505" && pe.ConstraintName == "runs_live_pkey"
}
