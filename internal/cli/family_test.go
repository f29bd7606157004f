package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

func shard(index int, state domain.State, id string) domain.Run {
	broadcast, _ := domain.ParseRunID(someRun)
	run, err := domain.ParseRunID(id)
	if err != nil {
		panic(err)
	}
	return domain.Run{
		ID: run, JobName: "spread", Group: "default", State: state, BroadcastID: &broadcast, MaxAttempts: 1, Attempt: 1,
		Shard: &domain.Shard{Index: index, Total: 3},
	}
}

func TestListsFoldBroadcasts(t *testing.T) {
	c := newConsole(t)
	c.runs = []domain.Run{
		shard(1, domain.Succeeded, "019a9d2c-7b40-8000-8000-000000000001"),
		{ID: domain.RunID{9}, JobName: "alone", Group: "default", State: domain.Failed, MaxAttempts: 1, Attempt: 1},
		shard(0, domain.Failed, someRun),
		shard(2, domain.Succeeded, "019a9d2c-7b40-8000-8000-000000000002"),
	}
	out := belfry(t, "", "run", "list", "--planned")
	lines := strings.Split(strings.TrimSpace(out.stdout), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "default/spread [3 of 3 shards]") || !strings.Contains(lines[1], "2 succeeded, 1 failed") || !strings.Contains(lines[1], someRun) {
		t.Errorf("folded:\n%s", out.stdout)
	}
	if !strings.Contains(lines[2], "default/alone") {
		t.Errorf("folded:\n%s", out.stdout)
	}
	if out := belfry(t, "", "run", "list", "--planned", "--shards"); strings.Count(out.stdout, "default/spread [") != 3 {
		t.Errorf("not folded:\n%s", out.stdout)
	}
}

// Kills and retries by flags go on from step to step.
func TestBulkGoesOnToTheEnd(t *testing.T) {
	c := newConsole(t)
	out := belfry(t, "", "run", "kill", "--group", "default", "--state", "queued,running", "-o", "json")
	if out.code != 0 || !strings.Contains(out.stdout, `"done": 3`) || len(c.requests) != 2 {
		t.Errorf("code %d, %v:\n%s%s", out.code, c.requests, out.stdout, out.stderr)
	}
	for _, args := range [][]string{
		{"run", "kill"}, {"run", "retry"}, {"run", "kill", someRun, "--group", "default"}, {"run", "retry", "--broadcast", "nonsense"},
		{"run", "retry", "--group", "default", "--param", "x"}, {"run", "retry", someRun, "--instance", "one", "--state", "failed"},
		{"run", "kill", someRun, "--instance", "one"},
	} {
		if out := belfry(t, "", args...); out.code != 2 {
			t.Errorf("%v: code %d", args, out.code)
		}
	}
}

func TestRunBulk(t *testing.T) {
	c := newConsole(t)
	for _, q := range []struct {
		args   string
		code   int
		stdout string
		stderr string
		starts bool
	}{
		{"retry --group default --dry-run", ExitDone, "default/report", "", false},
		{"retry --group default --dry-run -o json", ExitDone, `"matched": 3`, "", false},
		{"retry --group default", ExitUsage, "", "3 runs match; add --yes to retry them", false},
		{"kill --group idle", ExitDone, "0", "", false},
		{"retry --group default --yes", ExitDone, "belfry run list --bulk 7", "", true},
		{"retry --group default --yes -o json", ExitDone, `"done": 2`, "", true},
		{"kill --bulk 7 --yes", ExitDone, "done", "", true},
		{"kill", ExitUsage, "", "--job", false},
		{"kill --bulk 7 --group default", ExitUsage, "", "not both", false},
		{"list", ExitDone, "group=default job_id=12345678", "", false},
		{"get 7", ExitDone, "ann", "", false},
		{"stop 7", ExitDone, "stopped", "", false},
	} {
		c.requests = nil
		r := belfry(t, "", append([]string{"run", "bulk"}, strings.Fields(q.args)...)...)
		// With --yes, the command counts nothing before; otherwise the only change is a count.
		started := len(c.requests) == 1 && strings.Contains(q.args, "--yes")
		if r.code != q.code || !strings.Contains(r.stdout, q.stdout) || !strings.Contains(r.stderr, q.stderr) || started != q.starts || len(c.requests) > 1 {
			t.Errorf("%s: %+v, %v", q.args, r, c.requests)
		}
	}
	for _, c.bulkEnd = range []string{"stopped", "failed"} {
		if r := belfry(t, "", "run", "bulk", "retry", "--group", "default", "--yes"); r.code != ExitFailed || !strings.Contains(r.stderr, c.bulkEnd+": because") {
			t.Errorf("%+v", r)
		}
	}
}

// A search goes on from page to page, and says how far back it came and how to continue.
func TestSearchRuns(t *testing.T) {
	c := newConsole(t)
	for i := range 3 {
		c.runs = append(c.runs, domain.Run{ID: domain.RunID{byte(i + 1)}, JobName: fmt.Sprint("job", i), Group: "default", State: domain.Failed})
	}
	r := belfry(t, "", "run", "list", "--q", "disk full")
	if r.code != ExitDone || strings.Count(r.stdout, "default/job") != 3 || !strings.Contains(r.stderr, "Searched back to 2026-03-2") || strings.Contains(r.stderr, "--cursor") {
		t.Errorf("%+v", r)
	}
	r = belfry(t, "", "run", "list", "--q", "disk full", "--limit", "2")
	if r.code != ExitDone || strings.Count(r.stdout, "default/job") != 2 || !strings.Contains(r.stderr, "--cursor page2") {
		t.Errorf("%+v", r)
	}
	r = belfry(t, "", "run", "list", "--q", "disk full", "--cursor", "page2", "-o", "json")
	if r.code != ExitDone || !strings.Contains(r.stdout, `"searched_back_to": "2026-03-26`) || !strings.Contains(r.stdout, "job2") || strings.Contains(r.stdout, "job1") {
		t.Errorf("%+v", r)
	}
	if r := belfry(t, "", "run", "list", "--cursor", "page2"); r.code != ExitUsage {
		t.Errorf("%+v", r)
	}
}
