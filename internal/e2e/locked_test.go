//go:build unix

package e2e

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
)

// Another client locks the table from which schedulers plan, so that nothing fires although Postgres answers and accepts writes. The scheduler is not
// ready, the dispatcher counts the sessions that wait and names the client, and the reason of missed fire times is not the schedulers.
func TestLockedTable(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	metrics := []string{"--metrics", "127.0.0.1:0"}
	scheduler, dispatcher := c.role("scheduler", nil, metrics...), c.role("dispatcher", nil, metrics...)
	plans, counts := scheduler.says("metrics: "), dispatcher.says("metrics: ")
	c.executor("i1")
	job := c.job("tick", handler("echo", "{}"), everySecond(domain.MisfireSkip))
	c.fires(job, c.now())

	config, err := pgx.ParseConfig(c.dbURL)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["application_name"] = "nightly-report"
	other, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(t.Context()) }()
	if _, err := other.Exec(t.Context(), `BEGIN; LOCK TABLE belfry.job_due IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	locked := c.now()
	eventually(t, patience, "the scheduler is not ready", func() bool {
		status, body := ask(t, plans+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "planning")
	})
	eventually(t, patience, "the dispatcher counts sessions that wait", func() bool {
		n, err := strconv.Atoi(metric(t, counts, "belfry_blocked_sessions"))
		return err == nil && n > 0
	})
	dispatcher.logs(`"application":"nightly-report"`)
	eventually(t, patience, "the metrics show that they are old", func() bool {
		age, err := strconv.ParseFloat(metric(t, counts, "belfry_state_age_seconds"), 64)
		return err == nil && age > 25
	})
	if _, err := other.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	c.fires(job, c.now())
	eventually(t, patience, "all is well again", func() bool {
		status, _ := ask(t, plans+"/readyz")
		return status == http.StatusOK && metric(t, counts, "belfry_blocked_sessions") == "0"
	})
	at := domain.At(locked.Add(10 * time.Second).Truncate(time.Second)).String()
	if _, out, errs := c.command("job", "why", group+"/"+job.Name, "--at", at); !strings.Contains(out, "Postgres was unavailable from") {
		t.Errorf("belfry job why does not name Postgres as the reason:\n%s%s", out, errs)
	}
}
