package store

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// finishRuns settles the most frequent result by one statement: it moves attempts that succeeded on the boot they are
// bound to into the history. Runs that do not match, are shards, or have a kill request stay. If the last parameter is
// set, only runs of plain jobs are moved, because no other row of theirs needs a lock. The ids are sorted and unique,
// so that runs are locked by id. They are passed twice, so that a small batch does not read all live runs (see
// AdmitRuns). An empty array stands for nulls. A giver is an index into the instances, boots and groups, used if many
// results share them; otherwise each result has its own values.
//
// The query is here and not in query/, because sqlc does not know that a DELETE may return columns of the joined rows.
const finishRuns = `-- name: FinishRuns :many
WITH d AS (
    DELETE FROM runs_live r
     USING (SELECT generate_series(1, $1::int) AS place, unnest($2::uuid[]) AS id, unnest($3::int[]) AS attempt,
                   unnest($13::int[]) AS giver, unnest($14::text[]) AS instance, unnest($15::text[]) AS boot,
                   unnest($16::text[]) AS group_name, unnest($7::text[]) AS message, unnest($8::text[]) AS output, unnest($9::timestamptz[]) AS started_at,
                   unnest($10::timestamptz[]) AS finished_at, unnest($11::bigint[]) AS last_line) e
     WHERE r.id = ANY($2::uuid[]) AND r.id = e.id
       AND (r.attempt = e.attempt AND r.instance = COALESCE(e.instance, ($4::text[])[e.giver])
            AND r.boot_id = COALESCE(e.boot, ($5::text[])[e.giver]) AND r.group_name = COALESCE(e.group_name, ($6::text[])[e.giver])
            AND (r.plain OR NOT $12::bool) AND r.kill_requested_at IS NULL AND r.broadcast_id IS NULL
            AND r.state IN ('queued', 'running')) IS TRUE
    RETURNING e.place, r.id, r.job_id, r.job_version, r.group_name, r.cause, COALESCE(e.message, '') AS message,
              COALESCE(e.output, '') AS output, r.param, r.attempt, r.fire_time, r.due_at, r.created_at, r.dispatched_at,
              GREATEST(COALESCE(NULLIF(e.started_at, 'epoch'), r.started_at), r.created_at) AS started_at,
              GREATEST(e.finished_at, r.created_at) AS finished_at,
              COALESCE(CASE WHEN r.attempt > 1 THEN r.lateness_ms END,
                       (extract(epoch FROM NULLIF(e.started_at, 'epoch') - r.due_at) * 1000)::bigint, r.lateness_ms) AS lateness_ms,
              COALESCE(e.last_line, 0) AS last_line, r.instance, r.boot_id, r.route, r.route_note, r.parent_run_id, r.event_id, r.trace, r.waiting_note, r.waited_ms
), h AS (
    INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, param,
           attempt, fire_time, due_at, created_at, dispatched_at, started_at, finished_at, lateness_ms,
           last_line, instance, boot_id, route, route_note, parent_run_id, event_id, trace, waited_note, waited_ms)
    SELECT id, job_id, job_version, group_name, cause, 'succeeded', '', message, output, param,
           attempt, fire_time, due_at, created_at, dispatched_at, started_at, finished_at, lateness_ms,
           last_line, instance, boot_id, route, route_note, parent_run_id, event_id, trace, waiting_note, waited_ms
      FROM d
)
SELECT place, job_id, job_version, cause, fire_time, finished_at, lateness_ms FROM d`

// finished is a run that finishRuns has moved, with the values that its result lacks.
type finished struct {
	in         int32 // index into the results
	job        int64
	version    int32
	cause      string
	fireTime   *time.Time
	finishedAt time.Time
	lateness   *int64 // milliseconds
}

// giver identifies the instance that reported an attempt's end.
type giver struct{ instance, boot, group string }

// finish moves runs that succeeded into the history: only those of plain jobs if plain is set, otherwise only those in
// among. Results with an explanation of the engine are not among them, because the statement writes no notes. It sets
// the dispositions of their results in out.
func finish(ctx context.Context, db sqlcgen.DBTX, in []engine.Ended, now time.Time, among map[domain.RunID]bool, plain bool, out *SettleResult) ([]finished, error) {
	first := make([]int, 0, len(in)) // results that may be settled this way
	for i, e := range in {
		if e.Outcome == domain.OutcomeSucceeded && e.Group != "" && e.Reason == "" && e.Why == "" && (plain || among[e.RunID]) {
			first = append(first, i)
		}
	}
	if len(first) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(first, func(a, b int) int { return bytes.Compare(in[a].RunID[:], in[b].RunID[:]) })
	first = slices.CompactFunc(first, func(a, b int) bool { return in[a].RunID == in[b].RunID })
	n := len(first)
	ids, attempts := make([]domain.RunID, n), make([]int32, n)
	givers := newShared[giver](n)
	startedAts, finishedAts := make([]time.Time, n), make([]time.Time, n)
	messages, outputs, lastLines := []string{}, []string{}, []int64{}
	for k, i := range first {
		e := in[i]
		clean(&e, now, time.Time{})
		ids[k], attempts[k] = e.RunID, int32(e.Attempt)
		givers.add(giver{e.Instance, e.BootID, e.Group})
		startedAts[k], finishedAts[k] = epoch(e.StartedAt), e.FinishedAt
		if e.Message != "" {
			messages = atPlace(messages, n, k, e.Message, "")
		}
		if e.Output != "" {
			outputs = atPlace(outputs, n, k, e.Output, "")
		}
		if e.LastLine != 0 {
			lastLines = atPlace(lastLines, n, k, e.LastLine, 0)
		}
	}
	instances, ownInstances := texts(givers, func(g giver) string { return g.instance })
	boots, ownBoots := texts(givers, func(g giver) string { return g.boot })
	groups, ownGroups := texts(givers, func(g giver) string { return g.group })
	rows, err := db.Query(ctx, finishRuns, n, ids, attempts, instances, boots, groups, messages, outputs, startedAts, finishedAts, lastLines, plain,
		givers.places, ownInstances, ownBoots, ownGroups)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	done := make([]finished, 0, n)
	for rows.Next() {
		var f finished
		if err := rows.Scan(&f.in, &f.job, &f.version, &f.cause, &f.fireTime, &f.finishedAt, &f.lateness); err != nil {
			return nil, err
		}
		f.in = int32(first[f.in-1])
		done = append(done, f)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	out.Changes = slices.Grow(out.Changes, len(done))
	for i := range done {
		f := &done[i]
		e := &in[f.in]
		out.Dispositions[f.in] = engine.Settled
		out.Changes = append(out.Changes, engine.Change{
			RunID: e.RunID, JobID: domain.JobID(f.job), JobVersion: int(f.version), Group: e.Group, Cause: domain.Cause(f.cause),
			State: domain.Succeeded, FireTime: f.fireTime, Attempt: e.Attempt, LatenessMS: f.lateness,
		})
	}
	return done, nil
}
