package cli

import (
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
