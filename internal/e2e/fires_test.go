//go:build unix

package e2e

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// fired is a scheduled run, with the fields that the checks of fire times need.
type fired struct {
	FireTime   time.Time
	Cause      domain.Cause
	State      domain.State
	Reason     domain.Reason
	Param      *string
	LatenessMS *int64
	Behind     *float64 // seconds from the fire time to the start
}

// late returns how long after its due instant the run started. A misfire becomes due when the misfire policy decides, so its lateness
// counts from the fire time.
func (f fired) late() (d time.Duration, started bool) {
	switch {
	case f.LatenessMS == nil || f.Behind == nil:
		return 0, false
	case f.Cause == domain.CauseMisfire:
		return time.Duration(*f.Behind * float64(time.Second)).Truncate(time.Millisecond), true
	default:
		return time.Duration(*f.LatenessMS) * time.Millisecond, true
	}
}

func firedBy(t testing.TB, db *pgxpool.Pool, job domain.JobID, until time.Time) []fired {
	t.Helper()
	return query(t, db, pgx.RowToStructByPos[fired], `
		SELECT fire_time, cause, state, reason, coalesce(param, v.spec->>'param'), lateness_ms, extract(epoch FROM started_at - fire_time)::float8
		  FROM runs JOIN job_versions v ON (v.job_id, v.version) = (runs.job_id, runs.job_version)
		 WHERE runs.job_id = $1 AND cause IN ('schedule', 'misfire') AND fire_time <= $2 ORDER BY fire_time`, job, until)
}

// settles waits until all runs with a fire time up to until have ended.
func settles(t testing.TB, db *pgxpool.Pool, until time.Time, bound time.Duration) {
	t.Helper()
	eventually(t, bound, "all runs that are due have ended", func() bool {
		return queryOne[time.Time](t, db, `SELECT clock_timestamp()`).After(until.Add(latest)) &&
			queryOne[int](t, db, `SELECT count(*) FROM runs_live WHERE fire_time <= $1`, until) == 0
	})
}

// demand is the set of ends that firesExactly accepts.
type demand int

const (
	eachSucceeds   demand = iota // each run succeeds, at any time, because Postgres or NATS may have been away
	anythingKilled               // a run may also be lost, and a fire time may be missed
)

// firesExactly checks that each fire time of a job, from its creation up to until, has exactly one run, which ended as demanded. The
// job must not have been edited.
func firesExactly(t testing.TB, db *pgxpool.Pool, job domain.Job, until time.Time, p demand) (count int, worst time.Duration) {
	t.Helper()
	compiled, err := schedule.Compile(job.Schedule, schedule.Options{DefaultZone: time.UTC, CreatedAt: job.CreatedAt.Time})
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[int64]int)
	for _, f := range fireTimes(job, compiled, until) {
		want[f.UnixMilli()] = 0
		count++
	}
	for _, r := range firedBy(t, db, job.ID, until) {
		at := r.FireTime.UTC().Format("15:04:05.000")
		_, due := want[r.FireTime.UnixMilli()]
		late, started := r.late()
		good := r.State == domain.Succeeded && started
		switch p {
		case eachSucceeds: // also a misfire; the caller judges the lateness
		case anythingKilled:
			good = r.Cause == domain.CauseSchedule && (good || r.State == domain.Failed && r.Reason == domain.ReasonLost)
		}
		switch {
		case !due:
			t.Errorf("%s: a run at %s, which is not a fire time", job.Name, at)
			continue
		case !good:
			t.Errorf("%s: fire time %s: a run of cause %s is %s/%s", job.Name, at, r.Cause, r.State, r.Reason)
		}
		want[r.FireTime.UnixMilli()]++
		if !started {
			continue
		}
		if worst = max(worst, late); p == eachSucceeds && late > latest {
			t.Logf("%s: fire time %s was %v late, by the database's clock", job.Name, at, late)
		}
	}
	dropped := ledger(t, db, job.ID)
	if p != anythingKilled && len(dropped) > 0 {
		t.Errorf("%s: in the missed ledger: %+v", job.Name, dropped)
	}
	for f, n := range want {
		for _, d := range dropped {
			if f >= d.First.UnixMilli() && f <= d.Last.UnixMilli() {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s: fire time %s has %d runs and ledger entries", job.Name, time.UnixMilli(f).UTC().Format("15:04:05.000"), n)
		}
	}
	return count, worst
}

// drop is an entry of the missed ledger.
type drop struct {
	First, Last time.Time
	Count       int
	Why         explain.Note
}

func ledger(t testing.TB, db *pgxpool.Pool, job domain.JobID) []drop {
	t.Helper()
	return query(t, db, pgx.RowToStructByPos[drop], `SELECT first_fire_time, last_fire_time, count, coalesce(why_note, '') FROM missed WHERE job_id = $1`, job)
}

// fireTimes returns the fire times up to until of a job with an unchanged schedule. A fire time counts if its due instant, which
// includes the jitter, is after the job's creation.
func fireTimes(job domain.Job, s *schedule.Schedule, until time.Time) (all []time.Time) {
	for f, ok := s.Next(job.CreatedAt.Add(-job.Schedule.Jitter.Std())); ok && !f.After(until); f, ok = s.Next(f) {
		if s.Due(job.ID, f).After(job.CreatedAt.Time) {
			all = append(all, f)
		}
	}
	return all
}
