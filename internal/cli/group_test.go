package cli

import (
	"strings"
	"testing"
)

func TestGroupLimitsAndUsage(t *testing.T) {
	newRealConsole(t)
	belfry(t, "", "group", "set", "default", "--max-jobs", "1", "-o", "json").want(t, ExitDone, `"max_jobs": 1`)
	apply := func(name string) result {
		return belfry(t, "{group: default, name: "+name+", handler: echo, schedule: {kind: fixed_rate, every: 1s}}", "job", "apply", "-f", "-")
	}
	apply("one").want(t, ExitDone, "one")
	if r := apply("two"); r.code != ExitFailed || !strings.Contains(r.stdout+r.stderr, "max_jobs is 1") {
		t.Errorf("a second job: %d %s %s", r.code, r.stdout, r.stderr)
	}
	belfry(t, "", "group", "usage", "default").want(t, ExitDone, "fires per minute  60    600000       0", "jobs              1     1            100")
	belfry(t, "", "group", "usage", "default", "-o", "json").want(t, ExitDone, `"fires_per_minute": {`, `"used": 60`)
}
