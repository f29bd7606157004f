//go:build unix

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// block is a fenced block of a document.
type block struct{ language, text string }

func blocks(t *testing.T, doc string) (out []block) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(read(t, filepath.Join(rig.Root(t), "docs", doc)), -1) {
		out = append(out, block{m[1], m[2]})
	}
	return out
}

// sh runs lines of a document in a shell with the command belfry. env has more environment entries.
func (c *cluster) sh(script string, env ...string) string {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	bin := filepath.Join(c.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		c.t.Fatal(err)
	}
	wrapper := fmt.Sprintf("#!/bin/sh\n%s=belfry exec %q \"$@\"\n", envAs, self)
	if err := os.WriteFile(filepath.Join(bin, "belfry"), []byte(wrapper), 0o755); err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(c.t.Context(), "sh", "-e", "-c", script)
	cmd.Dir = c.dir
	cmd.Env = append(rig.Env(), "HOME="+c.dir, "BELFRY_SERVER="+c.server, "BELFRY_TOKEN="+c.token, "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s%v\n%s", script, err, out)
	}
	return string(out)
}

func (c *cluster) named(name string) domain.Job {
	c.t.Helper()
	job, err := c.api.JobByName(c.t.Context(), group, name)
	if err != nil {
		c.t.Fatal(err)
	}
	return job
}

// runsOf returns the runs of a job that match a filter, newest first.
func (c *cluster) runsOf(name string, f client.RunFilter) []domain.Run {
	c.t.Helper()
	f.JobID = c.named(name).ID
	runs, err := c.api.Runs(c.t.Context(), f, 500)
	if err != nil {
		c.t.Fatal(err)
	}
	return runs
}

// The commands in docs/runs.md do what the page says.
func TestDocumentedRuns(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	c.executor("i1")
	c.executor("i2")
	steps := blocks(t, "runs.md")
	if len(steps) != 8 || steps[0].language != "yaml" {
		t.Fatalf("the document has %d blocks", len(steps))
	}
	if err := os.WriteFile(filepath.Join(c.dir, "runs.yaml"), []byte(steps[0].text), 0o644); err != nil {
		t.Fatal(err)
	}
	c.sh(steps[1].text)
	lines := strings.SplitAfter(steps[2].text, "\n")
	c.sh(lines[0])
	stubborn := c.runsOf("stubborn", client.RunFilter{})[0].ID
	eventually(t, patience, "the stubborn run is running", func() bool { return c.run(stubborn).State == domain.Running })
	c.sh(lines[1])
	if note := c.run(stubborn).Note; !strings.HasPrefix(note, "kill requested, still running since") {
		t.Errorf("the note of the killed run is %q", note)
	}

	eventually(t, patience, "the tick has run", func() bool { return len(c.runsOf("tick", client.RunFilter{State: "succeeded"})) > 0 })
	if out := c.sh(steps[3].text); strings.Count(out, "new disks") < 2 {
		t.Errorf("the pause shows as:\n%s", out)
	}
	pause, err := c.api.Group(t.Context(), group)
	if err != nil || pause.PausedAt == nil {
		t.Fatalf("%+v %v", pause, err)
	}
	if tick := c.named("tick"); tick.NextFireTime != nil || !strings.Contains(tick.Note, "new disks") {
		t.Errorf("the tick says %v, %q", tick.NextFireTime, tick.Note)
	}
	c.broadcastOf(steps[4].text, steps[5].text)

	out := c.sh(steps[6].text)
	if got := c.runsOf("report", client.RunFilter{Cause: "backfill"}); len(got) != 3 || strings.Count(out, "succeeded") < 3 {
		t.Errorf("%d runs were made:\n%s", len(got), out)
	} else if got[1].FireTime.String() != "2026-03-29T01:00:00.000Z" || got[2].FinishedAt.After(got[1].FinishedAt.Time) || got[1].FinishedAt.After(got[0].FinishedAt.Time) {
		t.Errorf("they ran as %+v", got)
	}

	eventually(t, patience, "the pause has lasted for three fire times of the tick", func() bool {
		return queryOne[bool](t, c.db, `SELECT now() > $1::timestamptz + interval '3500 milliseconds'`, pause.PausedAt.Time)
	})
	c.sh(steps[7].text)
	eventually(t, patience, "the tick continues", func() bool {
		return len(c.runsOf("tick", client.RunFilter{Cause: "misfire", State: "succeeded"})) > 0
	})
	misfires := c.runsOf("tick", client.RunFilter{Cause: "misfire"})
	if len(misfires) != 1 {
		t.Errorf("%d misfires were fired, want one", len(misfires))
	}
	group, err := c.api.Group(t.Context(), group)
	if err != nil || group.PausedAt != nil {
		t.Errorf("%+v %v", group, err)
	}
	for _, r := range c.runsOf("tick", client.RunFilter{Cause: "schedule"}) {
		if !r.DueAt.Before(pause.PausedAt.Time) && r.DueAt.Before(misfires[0].FireTime.Time) {
			t.Errorf("a run was due at %s, in the pause", r.DueAt)
		}
	}
	if n := queryOne[int](t, c.db, `SELECT count(*) FROM missed WHERE why LIKE 'group g was paused from % by admin (new disks)%'`); n != 1 {
		t.Errorf("%d entries of the missed ledger name the pause", n)
	}
	first := queryOne[time.Time](t, c.db, `SELECT min(first_fire_time) FROM missed`)
	why, err := c.api.Why(t.Context(), c.named("tick").ID, domain.At(first).String())
	if err != nil || !strings.Contains(why.Answer, "(new disks)") {
		t.Errorf("why says %q, %v", why.Answer, err)
	}
	if r := c.finishes(stubborn, patience); r.State != domain.Cancelled || r.Reason != domain.ReasonKilled {
		t.Errorf("the stubborn run ended %s/%s", r.State, r.Reason)
	}
}

// broadcastOf triggers the broadcast, and then runs its failed shard again.
func (c *cluster) broadcastOf(broadcast, again string) {
	c.t.Helper()
	c.sh(broadcast)
	eventually(c.t, patience, "the broadcast has ended and its child has run", func() bool {
		return len(c.runsOf("after", client.RunFilter{State: "succeeded"})) == 1
	})
	shards := c.runsOf("spread", client.RunFilter{})
	if len(shards) != 2 {
		c.t.Fatalf("%d shards", len(shards))
	}
	whole, err := c.api.Shards(c.t.Context(), shards[1].ID)
	if err != nil || whole.Total != 2 || whole.Counts[domain.Succeeded] != 1 || whole.Counts[domain.Failed] != 1 {
		c.t.Errorf("the broadcast is %+v, %v", whole, err)
	}
	r, err := c.api.RunDetail(c.t.Context(), shards[0].ID)
	if err != nil || len(r.Children) != 1 || r.Children[0].JobName != "after" {
		c.t.Errorf("a shard names the children %+v, %v", r.Children, err)
	}
	c.sh(again)
	eventually(c.t, patience, "the failed shard has failed again, and its child has run", func() bool {
		return len(c.runsOf("after", client.RunFilter{State: "succeeded"})) == 2
	})
	failed := c.runsOf("spread", client.RunFilter{State: "failed"})
	if len(failed) != 2 || failed[0].Instance != failed[1].Instance || failed[0].Shard == nil || *failed[0].Shard != (domain.Shard{Index: 1, Total: 2}) {
		c.t.Errorf("%+v", failed)
	}
}
