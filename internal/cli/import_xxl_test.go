package cli

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/xxl/importer"
	"github.com/belfryhq/belfry/internal/xxl/quartz"
	"github.com/belfryhq/belfry/internal/xxl/xxltest"
)

// importXXL runs an import and returns its report.
func importXXL(t *testing.T, code int, dsn string, args ...string) (xxlReport, string) {
	t.Helper()
	r := belfry(t, "", append([]string{"import", "xxl-job", "--dsn", dsn, "-o", "json"}, args...)...)
	var out xxlReport
	if r.code != code {
		t.Fatalf("exit code %d, want %d: %s", r.code, code, r.stderr)
	}
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		t.Fatalf("%v: %s", err, r.stderr)
	}
	return out, r.stderr
}

func (r *xxlReport) job(t *testing.T, id int64) xxlJob {
	t.Helper()
	i := slices.IndexFunc(r.Jobs, func(j xxlJob) bool { return j.XXLID == id })
	if i < 0 {
		t.Fatalf("the report has no job %d", id)
	}
	return r.Jobs[i]
}

// wantFixture checks the first report of a fixture.
func wantFixture(t *testing.T, version string, out xxlReport) {
	t.Helper()
	if out.CronZone.Zone != "Asia/Shanghai" || out.DBZone.Zone != "Asia/Shanghai" {
		t.Errorf("zones %+v, %+v", out.CronZone, out.DBZone)
	}
	want := map[int64]string{1: "exact", 2: "differs", 3: "exact", 4: "differs", 5: "exact", 6: "impossible", 7: "exact", 8: "impossible", 9: "impossible", 10: "impossible"}
	if version != "2.2" {
		want[11], want[12], want[13] = "exact", "exact", "differs"
	}
	if len(out.Jobs) != len(want) {
		t.Errorf("%d rows, want %d", len(out.Jobs), len(want))
	}
	for id, verdict := range want {
		if j := out.job(t, id); string(j.Verdict) != verdict {
			t.Errorf("job %d is %s, want %s: %v %s", id, j.Verdict, verdict, j.Differences, j.Reason)
		}
	}
	mention := func(id int64, texts ...string) {
		t.Helper()
		j := out.job(t, id)
		all := strings.Join(j.Differences, "; ") + j.Reason
		for _, text := range texts {
			if !strings.Contains(all, text) {
				t.Errorf("job %d: %q does not mention %q", id, all, text)
			}
		}
	}
	mention(2, "child 77 does not exist", "its own child")
	mention(4, "child 3 closes a cycle")
	mention(6, "step after a name", "write SUN-FRI without it", "name-step")
	mention(9, "executor (job_group 9) does not exist")
	mention(10, "no handler")
	if version == "3.3" {
		mention(4, "last-day-250")
	}
	if times := out.job(t, 3).FireTimes; len(times.XXLJob) != 10 || len(times.Belfry) != 10 || times.XXLJob[9] != times.Belfry[9] {
		t.Errorf("fire times %v", times)
	}
	if g := out.Groups[1]; g.Name != "billing-executor" || !strings.Contains(strings.Join(g.Notes, " "), "--alias 'Billing.Executor'") || len(g.Addresses) != 2 {
		t.Errorf("group %+v", g)
	}
	if len(out.Users) != 3 || out.Users[1].Username != "li-lei" || fmt.Sprint(out.Users[1].Groups) != "[billing-executor]" || out.Users[2].Action != skipped {
		t.Errorf("users %+v", out.Users)
	}
}

// TestImportXXLJob imports the fixtures of each version into a console, twice.
func TestImportXXLJob(t *testing.T) {
	create := xxltest.MariaDB(t)
	for _, version := range []string{"2.2", "2.4", "3.1", "3.3"} {
		t.Run(version, func(t *testing.T) {
			newRealConsole(t)
			dsn, db := create("fixture_" + strings.ReplaceAll(version, ".", "_"))
			xxltest.Fill(t, db, "mysql", xxltest.Fixture(t, version))
			importTwice(t, version, dsn, db)
		})
	}
}

// TestImportXXLJobFromPostgres imports from the tables of a fork on PostgreSQL.
func TestImportXXLJobFromPostgres(t *testing.T) {
	for _, version := range []string{"2.4", "3.3"} {
		t.Run(version, func(t *testing.T) {
			newRealConsole(t)
			url := pgtest.Database(t, func(context.Context, string) error { return nil })
			c, err := pgx.ParseConfig(url)
			if err != nil {
				t.Fatal(err)
			}
			db := stdlib.OpenDB(*c)
			defer db.Close()
			xxltest.Fill(t, db, "postgres", xxltest.Fixture(t, version))
			importTwice(t, version, url, db)
		})
	}
}

func importTwice(t *testing.T, version, dsn string, db *sql.DB) {
	t.Helper()
	exec := func(query string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args string) string {
		t.Helper()
		r := belfry(t, "", strings.Fields(args)...)
		r.want(t, ExitDone)
		return r.stdout
	}
	belfry(t, "", "import", "xxl-job", "--dsn", dsn).want(t, ExitUsage) // the zones are not confirmed

	dry, _ := importXXL(t, ExitDone, dsn, "--dry-run")
	if n := strings.Count(run("job list -o json"), `"id"`); n != 0 {
		t.Fatalf("a dry run has made %d jobs", n)
	}
	if dry.job(t, 1).Action != created || dry.job(t, 9).Action != skipped {
		t.Errorf("dry run: %+v", dry.job(t, 1))
	}
	zones := []string{"--cron-zone", "Asia/Shanghai", "--db-zone", "Asia/Shanghai"}
	// The server refuses the Groovy script until the group is one for executors of XXL-JOB.
	first, _ := importXXL(t, ExitFailed, dsn, zones...)
	wantFixture(t, version, first)

	var made domain.Job
	if err := json.Unmarshal([]byte(run(fmt.Sprintf("job get %d -o json", first.job(t, 2).ID))), &made); err != nil {
		t.Fatal(err)
	}
	if made.Enabled || made.Group != "xxl-job-executor-sample" || made.Handler != "demoJobHandler" || made.Param != "day=1" || made.Timeout.Std() != time.Minute ||
		made.Retries != 2 || made.RetryBackoff.Initial.Std() != 10*time.Second || made.RetryBackoff.Factor != 1 || made.Block != domain.BlockSerial || made.BlockScope != domain.ScopeInstance ||
		made.Route != domain.RouteFirst || made.Schedule.Dialect != domain.DialectQuartz || made.Schedule.TimeZone != "Asia/Shanghai" ||
		len(made.Children) != 1 || made.Children[0].JobID != first.job(t, 3).ID || len(made.Alert.Channels) != 1 {
		t.Errorf("job 2 became %+v", made)
	}
	if text := run("user list"); !strings.Contains(text, "li-lei") || strings.Contains(text, "nobody") {
		t.Errorf("users: %s", text)
	}

	second, _ := importXXL(t, ExitFailed, dsn, zones...)
	for _, j := range second.Jobs {
		if j.Verdict != importer.Impossible && j.Action != unchanged {
			t.Errorf("second import: job %d is %s: %v", j.XXLID, j.Action, j.Updated)
		}
	}

	run("group xxl-token billing-executor --none --allow 127.0.0.0/8 --alias Billing.Executor")
	if j, _ := importXXL(t, ExitDone, dsn, zones...); j.job(t, 8).Action != created || j.job(t, 8).Verdict != importer.Exact {
		t.Errorf("the Groovy job, in an open group: %+v", j.job(t, 8))
	}

	// XXL-JOB changes jobs 1 and 3; a person changes jobs 2, 3 and 5, and deletes job 7.
	exec("UPDATE xxl_job_info SET executor_handler = 'other', executor_timeout = 7 WHERE id IN (1, 3)")
	edit := func(id int64, change string) {
		t.Helper()
		var fields map[string]any
		if err := json.Unmarshal([]byte(run(fmt.Sprintf("job get %d -o json", second.job(t, id).ID))), &fields); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(change), &fields); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		belfry(t, string(raw), "job", "apply", "-f", "-").want(t, ExitDone)
	}
	edit(2, `{"enabled": true, "tags": ["mine"]}`)
	edit(3, `{"handler": "mine"}`)
	edit(5, `{"route": "any"}`)
	run(fmt.Sprintf("job delete %d", second.job(t, 7).ID))

	third, _ := importXXL(t, ExitDone, dsn, zones...)
	if j := third.job(t, 1); j.Action != updated || fmt.Sprint(j.Updated) != "[handler timeout]" || len(j.Kept) != 0 {
		t.Errorf("job 1: %+v", j)
	}
	if j := third.job(t, 2); j.Action != unchanged || len(j.Kept) != 0 {
		t.Errorf("job 2: %+v", j)
	}
	if j := third.job(t, 3); fmt.Sprint(j.Updated) != "[timeout]" || len(j.Kept) != 1 || j.Kept[0] != (importer.Kept{Field: "handler", Belfry: `"mine"`, XXLJob: `"other"`}) {
		t.Errorf("job 3: %+v", j)
	}
	if j := third.job(t, 5); j.Action != unchanged || len(j.Kept) != 1 || j.Kept[0].Field != "route" {
		t.Errorf("job 5: %+v", j)
	}
	if j := third.job(t, 7); j.Action != skipped || len(j.Kept) != 1 || j.Kept[0].Belfry != "deleted" {
		t.Errorf("job 7: %+v", j)
	}

	// Another database with the same ids does not take over the jobs.
	other, _ := importXXL(t, ExitDone, dsn, append(zones, "--source", "elsewhere")...)
	if j := other.job(t, 1); j.Verdict != importer.Impossible || !strings.Contains(j.Reason, "which was imported from ") {
		t.Errorf("job 1 from elsewhere: %+v", j)
	}
}

// TestImportManyJobs imports a generated database of a working admin, with 2,000 jobs. For each enabled job, the report must have checked the next
// trigger time that XXL-JOB computed.
func TestImportManyJobs(t *testing.T) {
	many := 2000
	if testing.Short() {
		many = 300 // each needs several requests, one after the other
	}
	create := xxltest.MariaDB(t)
	newRealConsole(t)
	dsn, db := create("many")
	xxltest.Fill(t, db, "mysql", xxltest.Generate(t, "3.3", quartz.V250, many, time.Now(), "America/New_York", "UTC"))
	zones := []string{"--cron-zone", "America/New_York", "--db-zone", "UTC"}
	inferred, _ := importXXL(t, ExitDone, dsn, "--dry-run")
	if inferred.CronZone.Zone != "America/New_York" || inferred.DBZone.Zone != "UTC" {
		t.Errorf("zones %+v, %+v", inferred.CronZone, inferred.DBZone)
	}
	first, _ := importXXL(t, ExitFailed, dsn, zones...)
	if first.Exact+first.Differ+first.Cannot != many || first.Exact < many/2 || first.Differ < many/20 || first.Cannot < many/100 {
		t.Errorf("%d exact, %d differ, %d impossible", first.Exact, first.Differ, first.Cannot)
	}
	imported, compared := time.Now(), 0
	for _, j := range first.Jobs {
		// Belfry does not show a fire time that has passed during the import.
		comparable := j.Verdict == importer.Exact && j.NextTrigger != nil && j.NextTrigger.After(imported) && len(j.FireTimes.Belfry) > 0
		if comparable {
			compared++
		}
		if comparable && j.FireTimes.Belfry[0].After(j.NextTrigger.Time) {
			t.Errorf("job %d is exact, but Belfry fires it first at %s, and XXL-JOB at %s", j.XXLID, j.FireTimes.Belfry[0], j.NextTrigger)
		}
		if j.Verdict == importer.Impossible && j.Reason == "" || j.Verdict == importer.Differs && len(j.Differences) == 0 {
			t.Errorf("job %d is %s without a reason", j.XXLID, j.Verdict)
		}
	}
	if compared < many/4 {
		t.Errorf("the fire times of only %d jobs were compared", compared)
	}
	again, _ := importXXL(t, ExitFailed, dsn, zones...)
	for _, j := range again.Jobs {
		if j.Verdict != importer.Impossible && (j.Action != unchanged || len(j.Kept) > 0) {
			t.Errorf("second import: job %d is %s: %v %v", j.XXLID, j.Action, j.Updated, j.Kept)
		}
	}
}
