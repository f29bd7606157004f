package runstats

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/jobhealth"
	"github.com/belfryhq/belfry/internal/store/runstats/sqlcgen"
)

// settledRuns selects the runs of a window. The texts of failures go to the health of their jobs. The notes of a message belong to all of it.
const settledRuns = `SELECT h.job_id, h.id, h.job_version, h.group_name, h.state, h.reason, h.lateness_ms, h.started_at, h.finished_at,
       h.instance, h.boot_id,
       CASE WHEN h.state = 'failed' THEN left(h.message, 1024) END,
       CASE WHEN h.state = 'failed' AND length(h.message) <= 1024 THEN h.message_notes END
  FROM runs_history h
 WHERE h.settled_at >= $1 AND h.settled_at < $2`

// binaryFormat asks for all columns in the binary format, which window.add decodes.
var binaryFormat = pgx.QueryResultFormats{pgx.BinaryFormatCode}

// The columns of settledRuns.
const (
	jobID = iota
	runID
	jobVersion
	groupName
	state
	reason
	lateness
	startedAt
	finishedAt
	instance
	bootID
	message
	notes
)

// window summarizes the runs that were settled in a window of time.
type window struct {
	runs   int64
	counts map[string]*count // by minute, group, state, reason and bucket
	jobs   map[int64]*jobRuns
	ids    []int64           // of the jobs
	places map[string]*place // by group and boot id
	free   []jobRuns         // memory for further jobs
	key    []byte            // the key of the last row
}

// count is a number of runs that finished in the same minute, in the same way.
type count struct {
	minute               int64 // since 2000
	group, state, reason string
	bucket               int32 // of the lateness; -1: the run has not started
	runs, micros         int64
}

// jobRuns summarizes the succeeded and failed runs of a job.
type jobRuns struct {
	success   jobhealth.Run // the newest one
	place     *place        // where it ran; not nil
	durations []byte        // of the succeeded runs, newest last
	first     [4]byte       // the memory of the first durations
	failed    *failedRuns   // nil: none
}

type failedRuns struct {
	runs                   []jobhealth.Run
	newest                 domain.RunID
	place                  *place // of the newest; not nil
	reason, message, notes string // of the newest
}

// place is a process of an executor.
type place struct {
	group, boot, instance string
	version               string // of the executor; empty: unknown
}

// readWindow reads the runs that were settled in [lo, hi).
func readWindow(ctx context.Context, tx pgx.Tx, lo, hi time.Time) (*window, error) {
	w := &window{counts: make(map[string]*count), jobs: make(map[int64]*jobRuns), places: make(map[string]*place)}
	rows, err := tx.Query(ctx, settledRuns, binaryFormat, lo, hi)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		w.add(rows.RawValues())
	}
	return w, rows.Err()
}

// add adds a row. It decodes the columns itself, because a scan of each row would take most of the roll-up's time.
func (w *window) add(row [][]byte) {
	w.runs++
	finished := number(row[finishedAt])
	var took time.Duration
	if row[startedAt] != nil {
		took = time.Duration(max(finished-number(row[startedAt]), 0)) * time.Microsecond
	}
	w.count(row, finished, took)
	failed := string(row[state]) == string(domain.Failed)
	if !failed && string(row[state]) != string(domain.Succeeded) {
		return
	}
	job := number(row[jobID])
	j := w.jobs[job]
	if j == nil {
		if len(w.free) == 0 {
			w.free = make([]jobRuns, 256)
		}
		j, w.free = &w.free[0], w.free[1:]
		j.durations = j.first[:0]
		w.jobs[job], w.ids = j, append(w.ids, job)
	}
	run := jobhealth.Run{ID: domain.RunID(row[runID]), At: instantOf(finished), Version: int32(binary.BigEndian.Uint32(row[jobVersion]))}
	if failed {
		j.fail(run, w.placeOf(row), row)
		return
	}
	j.succeed(run, w.placeOf(row), took)
}

// placeOf returns where a run ran.
func (w *window) placeOf(row [][]byte) *place {
	w.key = w.key[:0]
	for _, text := range [][]byte{row[groupName], row[bootID], row[instance]} {
		w.key = append(append(w.key, text...), 0)
	}
	p := w.places[string(w.key)]
	if p == nil {
		p = &place{group: string(row[groupName]), boot: string(row[bootID]), instance: string(row[instance])}
		w.places[string(w.key)] = p
	}
	return p
}

// addVersions sets the versions of the executors. A process that has ended before a dispatcher has recorded it has none.
func (w *window) addVersions(ctx context.Context, q *sqlcgen.Queries) error {
	var p sqlcgen.VersionsOfBootsParams
	byNumber := make([]*place, 0, len(w.places))
	for _, at := range w.places {
		if at.boot != "" {
			byNumber = append(byNumber, at)
			p.Groups, p.Boots = append(p.Groups, at.group), append(p.Boots, at.boot)
		}
	}
	if len(byNumber) == 0 {
		return nil
	}
	rows, err := q.VersionsOfBoots(ctx, p)
	if err != nil {
		return err
	}
	for _, r := range rows {
		byNumber[r.Number-1].version = r.Version
	}
	return nil
}

func (w *window) count(row [][]byte, finished int64, took time.Duration) {
	minute, late := finished/time.Minute.Microseconds(), int32(-1)
	if row[lateness] != nil {
		late = bucket(number(row[lateness]))
	}
	w.key = binary.BigEndian.AppendUint64(w.key[:0], uint64(minute))
	w.key = binary.BigEndian.AppendUint32(w.key, uint32(late))
	for _, text := range [][]byte{row[groupName], row[state], row[reason]} {
		w.key = append(append(w.key, text...), 0)
	}
	c := w.counts[string(w.key)]
	if c == nil {
		c = &count{minute: minute, group: string(row[groupName]), state: string(row[state]), reason: string(row[reason]), bucket: late}
		w.counts[string(w.key)] = c
	}
	c.runs++
	c.micros += took.Microseconds()
}

func (j *jobRuns) succeed(run jobhealth.Run, at *place, took time.Duration) {
	if bytes.Compare(run.ID[:], j.success.ID[:]) > 0 {
		j.success, j.place = run, at
	}
	j.durations = append(j.durations, jobhealth.Code(took))
}

func (j *jobRuns) fail(run jobhealth.Run, at *place, row [][]byte) {
	if j.failed == nil {
		j.failed = new(failedRuns)
	}
	f := j.failed
	f.runs = append(f.runs, run)
	if bytes.Compare(run.ID[:], f.newest[:]) > 0 {
		f.newest, f.place, f.reason, f.message, f.notes = run.ID, at, string(row[reason]), string(row[message]), string(row[notes])
	}
}

// bucket returns the bucket of a lateness in the table run_lateness.
func bucket(ms int64) int32 {
	if ms < 1 {
		return 0
	}
	return 1 + int32(math.Floor(4*math.Log(float64(ms))/math.Ln2))
}

// number decodes a bigint, or the microseconds since 2000 of an instant.
func number(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

// instantOf returns the instant some microseconds after the beginning of 2000.
func instantOf(micros int64) time.Time {
	const year2000 = 946_684_800 // in seconds
	return time.UnixMicro(year2000*1_000_000 + micros).UTC()
}

// addCounts adds the window's runs to the counts. The order of the rows is the same in all transactions.
func (w *window) addCounts(ctx context.Context, q *sqlcgen.Queries) error {
	if len(w.counts) == 0 {
		return nil
	}
	var p sqlcgen.AddCountsParams
	for _, c := range w.counts {
		p.Ats = append(p.Ats, instantOf(c.minute*time.Minute.Microseconds()))
		p.GroupNames = append(p.GroupNames, c.group)
		p.States = append(p.States, c.state)
		p.Reasons = append(p.Reasons, c.reason)
		p.Buckets = append(p.Buckets, c.bucket)
		p.Runs = append(p.Runs, c.runs)
		p.DurationsMs = append(p.DurationsMs, c.micros/1000)
	}
	return q.AddCounts(ctx, p)
}

// jobsThat returns the jobs for which which is true, in the order of w.ids.
func (w *window) jobsThat(which func(*jobRuns) bool) []int64 {
	ids := make([]int64, 0, len(w.ids))
	for _, id := range w.ids {
		if which(w.jobs[id]) {
			ids = append(ids, id)
		}
	}
	return ids
}
