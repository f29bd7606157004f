//go:build unix

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

func script(language, code string) func(*domain.JobSpec) {
	return func(s *domain.JobSpec) { s.Handler, s.Script = "", &domain.Script{Language: language, Code: code} }
}

// Scripts are stored in the console and run on agents that allow their language. An edit applies from the next run. Kills and timeouts
// end whole process groups. Broadcasts, retries, block policies and children work as for handlers.
func TestScenarioScripts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.scheduler()
	c.dispatcher()
	c.executor("a", "--allow-script", "sh,bash,go")
	c.executor("b", "--allow-script", "sh")
	c.executor("none")

	// An edit between two runs.
	edited := c.job("edited", script("sh", `echo "said $1"; echo oops >&2; echo "::output one"`), func(s *domain.JobSpec) { s.Param = "p" })
	first := c.finishes(c.trigger(edited.ID), patience)
	if first.State != domain.Succeeded || first.Output != "one" || first.Instance == "none" {
		t.Fatalf("the first run: %+v", first)
	}
	if _, err := c.api.SaveScript(t.Context(), edited.ID, domain.Script{Language: "sh", Code: `echo "::output two"`}); err != nil {
		t.Fatal(err)
	}
	if r := c.finishes(c.trigger(edited.ID), patience); r.Output != "two" {
		t.Errorf("after an edit: %+v", r)
	}
	if _, err := c.api.RestoreScript(t.Context(), edited.ID, 1, ""); err != nil {
		t.Fatal(err)
	}
	if r := c.finishes(c.trigger(edited.ID), patience); r.Output != "one" {
		t.Errorf("after a restore: %+v", r)
	}
	eventually(t, patience, "the log is stored", func() bool {
		lines := c.logOf(first.ID)
		return strings.Contains(lines, "stdout said p\n") && strings.Contains(lines, "stderr oops\n")
	})

	// Only one agent has bash, and none has Python.
	bash := c.job("bash", script("bash", `[[ -n $BELFRY_RUN_ID ]] && echo "::output ${BASH_VERSION:+bash}"`))
	for range 3 {
		if r := c.finishes(c.trigger(bash.ID), patience); r.Instance != "a" || r.Output != "bash" {
			t.Errorf("a script in bash: %+v", r)
		}
	}
	waiting := c.trigger(c.job("no-agent", script("python", "print()")).ID)
	c.reaches(waiting, patience, "waits for an instance", func(r domain.Run) bool { return r.State == domain.Queued && r.Waiting != nil })

	// A broadcast has a shard on each agent with the language.
	all := c.job("all", script("sh", `echo "::output $2/$3"`), func(s *domain.JobSpec) { s.Route = domain.RouteBroadcast })
	c.trigger(all.ID)
	outputs := make(map[string]string)
	eventually(t, patience, "two shards have ended", func() bool {
		runs, err := c.api.Runs(t.Context(), client.RunFilter{JobID: all.ID, State: "succeeded"}, 10)
		for _, r := range runs {
			outputs[r.Output] = r.Instance
		}
		return err == nil && len(runs) == 2
	})
	if outputs["0/2"] == "" || outputs["1/2"] == "" || outputs["0/2"] == outputs["1/2"] || outputs["0/2"] == "none" || outputs["1/2"] == "none" {
		t.Errorf("shards: %v", outputs)
	}

	// A script that fails by its exit status is retried. A script whose code cannot be built is not.
	tries := c.job("tries", script("sh", `[ "$BELFRY_ATTEMPT" = 3 ] || exit 7`), retries(3), func(s *domain.JobSpec) {
		s.RetryBackoff.Initial = domain.Duration(10 * time.Millisecond)
	})
	if r := c.finishes(c.trigger(tries.ID), patience); r.State != domain.Succeeded || r.Attempt != 3 || r.Attempts[0].Message != "exit status 7" {
		t.Errorf("after three attempts: %+v", r)
	}
	broken := c.job("broken", script("go", "echo this is no Go\n"), retries(3))
	if r := c.finishes(c.trigger(broken.ID), patience); r.Reason != domain.ReasonBadScript || r.Attempt != 1 || !strings.Contains(r.Message, "expected 'package'") {
		t.Errorf("a program that does not build: %+v", r)
	}

	c.stopsScripts()
}

// stopsScripts kills a script, and lets another one exceed its timeout. Neither leaves processes.
func (c *cluster) stopsScripts() {
	t := c.t
	t.Helper()
	mark := fmt.Sprintf("5%09d", os.Getpid()) // the seconds that the script sleeps, which identify its process
	file := filepath.Join(c.dir, "stopped")
	endless := script("sh", `(sleep `+mark+` & sleep `+mark+`) & echo up >>`+file+`; wait`)
	killed := c.job("killed", endless, func(s *domain.JobSpec) { s.Block = domain.BlockDiscardLater })
	id := c.trigger(killed.ID)
	eventually(t, patience, "the script runs", func() bool { return len(linesOf(t, file)) == 1 })
	if r := c.finishes(c.trigger(killed.ID), patience); r.State != domain.Skipped || r.Reason != domain.ReasonDiscarded {
		t.Errorf("a second run at the same time: %+v", r)
	}
	if err := c.api.KillRun(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if r := c.finishes(id, patience); r.State != domain.Cancelled || r.Reason != domain.ReasonKilled {
		t.Errorf("killed: %+v", r)
	}
	if n := running(t, mark); n != 0 {
		t.Errorf("a killed run has ended, and %d of its processes have not", n)
	}
	late := c.job("late", endless, func(s *domain.JobSpec) { s.Timeout = domain.Duration(500 * time.Millisecond) })
	if r := c.finishes(c.trigger(late.ID), patience); r.State != domain.Failed || r.Reason != domain.ReasonTimeout {
		t.Errorf("after its timeout: %+v", r)
	}
	if n := running(t, mark); n != 0 {
		t.Errorf("a run has timed out, and %d of its processes have not ended", n)
	}
}

// running counts the processes with mark among their arguments.
func running(t testing.TB, mark string) (n int) {
	t.Helper()
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("NOT COVERED: on this system /proc does not list processes")
	}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files { // the file of a zombie process is empty
		if args, _ := os.ReadFile(file); strings.Contains(string(args), mark) {
			n++
		}
	}
	return n
}

// logOf returns the log of a run, each line with its level.
func (c *cluster) logOf(id domain.RunID) string {
	c.t.Helper()
	page, err := c.api.Log(c.t.Context(), id, 1, 1000)
	if err != nil {
		c.t.Fatal(err)
	}
	var text strings.Builder
	for _, l := range page.Lines {
		fmt.Fprintf(&text, "%s %s\n", l.Level, l.Text)
	}
	return text.String()
}

// If an agent cannot run a language that it must allow, it logs that and exits.
func TestScenarioAgentWithoutInterpreter(t *testing.T) {
	t.Parallel()
	p := launch(t, "agent", "belfry", t.TempDir(), []string{"PATH=" + t.TempDir()}, "executor", "--group", "g", "--token", "x", "--allow-script", "sh,python")
	if code := p.exit(); code != 2 && code != 1 {
		t.Errorf("it ended with code %d", code)
	}
	said := p.stderr.tail(20)
	for _, want := range []string{"--allow-script", "there is no sh on PATH", "there is no python3 or python on PATH"} {
		if !strings.Contains(said, want) {
			t.Errorf("its output lacks %q: %s", want, said)
		}
	}
}
