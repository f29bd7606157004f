// Package jobchange compares the last success of a failing job with its last failure: what changed in between. It reads the versions of the job,
// which are never deleted, and the copies of the runs in the health of the job.
package jobchange

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Failing is a failing job that has succeeded before.
type Failing struct {
	Job     domain.JobID
	Success domain.LastSuccess
	Failure domain.LastFailure // only the version, the instance and the version of the executor are read
}

// DB reads the versions of jobs.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// versions returns for each job with a number: the newest edit between two of its versions, and the versions of its script in both. Edits that
// only enable or disable the job do not count. Of more than 100 versions, it looks at the newest 100.
const versions = `SELECT u.number, e.changed_by, e.valid_from, coalesce(a.script, 0), coalesce(b.script, 0)
  FROM (SELECT unnest($1::bigint[]) AS job_id, unnest($2::integer[]) AS good, unnest($3::integer[]) AS bad, generate_series(0, cardinality($1::bigint[]) - 1) AS number) u
  LEFT JOIN LATERAL (
       SELECT v.changed_by, v.valid_from
         FROM (SELECT o.version, o.changed_by, o.valid_from, o.change FROM job_versions o
                WHERE o.job_id = u.job_id AND o.version > u.good AND o.version <= u.bad ORDER BY o.version DESC LIMIT 100) v
        WHERE v.change NOT IN ('enabled', 'disabled') ORDER BY v.version DESC LIMIT 1) e ON true
  LEFT JOIN LATERAL (SELECT (o.spec->'script'->>'version')::integer AS script FROM job_versions o WHERE o.job_id = u.job_id AND o.version = u.good) a ON true
  LEFT JOIN LATERAL (SELECT (o.spec->'script'->>'version')::integer AS script FROM job_versions o WHERE o.job_id = u.job_id AND o.version = u.bad) b ON true
 ORDER BY u.number`

// edit is what the versions of a job say.
type edit struct {
	by           *string
	at           *time.Time
	good, script int32 // versions of the script; 0: none
}

// Of returns what changed between the last success and the last failure of each job, in the order of the jobs.
func Of(ctx context.Context, db DB, jobs []Failing) ([][]explain.Explanation, error) {
	out := make([][]explain.Explanation, len(jobs))
	if len(jobs) == 0 {
		return out, nil
	}
	ids, good, bad := make([]int64, len(jobs)), make([]int32, len(jobs)), make([]int32, len(jobs))
	for i, j := range jobs {
		ids[i], good[i], bad[i] = int64(j.Job), int32(j.Success.Version), int32(j.Failure.Version)
	}
	rows, err := db.Query(ctx, versions, ids, good, bad)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	defer rows.Close()
	for rows.Next() {
		var i int
		var e edit
		if err := rows.Scan(&i, &e.by, &e.at, &e.good, &e.script); err != nil {
			return nil, pgerr.Translate(err)
		}
		out[i] = jobs[i].changes(e)
	}
	return out, pgerr.Translate(rows.Err())
}

func (f *Failing) changes(e edit) []explain.Explanation {
	var out []explain.Explanation
	add := func(code explain.Code, args ...any) { out = append(out, *explain.Of(code, args...).Explanation()) }
	if e.by != nil && e.at != nil {
		add(explain.JobEdited, f.Success.Version, f.Failure.Version, *e.by, domain.At(*e.at).UTC().Format(domain.InstantLayout))
	}
	if e.good != e.script && e.good > 0 && e.script > 0 {
		add(explain.ScriptEdited, int(e.good), int(e.script))
	}
	if from, to := f.Success.ExecutorVersion, f.Failure.ExecutorVersion; from != to && from != "" && to != "" {
		add(explain.ExecutorChanged, from, to)
	}
	if from, to := f.Success.Instance, f.Failure.Instance; from != to && from != "" && to != "" {
		add(explain.InstanceChanged, from, to)
	}
	return out
}
