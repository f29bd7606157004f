//go:build unix

package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// TestRoutesAndBlockPolicies tests every route and every block policy on real processes: two schedulers, two dispatchers, and three
// instances. One instance does not offer the jobs' handler and must never be chosen.
func TestRoutesAndBlockPolicies(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for range 2 {
		c.scheduler()
		c.dispatcher()
	}
	c.executor("i1", "--capacity", "8")
	c.executor("i2", "--capacity", "8")
	frozen := c.executor("i0", "--capacity", "8")
	// An executor whose agent offers no commands lacks the handler.
	c.bare("h0")
	by := func(r domain.Route) func(*domain.JobSpec) {
		return func(s *domain.JobSpec) { s.Route, s.Block = r, domain.BlockParallel }
	}
	command := shell("true")

	for _, tt := range []struct {
		route domain.Route
		want  []string // the instances of six runs, one after the other; nil: any instance with the handler
		words string
	}{
		{domain.RouteAny, nil, "any: "},
		{domain.RouteFirst, []string{"i0", "i0", "i0", "i0", "i0", "i0"}, "first of 3 by name"},
		{domain.RouteLast, []string{"i2", "i2", "i2", "i2", "i2", "i2"}, "last of 3 by name"},
		{domain.RouteRoundRobin, []string{"i0", "i1", "i2", "i0", "i1", "i2"}, "round_robin: turn "},
		{domain.RouteRandom, nil, "random: "},
		{domain.RouteConsistentHash, nil, "consistent_hash of "},
		{domain.RouteLeastFrequentlyUsed, []string{"i0", "i1", "i2", "i0", "i1", "i2"}, "least_frequently_used: "},
		{domain.RouteLeastRecentlyUsed, []string{"i0", "i1", "i2", "i0", "i1", "i2"}, "least_recently_used: "},
		{domain.RouteFailover, []string{"i0", "i0", "i0", "i0", "i0", "i0"}, "failover: number 1 of 3"},
		{domain.RouteBusyover, []string{"i0", "i0", "i0", "i0", "i0", "i0"}, "busyover: number 1 of 3"},
	} {
		job := c.job(string(tt.route), command, by(tt.route))
		var got []string
		for range 6 {
			r := c.finishes(c.trigger(job.ID), patience)
			got = append(got, r.Instance)
			if r.State != domain.Succeeded || !strings.HasPrefix(r.Route.String(), tt.words) {
				t.Errorf("%s: %s/%s on %s: %q", tt.route, r.State, r.Reason, r.Instance, r.Route)
			}
		}
		if tt.want != nil && !slices.Equal(got, tt.want) {
			t.Errorf("%s went to %v, want %v", tt.route, got, tt.want)
		}
		if tt.route == domain.RouteConsistentHash && len(slices.Compact(got)) != 1 {
			t.Errorf("%s went to %v", tt.route, got)
		}
		if slices.Contains(got, "h0") {
			t.Errorf("%s went to the instance without the handler: %v", tt.route, got)
		}
	}

	// A broadcast reaches all instances with the handler, and no other. A manual trigger can name one of them.
	all := c.job("all", command, by(domain.RouteBroadcast))
	c.finishes(c.trigger(all.ID), patience)
	var shards []string
	eventually(t, patience, "all shards have ended", func() bool {
		shards = nil
		runs, err := c.api.Runs(t.Context(), client.RunFilter{JobID: all.ID, State: string(domain.Succeeded)}, 10)
		for _, r := range runs {
			shards = append(shards, r.Instance)
		}
		return err == nil && len(runs) == 3
	})
	if slices.Sort(shards); !slices.Equal(shards, []string{"i0", "i1", "i2"}) {
		t.Errorf("the broadcast went to %v", shards)
	}
	if _, err := c.api.TriggerJob(t.Context(), all.ID, client.Trigger{Instance: "h0"}); err == nil || !strings.Contains(err.Error(), "does not offer command") {
		t.Errorf("a trigger for an instance without the handler: %v", err)
	}
	if p := c.cli("job", "trigger", group+"/all", "--instance", "i1", "--wait"); p.exit() != 0 {
		t.Errorf("a trigger for i1: %s", p.stderr.text())
	}

	// busyover skips instances that are busy with the job. If all are busy, it waits and gives the reason.
	busy := c.job("busy", shell("sleep 600"), by(domain.RouteBusyover))
	var running []domain.RunID
	for _, want := range []string{"i0", "i1", "i2"} {
		id := c.trigger(busy.ID)
		if r := c.reaches(id, patience, "has an instance", func(r domain.Run) bool { return r.Instance != "" }); r.Instance != want {
			t.Errorf("busyover chose %s, want %s: %s", r.Instance, want, r.Route)
		}
		running = append(running, id)
	}
	waits := c.trigger(busy.ID)
	c.reaches(waits, patience, "says why it waits", func(r domain.Run) bool {
		return strings.HasPrefix(r.Waiting.String(), "no instance is idle for the job: i0 has 1 run")
	})
	c.kill(running[1])
	if r := c.reaches(waits, patience, "has an instance", func(r domain.Run) bool { return r.Instance != "" }); r.Instance != "i1" {
		t.Errorf("busyover chose %s: %s", r.Instance, r.Route)
	}
	for _, id := range []domain.RunID{running[0], running[2], waits} {
		c.kill(id)
	}
	for _, id := range append(running, waits) {
		c.finishes(id, patience)
	}

	c.blocks()

	// failover skips an instance that does not answer.
	frozen.signal(syscall.SIGSTOP)
	defer frozen.signal(syscall.SIGCONT)
	job := c.job("fails-over", command, by(domain.RouteFailover))
	if r := c.finishes(c.trigger(job.ID), patience); r.Instance != "i1" || !strings.Contains(r.Route.String(), "i0 did not answer") {
		t.Errorf("failover chose %s: %s", r.Instance, r.Route)
	}
}

// blocks lets a run become due while another run of its job is running, with each policy and in both scopes.
func (c *cluster) blocks() {
	c.t.Helper()
	for _, scope := range []domain.BlockScope{domain.ScopeCluster, domain.ScopeInstance} {
		started := func(id domain.RunID) domain.Run {
			return c.reaches(id, patience, "has an instance", func(r domain.Run) bool { return r.Instance != "" })
		}
		job := func(b domain.Block) domain.Job {
			return c.job(string(b)+"-"+string(scope), handler("sleep", "600s"), func(s *domain.JobSpec) {
				s.Block, s.BlockScope, s.Route = b, scope, domain.RouteLast
			})
		}
		is := func(what string, id domain.RunID, state domain.State, reason domain.Reason) {
			c.t.Helper()
			if r := c.finishes(id, patience); r.State != state || r.Reason != reason {
				c.t.Errorf("%s, scope %s: the run is %s/%s, want %s/%s", what, scope, r.State, r.Reason, state, reason)
			}
		}
		heldBy := func(id, by domain.RunID, why explain.Code) {
			c.t.Helper()
			c.reaches(id, patience, "is held", func(r domain.Run) bool {
				return r.State == domain.Pending && r.HeldBy != nil && *r.HeldBy == by && r.Waiting != nil && r.Waiting.Code == why
			})
		}

		serial := job(domain.BlockSerial)
		a := c.trigger(serial.ID)
		started(a)
		b := c.trigger(serial.ID)
		heldBy(b, a, explain.EarlierRun)
		d := c.trigger(serial.ID)
		heldBy(d, a, explain.EarlierRun)
		c.kill(a)
		is("serial", a, domain.Cancelled, domain.ReasonKilled)
		started(b)
		heldBy(d, b, explain.EarlierRun)
		c.kill(d)
		is("serial", d, domain.Cancelled, domain.ReasonKilled)
		c.kill(b)
		is("serial", b, domain.Cancelled, domain.ReasonKilled)

		discard := job(domain.BlockDiscardLater)
		a = c.trigger(discard.ID)
		started(a)
		is("discard_later", c.trigger(discard.ID), domain.Skipped, domain.ReasonDiscarded)
		c.kill(a)
		is("discard_later", a, domain.Cancelled, domain.ReasonKilled)

		cover := job(domain.BlockCoverEarly)
		a = c.trigger(cover.ID)
		started(a)
		b = c.trigger(cover.ID)
		is("cover_early", a, domain.Cancelled, domain.ReasonCovered)
		if first, next := c.run(a), started(b); next.DispatchedAt.Before(first.FinishedAt.Time) {
			c.t.Errorf("cover_early: the new run was dispatched %s before the covered one had ended", first.FinishedAt.Sub(next.DispatchedAt.Time))
		}
		c.kill(b)
		is("cover_early", b, domain.Cancelled, domain.ReasonKilled)

		both := job(domain.BlockParallel)
		a, b = c.trigger(both.ID), c.trigger(both.ID)
		started(a)
		started(b)
		c.kill(a)
		c.kill(b)
		is("parallel", a, domain.Cancelled, domain.ReasonKilled)
		is("parallel", b, domain.Cancelled, domain.ReasonKilled)
	}

	// If a covered run ignores its kill, the covering run waits.
	deaf := c.job("deaf", shell("trap '' TERM; for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2; done"), func(s *domain.JobSpec) { s.Block = domain.BlockCoverEarly })
	a := c.trigger(deaf.ID)
	c.reaches(a, patience, "has an instance", func(r domain.Run) bool { return r.Instance != "" })
	b := c.trigger(deaf.ID)
	c.reaches(b, patience, "is held, or was", func(r domain.Run) bool { // on a slow machine the test may not see it held
		return r.HeldBy != nil && *r.HeldBy == a && r.Waiting != nil && r.Waiting.Code == explain.CoveredRun || c.run(a).State.Final()
	})
	c.reaches(a, patience, "is being killed", func(r domain.Run) bool { return r.KillAskedAt != nil || r.State.Final() })
	ended := c.finishes(a, patience).FinishedAt
	if r := c.finishes(b, patience); r.State != domain.Succeeded || r.DispatchedAt.Before(ended.Time) {
		c.t.Errorf("the run that covered is %s/%s, dispatched %s before the covered one had ended", r.State, r.Reason, ended.Sub(r.DispatchedAt.Time))
	}
}

func (c *cluster) kill(id domain.RunID) {
	c.t.Helper()
	if err := c.api.KillRun(c.t.Context(), id); err != nil {
		c.t.Fatal(err)
	}
}

// bare starts an agent without the handler command.
func (c *cluster) bare(instance string) {
	c.t.Helper()
	launch(c.t, instance, "belfry", c.dir, []string{"BELFRY_TOKEN=" + c.join}, "executor", "--group", group, "--instance", instance,
		"--nats-url", c.natsFor, "--spool-dir", c.dir+"/spool-"+instance, "--log-format", "json")
	eventually(c.t, patience, "the executor "+instance+" is listed", func() bool { return c.listed(instance) })
}
