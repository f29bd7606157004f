//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A usage error exits with code 2, any other error with 1. In both cases stderr names the fault and its place. Stdout is empty, except
// that `job apply` prints the result for each job.
func TestBadInputTable(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("present")
	file := func(name, content string) string {
		path := filepath.Join(c.dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	job := func(more string) string { return "group: g\nname: bad\nhandler: echo\n" + more }
	cron := func(expr string) string { return job("schedule: {kind: cron, expr: '" + expr + "'}\n") }

	tests := []struct {
		name string
		env  string
		args []string
		code int
		says []string
	}{
		{"no command", "", nil, 2, []string{"standalone", "--help"}},
		{"unknown command", "", []string{"ring"}, 2, []string{"ring"}},
		{"unknown flag", "", []string{"standalone", "--demon"}, 2, []string{"--demon", "standalone --help"}},
		{"not an address", "", []string{"standalone", "--http", "here"}, 2, []string{"--http", "here"}},
		{"unknown zone", "", []string{"standalone", "--time-zone", "Mars/Olympus"}, 2, []string{"--time-zone", "Mars/Olympus"}},
		{"no servers", "", []string{"scheduler"}, 2, []string{"--database-url", "--nats-url"}},
		{"every fault at once", "", []string{"dispatcher", "--nats-url", "ftp://x", "--lost-after", "1s"}, 2, []string{"--database-url", "--nats-url", "--lost-after"}},
		{"from the environment", "BELFRY_CAPACITY=0", []string{"executor", "--group", "g"}, 2, []string{"--capacity"}},
		{"no group", "", []string{"executor"}, 2, []string{"--group"}},
		{"an invalid group", "", []string{"executor", "--group", "a.>"}, 2, []string{"--group"}},
		{"an invalid URL with a password", "", []string{"migrate", "up", "--database-url", "postgres://u:hush@%zz/"}, 2, []string{"database URL"}},
		{"no server", "BELFRY_SERVER=http://127.0.0.1:1", []string{"job", "list"}, 1, []string{"127.0.0.1:1"}},
		{"a wrong token", "BELFRY_TOKEN=hush", []string{"job", "list"}, 1, []string{"Unauthorized", "belfry login"}},
		{"no job by id", "", []string{"job", "get", "999999"}, 1, []string{"no such job"}},
		{"no job by name", "", []string{"job", "trigger", "g/absent"}, 1, []string{"g/absent"}},
		{"no name of a job", "", []string{"job", "get", "absent"}, 2, []string{"absent", "group/name"}},
		{"no id of a run", "", []string{"run", "get", "x"}, 2, []string{"UUID"}},
		{"no such run", "", []string{"run", "kill", "019a9d2c-7b40-8000-8000-0123456789ab"}, 1, []string{"no such run"}},
		{"no file", "", []string{"job", "apply", "-f", filepath.Join(c.dir, "absent.yaml")}, 1, []string{"absent.yaml"}},
		{"bad YAML", "", []string{"job", "apply", "-f", file("yaml.yaml", "a: [\n")}, 1, []string{"yaml.yaml"}},
		{"unknown field", "", []string{"job", "apply", "-f", file("field.yaml", job("schedul: {kind: none}\n"))}, 1, []string{"schedul"}},
		{"bad cron", "", []string{"job", "apply", "-f", file("cron.yaml", cron("0 25 * * *"))}, 1, []string{"schedule.expr", "25"}},
		{"zone inside cron", "", []string{"job", "apply", "-f", file("tz.yaml", cron("CRON_TZ=UTC 0 2 * * *"))}, 1, []string{"schedule.expr", "time_zone"}},
		{"unknown group", "", []string{"job", "apply", "-f", file("group.yaml", strings.Replace(cron("0 2 * * *"), "group: g", "group: nobody", 1))}, 1, []string{"group"}},
		{"no crontab", "", []string{"import", "crontab", filepath.Join(c.dir, "absent")}, 1, []string{"absent"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			env := []string{"BELFRY_SERVER=" + c.server, "BELFRY_TOKEN=" + c.token}
			if test.env != "" {
				env = append(env, test.env) // the last entry of a name counts
			}
			p := launch(t, test.name, "belfry", c.dir, env, test.args...)
			if code := p.exit(); code != test.code {
				t.Errorf("it ended with code %d, want %d", code, test.code)
			}
			said := p.stderr.text()
			for _, want := range test.says {
				if !strings.Contains(said, want) {
					t.Errorf("stderr %q lacks %q", said, want)
				}
			}
			if !strings.HasPrefix(said, "belfry: ") || strings.Contains(said, "hush") || listed(p.stdout.text()) {
				t.Errorf("stderr is %q, stdout is %q", said, p.stdout.text())
			}
		})
	}
	if n := queryOne[int](t, c.db, `SELECT count(*) FROM jobs`); n != 1 {
		t.Errorf("%d jobs are stored, want the one from before", n)
	}

	// An executor whose log-in is refused retries, because its token may become valid later, and logs that.
	c.join = "wrong"
	outside := c.agent("outside")
	outside.logs("uthorization")
	select {
	case <-outside.ended:
		t.Error("an executor with a wrong token gave up")
	default:
	}
	if c.listed("outside") {
		t.Error("an executor with a wrong token is listed")
	}
}

func listed(stdout string) bool { return stdout != "" && !strings.HasPrefix(stdout, "refused ") }
