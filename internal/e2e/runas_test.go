//go:build unix

package e2e

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// needRoot skips a test that only root can run.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT COVERED: only root can start programs under another account")
	}
}

// An agent that runs as root with --run-as starts scripts and commands under that account. They can read neither its spool nor its
// environment. Without --run-as, the agent warns.
func TestAgentRunsAsAnotherAccount(t *testing.T) {
	t.Parallel()
	needRoot(t)
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.scheduler()
	c.dispatcher()
	temp, err := os.MkdirTemp("", "belfry-runas-") // the account can reach it, unlike c.dir
	if err == nil {
		err = os.Chmod(temp, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(temp); err != nil {
			t.Error(err)
		}
	})
	spool := filepath.Join(temp, "spool")
	start := func(instance string, args ...string) *process {
		args = append([]string{"executor", "--group", group, "--instance", instance, "--nats-url", c.natsFor, "--allow-command", "--allow-script", "sh",
			"--spool-dir", spool, "--log-format", "json"}, args...)
		p := launch(t, instance, "belfry", c.dir, []string{"BELFRY_TOKEN=" + c.join, "TMPDIR=" + temp}, args...)
		eventually(t, patience, "the executor is listed", func() bool { return c.listed(instance) })
		return p
	}
	probe := fmt.Sprintf(`ls %s/* && echo LISTED; cat /proc/$PPID/environ && echo READ; tr '\0' ' ' </proc/$PPID/cmdline; echo; [ -n "$BELFRY_TOKEN" ] && echo LEAKED; echo "::output $(id -u)"`, spool)
	agent := start("i1", "--run-as", "nobody")
	for _, job := range []domain.Job{c.job("script", script("sh", probe)), c.job("command", shell(probe))} {
		r := c.finishes(c.trigger(job.ID), patience)
		if r.State != domain.Succeeded || r.Output != nobody.Uid {
			t.Errorf("%s ended %s/%s with output %q: %s", job.Name, r.State, r.Reason, r.Output, r.Message)
		}
		eventually(t, patience, "the log is stored", func() bool { return strings.Contains(c.logOf(r.ID), "::output") })
		log := c.logOf(r.ID)
		if !strings.Contains(log, "executor --group") { // the parent of the script is the executor
			t.Errorf("%s did not find the executor:\n%s", job.Name, log)
		}
		for _, bad := range []string{"LISTED", "READ", "LEAKED", c.join} {
			if strings.Contains(log, bad) {
				t.Errorf("the log of %s has %s:\n%s", job.Name, bad, log)
			}
		}
	}
	const warning = "commands and scripts run as root"
	if strings.Contains(agent.stderr.text(), warning) {
		t.Error("an agent with --run-as warns")
	}
	start("i2").logs(warning)
}

// An agent does not start if it cannot give its scripts the account of --run-as.
func TestAgentWithoutTheAccount(t *testing.T) {
	t.Parallel()
	for account, want := range map[string]string{"no-such-account": "no-such-account", "root": "the account root is root"} {
		if os.Geteuid() != 0 {
			want = "only root can start programs under another account"
		}
		p := launch(t, "agent", "belfry", t.TempDir(), nil, "executor", "--group", "g", "--token", "x", "--allow-script", "sh", "--run-as", account)
		if code := p.exit(); code != 2 {
			t.Errorf("with --run-as %s it ended with code %d", account, code)
		}
		if said := p.stderr.tail(20); !strings.Contains(said, "--run-as") || !strings.Contains(said, want) {
			t.Errorf("with --run-as %s it said %s", account, said)
		}
	}
}
