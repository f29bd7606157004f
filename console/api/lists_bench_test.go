package api_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/console/api"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/auditlog"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/store/group"
	"github.com/belfryhq/belfry/internal/store/idempotency"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
)

// listWorld is an API over a given number of jobs and finished runs, in 20 groups, over 10 days.
type listWorld struct {
	tb     testing.TB
	pool   *pgxpool.Pool
	api    *api.API
	admin  string
	viewer string // the token of a viewer of one group
	jobs   int
}

func newListWorld(tb testing.TB, jobs, runs int) *listWorld {
	tb.Helper()
	s, err := store.Open(tb.Context(), store.Config{URL: pgtest.Database(tb, store.Migrate)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	accounts, metrics := account.New(s.Pool()), prometheus.NewRegistry()
	w := &listWorld{tb: tb, pool: s.Pool(), jobs: jobs, api: api.New(api.Config{
		Jobs: s, Calendars: s, Pauses: s, Fleet: &fleet{store: s}, Views: view.New(s.Pool()),
		Authenticator: accounts, Users: accounts.Users, Sessions: accounts.Sessions, Tokens: accounts.Tokens,
		Groups: group.New(s.Pool()), Gateways: gateway.New(s.Pool(), strings.Repeat("k", 32)), AuditLog: auditlog.New(s.Pool()), Idempotency: idempotency.New(s.Pool(), ""),
		Reports:    statstore.New(s.Pool()),
		Registerer: metrics, Gatherer: metrics, Log: slog.New(slog.DiscardHandler),
	})}
	w.fill(runs)
	if _, _, err := accounts.Users.EnsureAdmin(tb.Context(), adminPassword); err != nil {
		tb.Fatal(err)
	}
	if _, err := accounts.Users.CreateUser(tb.Context(), account.NewUser{Name: "vera", Password: adminPassword, Role: account.Viewer, Groups: []string{"g3"}}); err != nil {
		tb.Fatal(err)
	}
	w.exec(`UPDATE users SET must_change_password = false`)
	for name, token := range map[string]*string{"admin": &w.admin, "vera": &w.viewer} {
		ticket, err := accounts.Sessions.LogIn(tb.Context(), name, adminPassword, account.Origin{})
		if err != nil {
			tb.Fatal(err)
		}
		*token = ticket.Token
	}
	return w
}

func (w *listWorld) exec(sql string, args ...any) {
	w.tb.Helper()
	if _, err := w.pool.Exec(w.tb.Context(), sql, args...); err != nil {
		w.tb.Fatal(err)
	}
}

func (w *listWorld) fill(runs int) {
	const days = 10
	w.exec(`INSERT INTO groups (name, token_sha256) SELECT 'g' || i, decode(md5(i::text), 'hex') FROM generate_series(0, 19) i`)
	w.exec(`CREATE TEMPORARY TABLE made AS SELECT i, jsonb_build_object('group', 'g' || i % 20, 'name', 'job ' || i, 'description', 'does things of kind ' || i % 977,
	               'handler', 'echo', 'enabled', i % 9 <> 0, 'retries', 1, 'block', 'serial', 'tags', jsonb_build_array('t' || i % 100, 'all'),
	               'schedule', jsonb_build_object('kind', 'cron', 'expr', (i % 60) || ' ' || (i % 24) || ' * * *')) AS spec
	          FROM generate_series(1, $1::int) i`, w.jobs)
	w.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, tags, spec, version, created_at, updated_at)
	        SELECT i, 'g' || i % 20, 'job ' || i, i % 9 <> 0, 'cron', ARRAY['t' || i % 100, 'all'], spec, 1, now(), now() FROM made`)
	w.exec(`INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
	        SELECT i, 1, spec, now(), now(), 'bench', 'created' FROM made`)
	w.exec(`INSERT INTO job_due (job_id, version, next_fire_time, next_due_at)
	        SELECT i, 1, f, f FROM (SELECT i, CASE WHEN i % 9 <> 0 THEN date_trunc('ms', now()) + i % 86400 * interval '1 s' END AS f FROM made) x`)
	w.exec(`INSERT INTO missed (job_id, first_fire_time, last_fire_time, count, policy, why) SELECT i, now(), now(), 1, 'skip', 'nobody was there' FROM made WHERE i % 49 = 0 ORDER BY i`)
	w.exec(`DROP TABLE made`)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for d := range days {
		day := today.AddDate(0, 0, d-days+1)
		span := min(24*time.Hour, time.Since(day)-time.Second)
		table := "runs_history_" + day.Format("20060102")
		w.exec(`SELECT make_day($1::date)`, day)
		// Building the indexes after the inserts is much faster than updating them during the inserts.
		w.exec(`ALTER TABLE runs_history DETACH PARTITION ` + table)
		w.exec(`DROP TABLE ` + table)
		w.exec(`CREATE TABLE ` + table + ` (LIKE runs_history INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)`)
		w.exec(fmt.Sprintf(`INSERT INTO %s (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, fire_time, due_at,
		       created_at, dispatched_at, started_at, finished_at, lateness_ms, last_line, instance, boot_id, route, settled_at)
		SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '8' || substr(h, 1, 3) || 'a' || substr(h, 4, 15))::uuid,
		       job, 1, 'g' || job %% 20, 'schedule', CASE WHEN i %% 97 = 0 THEN 'failed' ELSE 'succeeded' END, CASE WHEN i %% 97 = 0 THEN 'timeout' ELSE '' END, '', '', 1,
		       at, at, at, at, at, at, 1, 0, 'executor-' || i %% 50, h, 'any: the least loaded of 50', at
		  FROM generate_series(0, $2::bigint - 1) i,
		       LATERAL (SELECT $1::timestamptz + i * ($3::float8 / $2) * interval '1 second' AS at, md5($1::text || i) AS h, (1 + (i * 7919) %% $4::bigint)::bigint AS job) w`,
			table), day, runs/days, span.Seconds(), w.jobs)
		var bounds string
		if err := w.pool.QueryRow(w.tb.Context(), `SELECT format('FROM (%L) TO (%L)', first_run_id($1::timestamptz), first_run_id($1::timestamptz + interval '1 day'))`,
			day).Scan(&bounds); err != nil {
			w.tb.Fatal(err)
		}
		w.exec(`ALTER TABLE runs_history ATTACH PARTITION ` + table + ` FOR VALUES ` + bounds)
	}
	w.exec(`INSERT INTO run_stats (span, at, group_name, state, reason, runs, duration_ms)
	        SELECT s, to_timestamp(extract(epoch FROM now())::bigint / s * s - n * s), 'g' || g, 'succeeded', '', 100, 1000
	          FROM (VALUES (60, 4000), (3600, 240)) v (s, most), generate_series(1, most) n, generate_series(0, 19) g`)
	w.exec(`INSERT INTO missed_stats (span, at, group_name, fires) SELECT s, date_bin(make_interval(secs => s), at, 'epoch'), group_name, sum(count)
	          FROM missed, (VALUES (60), (3600)) v (s) GROUP BY 1, 2, 3`)
	w.exec(`UPDATE run_stats_mark SET through = now(), missed_through = now(), health_through = now()`)
	w.exec(`VACUUM ANALYZE`)
}

// lists maps names to the list pages to measure. For each request, ask replaces %d, %g, %j and %c with a new number.
var lists = map[string]struct {
	path   string
	viewer bool
}{
	"jobs":                          {path: "/jobs?last_runs=10"},
	"jobs, a later page":            {path: "/jobs?last_runs=10&cursor=%c"},
	"jobs, as a viewer":             {path: "/jobs?last_runs=10", viewer: true},
	"jobs of a group":               {path: "/jobs?group=g%g&last_runs=10"},
	"jobs with a tag":               {path: "/jobs?tag=t%d"},
	"jobs with a common tag":        {path: "/jobs?tag=all&cursor=%c"},
	"jobs of a group, common tag":   {path: "/jobs?tag=all&group=g%g"},
	"jobs that are disabled":        {path: "/jobs?enabled=false"},
	"jobs of a group, disabled":     {path: "/jobs?enabled=false&group=g%g"},
	"jobs of a group, enabled":      {path: "/jobs?enabled=true&group=g%g&last_runs=10"},
	"jobs by a common word":         {path: "/jobs?q=kind"},
	"jobs by a rare word":           {path: "/jobs?q=job%%20%j"},
	"runs":                          {path: "/runs"},
	"runs, as a viewer":             {path: "/runs", viewer: true},
	"runs of a group":               {path: "/runs?group=g%g"},
	"runs of a job":                 {path: "/runs?job_id=%j"},
	"runs that failed":              {path: "/runs?state=failed"},
	"runs that failed, as a viewer": {path: "/runs?state=failed", viewer: true},
	"runs that wait":                {path: "/runs?state=queued"},
	"runs of a job that failed":     {path: "/runs?job_id=%j&state=failed"},
	"overview":                      {path: "/overview"},
	"overview, as a viewer":         {path: "/overview", viewer: true},
	"overview of a group":           {path: "/overview?group=g%g"},
	"upcoming":                      {path: "/upcoming?within=24h"},
	"upcoming, as a viewer":         {path: "/upcoming?within=24h", viewer: true},
	"missed of a job":               {path: "/jobs/%j/missed"},
	"groups":                        {path: "/groups"},
}

// ask returns how long the i-th request of a page takes.
func (w *listWorld) ask(name string, i int) time.Duration {
	w.tb.Helper()
	l := lists[name]
	token := w.admin
	if l.viewer {
		token = w.viewer
	}
	job := 1 + i*7919%w.jobs
	path := strings.NewReplacer("%%", "%", "%d", strconv.Itoa(i%100), "%g", strconv.Itoa(i%20), "%j", strconv.Itoa(job), "%c", rest.NumberCursor("job", int64(job))).Replace(l.path)
	r := httptest.NewRequestWithContext(w.tb.Context(), "GET", "/api/v1"+path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	rec := httptest.NewRecorder()
	start := time.Now()
	w.api.ServeHTTP(rec, r)
	took := time.Since(start)
	if rec.Code != 200 {
		w.tb.Fatalf("%s: %d %s", path, rec.Code, rec.Body)
	}
	return took
}

// TestListsOfTheBenchmark requests each page of BenchmarkLists once.
func TestListsOfTheBenchmark(t *testing.T) {
	t.Parallel()
	w := newListWorld(t, 100, 1000)
	for name := range lists {
		w.ask(name, 0)
	}
}

// percentiles are in milliseconds.
type percentiles struct{ p50, p95 float64 }

func percentilesOf(took []time.Duration) percentiles {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return percentiles{ms(took[len(took)/2]), ms(took[len(took)*95/100])}
}

// compare measures a page on two databases in three rounds, and returns the medians of the rounds. It alternates between the
// databases, so that other load on the machine affects both.
func compare(name string, worlds [2]*listWorld) (out [2]percentiles) {
	const rounds, times = 3, 60
	var got [2][]percentiles
	for round := range rounds {
		var took [2][]time.Duration
		for i := range times + 3 {
			for n, w := range worlds {
				if d := w.ask(name, round*times+i); i >= 3 { // the first requests fill caches and plan queries
					took[n] = append(took[n], d)
				}
			}
		}
		for n := range worlds {
			got[n] = append(got[n], percentilesOf(took[n]))
		}
	}
	for n := range worlds {
		median := func(of func(percentiles) float64) float64 {
			all := make([]float64, rounds)
			for i, p := range got[n] {
				all[i] = of(p)
			}
			slices.Sort(all)
			return all[rounds/2]
		}
		out[n] = percentiles{median(func(p percentiles) float64 { return p.p50 }), median(func(p percentiles) float64 { return p.p95 })}
	}
	return out
}

// number reads a setting of the benchmark from the environment.
func number(tb testing.TB, name string, otherwise int) int {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// BenchmarkLists compares list pages over LISTS_JOBS jobs with those over 10,000 jobs. There are 20 finished runs per job.
func BenchmarkLists(b *testing.B) {
	const few = 10_000
	many := number(b, "LISTS_JOBS", 200_000)
	worlds := [2]*listWorld{newListWorld(b, few, 20*few), newListWorld(b, many, 20*many)}
	b.ResetTimer()
	for range b.N {
		fmt.Printf("\n| list, ms | p50 of %d jobs | p95 | p50 of %d jobs | p95 | p95 over p95 |\n|---|---|---|---|---|---|\n", few, many)
		for _, name := range slices.Sorted(maps.Keys(lists)) {
			p := compare(name, worlds)
			fmt.Printf("| %s | %.1f | %.1f | %.1f | %.1f | %.2f |\n", name, p[0].p50, p[0].p95, p[1].p50, p[1].p95, p[1].p95/p[0].p95)
		}
	}
}
