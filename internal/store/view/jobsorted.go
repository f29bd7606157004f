package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// JobSort is the order of a list of jobs.
type JobSort string

// The orders of jobs. Jobs without a value come last, by id.
const (
	SortID           JobSort = ""
	SortName         JobSort = "name"
	SortNextFireTime JobSort = "next_fire_time" // the soonest first, without the fire times that are planned already
	SortLastFailure  JobSort = "last_failure"   // the newest first
	SortFailingSince JobSort = "failing_since"  // the longest failing first
	SortP95          JobSort = "p95_ms"         // the slowest first
)

// JobPlace is the place of a job in a sorted list, after which a page begins. The zero value is the beginning.
type JobPlace struct {
	Rest bool // among the jobs without a value
	ID   domain.JobID
	Key  string // the value of the job
}

// valueWalk says how the jobs with a value are walked along an index.
type valueWalk struct {
	table, where string // table is t
	id, value    string // columns
	tie          string // orders jobs with the same value, by id; empty: id
	desc         bool
	missing      string                        // of a job j with health h and failures f: it has no value; empty: all have one
	scan         func(key string) (any, error) // reads a value from a cursor
}

var valueWalks = map[JobSort]valueWalk{
	SortName: {"jobs t", "true", "t.id", "t.name", "", false, "", scanText},
	SortNextFireTime: {"job_due t", "t.next_due_at IS NOT NULL", "t.job_id", "t.next_due_at", "", false,
		"NOT EXISTS (SELECT FROM job_due d WHERE d.job_id = j.id AND d.next_due_at IS NOT NULL)", scanInstant},
	SortLastFailure:  {"job_failures t", "true", "t.job_id", "t.failed_at", indexed, true, "f.job_id IS NULL", scanInstant},
	SortFailingSince: {"job_failures t", "t.failing", "t.job_id", "t.failing_since", indexed, false, "f.failing IS NOT TRUE", scanInstant},
	SortP95:          {"job_health t", "true", "t.job_id", "t.p95", indexed, true, "h.job_id IS NULL", scanNumber},
}

// indexed is the second column of the indexes on the health of jobs.
const indexed = "(t.job_id + 0)"

func scanText(key string) (any, error)    { return key, nil }
func scanInstant(key string) (any, error) { return time.Parse(time.RFC3339Nano, key) }
func scanNumber(key string) (any, error)  { return strconv.ParseInt(key, 10, 16) }

// shownKey returns a value as a cursor has it.
func shownKey(value any) string {
	if at, ok := value.(time.Time); ok {
		return at.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(value)
}

// ErrPlace means that a place does not belong to the order.
var ErrPlace = domain.NewError(domain.Invalid, "this is not a place in the list")

// SortedJobs lists jobs in an order, after a place. next is the place after which the next page begins, or nil if there is none. Like Jobs, a page
// reads 10,000 jobs at most, so it may be short or empty and still not be the last. Of groups with up to 10,000 jobs together, a page reads no
// other jobs. f.After is not used. ErrPlace: the place does not belong to the order.
func (s *Store) SortedJobs(ctx context.Context, f JobFilter, sort JobSort, after JobPlace) (jobs []domain.Job, next *JobPlace, err error) {
	if g := f.groups(); g != nil && len(g) == 0 {
		return []domain.Job{}, nil, nil
	}
	w := &sortedWalk{f: f, sort: sort, groups: f.groups(), at: after}
	if w.few, err = s.few(ctx, w.groups); err != nil {
		return nil, nil, err
	}
	w.begin()
	found, next, err := s.walk(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	jobs, err = s.jobsByID(ctx, f, found)
	slices.SortFunc(jobs, func(a, b domain.Job) int { return slices.Index(found, int64(a.ID)) - slices.Index(found, int64(b.ID)) })
	return jobs, next, err
}

// few reports whether the groups have so few jobs that all of them can be read for one page.
func (s *Store) few(ctx context.Context, groups []string) (bool, error) {
	if groups == nil {
		return false, nil
	}
	n, err := s.q.JobsOfGroups(ctx, groups)
	return n <= searchRows, pgerr.Translate(err)
}

// sortedWalk is a walk over sorted jobs.
type sortedWalk struct {
	f      JobFilter
	sort   JobSort
	groups []string
	few    bool // the groups have few jobs
	at     JobPlace
}

// begin skips the jobs with a value, if none of them can match.
func (w *sortedWalk) begin() {
	walk, sorted := valueWalks[w.sort]
	if w.at == (JobPlace{}) && (!sorted && w.f.Health != domain.HealthFailing || sorted && (walk.table == "job_failures t" || walk.table == "job_health t") && w.f.Health == domain.HealthUnknown) {
		w.at.Rest = true
	}
}

// restMatches reports whether a job without a value can match.
func (w *sortedWalk) restMatches() bool {
	walk := valueWalks[w.sort]
	return walk.missing != "" && (w.f.Health != domain.HealthFailing || w.sort != SortLastFailure && w.sort != SortFailingSince)
}

// walk returns the ids of a page.
func (s *Store) walk(ctx context.Context, w *sortedWalk) (found []int64, next *JobPlace, err error) {
	looked, rows := 0, max(w.f.Limit+1, firstRows)
	for ; ; rows *= 4 {
		rows = max(min(rows, searchRows-looked), w.f.Limit+1)
		n := 0
		last := w.at
		full := false
		err := s.eachKey(ctx, w, rows, func(k JobPlace, fits bool) {
			n++
			if full {
				return
			}
			if fits && len(found) == w.f.Limit {
				full = true
				return
			}
			if last = k; fits {
				found = append(found, int64(k.ID))
			}
		})
		if err != nil {
			return nil, nil, err
		}
		w.at = last
		switch looked += n; {
		case full:
			return found, &last, nil
		case n < rows && (last.Rest || !w.restMatches()):
			return found, nil, nil
		case n < rows:
			w.at = JobPlace{Rest: true}
		}
		if looked >= searchRows || len(found) == w.f.Limit {
			at := w.at
			return found, &at, nil
		}
	}
}

// eachKey calls do with the next jobs of the walk, in order.
func (s *Store) eachKey(ctx context.Context, w *sortedWalk, rows int, do func(k JobPlace, fits bool)) error {
	sql, args, err := w.statement(rows)
	if err != nil {
		return err
	}
	got, err := s.pool.Query(ctx, sql, args)
	if err != nil {
		return pgerr.Translate(err)
	}
	defer got.Close()
	for got.Next() {
		var value any
		k := JobPlace{Rest: w.at.Rest}
		var fits bool
		if err := got.Scan(&value, &k.ID, &fits); err != nil {
			return pgerr.Translate(err)
		}
		if !k.Rest {
			k.Key = shownKey(value)
		}
		do(k, fits)
	}
	return pgerr.Translate(got.Err())
}

// statement returns the statement that walks further from the current place.
func (w *sortedWalk) statement(rows int) (string, pgx.NamedArgs, error) {
	args := pgx.NamedArgs{"groups": w.groups, "id": int64(w.at.ID), "rows": rows, "kind": nonZero(string(w.f.Kind)), "enabled": w.f.Enabled,
		"needle": nonZero(strings.ToLower(w.f.Query)), "tag": nonZero(w.f.Tag), "calendar": nonZero(w.f.Calendar),
		"child": nonZero(int64(w.f.Child)), "health": nonZero(string(w.f.Health))}
	from, fits, order := w.byID(), matches, "w.id"
	if walk := valueWalks[w.sort]; w.at.Rest && walk.missing != "" {
		fits += " AND " + walk.missing
	}
	if walk, sorted := valueWalks[w.sort]; sorted && !w.at.Rest {
		var err error
		if from, err = w.byValue(walk, args); err != nil {
			return "", nil, err
		}
		order = "w.value, w.id"
		if walk.desc {
			order = "w.value DESC, w.id DESC"
		}
	}
	return "SELECT w.value, w.id, (" + fits + ") AS fits FROM (" + from + ") w" + looks + " ORDER BY " + order, args, nil
}

// looks looks into the tables once for each job of a walk. The planner could otherwise read whole tables for a page.
const looks = ` CROSS JOIN LATERAL (SELECT * FROM jobs o WHERE o.id = w.id OFFSET 0) j
	LEFT JOIN LATERAL (SELECT o.job_id FROM job_health o WHERE o.job_id = w.id OFFSET 0) h ON true
	LEFT JOIN LATERAL (SELECT o.job_id, o.failing FROM job_failures o WHERE o.job_id = w.id OFFSET 0) f ON true`

// matches is the condition of the filter for a job j with health h and failures f.
const matches = `(@groups::text[] IS NULL OR j.group_name = ANY (@groups))
	AND (@kind::text IS NULL OR j.kind = @kind) AND (@enabled::boolean IS NULL OR j.enabled = @enabled)
	AND (@tag::text IS NULL OR j.tags @> ARRAY[@tag]) AND (@calendar::text IS NULL OR j.calendar IS NOT DISTINCT FROM @calendar)
	AND (@child::bigint IS NULL OR EXISTS (SELECT FROM job_children c WHERE c.parent_id = j.id AND c.child_id = @child))
	AND (@health::text IS NULL OR @health = CASE WHEN f.failing THEN 'failing' WHEN h.job_id IS NULL AND f.job_id IS NULL THEN 'unknown' ELSE 'ok' END)
	AND (@needle::text IS NULL OR strpos(lower(j.name), @needle) > 0 OR strpos(lower(coalesce(j.spec->>'description', '')), @needle) > 0
	     OR strpos(lower(coalesce(j.spec->>'handler', '')), @needle) > 0)`

// byID walks jobs by id: all jobs, those of some groups, or the failing ones of each group, each along its index.
func (w *sortedWalk) byID() string {
	switch {
	case !w.at.Rest:
		groups := "groups g"
		if w.groups != nil {
			groups = "unnest(@groups::text[]) AS g (name)"
		}
		return fmt.Sprintf(`SELECT NULL::text AS value, r.job_id AS id FROM %s CROSS JOIN LATERAL (SELECT t.job_id FROM job_failures t
			WHERE t.failing AND t.group_name = g.name AND %s > @id ORDER BY %[2]s LIMIT @rows) r ORDER BY r.job_id LIMIT @rows`, groups, indexed)
	case w.groups != nil:
		return `SELECT NULL::text AS value, r.id FROM unnest(@groups::text[]) AS g (name)
			CROSS JOIN LATERAL (SELECT t.id FROM jobs t WHERE t.group_name = g.name AND t.id > @id ORDER BY t.id LIMIT @rows) r ORDER BY r.id LIMIT @rows`
	}
	return "SELECT NULL::text AS value, t.id FROM jobs t WHERE t.id > @id ORDER BY t.id LIMIT @rows"
}

// byValue walks jobs by a value. Names are walked in each group along its index. Otherwise, if the groups have few jobs, these are sorted.
func (w *sortedWalk) byValue(walk valueWalk, args pgx.NamedArgs) (string, error) {
	where, direction, tie := walk.where, "", cmp.Or(walk.tie, walk.id)
	if walk.desc {
		direction = " DESC"
	}
	if w.at != (JobPlace{}) {
		value, err := walk.scan(w.at.Key)
		if err != nil {
			return "", ErrPlace
		}
		args["value"] = value
		compare := ">"
		if walk.desc {
			compare = "<"
		}
		where += fmt.Sprintf(" AND (%s, %s) %s (@value, @id)", walk.value, tie, compare)
	}
	order := fmt.Sprintf("ORDER BY %s%s, %s%s LIMIT @rows", walk.value, direction, tie, direction)
	switch {
	case w.sort == SortName && w.groups != nil:
		return fmt.Sprintf(`SELECT r.value, r.id FROM unnest(@groups::text[]) AS g (name)
			CROSS JOIN LATERAL (SELECT t.name AS value, t.id FROM jobs t WHERE t.group_name = g.name AND %s %s) r ORDER BY r.value, r.id LIMIT @rows`, where, order), nil
	case w.few:
		return fmt.Sprintf(`WITH few AS MATERIALIZED (SELECT id FROM jobs WHERE group_name = ANY (@groups) LIMIT %d)
			SELECT %s AS value, few.id FROM few JOIN %s ON %s = few.id WHERE %s %s`, 2*searchRows, walk.value, walk.table, walk.id, where, order), nil
	}
	return fmt.Sprintf("SELECT %s AS value, %s AS id FROM %s WHERE %s %s", walk.value, walk.id, walk.table, where, order), nil
}
