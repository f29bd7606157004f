package store_test

import (
	"slices"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store"
)

// perInstance makes the job a broadcast of scope instance.
func perInstance(sp *domain.JobSpec) {
	sp.Route, sp.BlockScope = domain.RouteBroadcast, domain.ScopeInstance
}

// expand triggers a broadcast and expands it over the instances, one shard for each name.
func expand(t *testing.T, s *store.Store, job domain.Job, on ...string) store.Admitted {
	t.Helper()
	trigger(t, s, job.ID, 1)
	near := claim(t, s)
	def, err := s.Definition(t.Context(), job.ID, near[0].JobVersion)
	if err != nil {
		t.Fatal(err)
	}
	var to []store.ShardBinding
	for _, name := range on {
		b := store.ShardBinding{Binding: engine.Binding{Instance: name, BootID: "b"}}
		if job.Shards == 0 {
			b.Pin = name
		}
		to = append(to, b)
	}
	out, err := s.ExpandBroadcast(t.Context(), near[0], def, to)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fireOn admits released shards on the instance that they are pinned to.
func fireOn(t *testing.T, s *store.Store, due []engine.Due) store.Admitted {
	t.Helper()
	in := admissions(t, s, due)
	for i := range in {
		in[i].Binding = engine.Binding{Instance: in[i].Pin, BootID: "b"}
	}
	out, err := s.Admit(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func noOwners(t *testing.T, s *store.Store) {
	t.Helper()
	if n := query[int64](t, s, `SELECT count(*) FROM block_slots WHERE owner IS NOT NULL`); n != 0 {
		t.Errorf("%d slots have an owner in the end", n)
	}
}

// In scope instance, a shard waits for the previous shard on its own instance, not for the whole broadcast. Otherwise
// two broadcasts that overlap in opposite orders would deadlock.
func TestShardsWaitOnTheirInstance(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", perInstance)
	first := expand(t, s, job, "i1", "i2")
	if len(first.Bound) != 2 {
		t.Fatalf("the first broadcast: %+v", first)
	}
	second := expand(t, s, job, "i1", "i2", "i3")
	if len(second.Bound) != 1 || second.Bound[0].Instance != "i3" || len(second.Held) != 2 {
		t.Fatalf("the second broadcast: %+v", second)
	}
	if due, err := s.ReleaseOrphans(t.Context(), 10); err != nil || len(due) != 0 {
		t.Fatalf("released %+v, %v, behind live shards", due, err)
	}
	res := settle(t, s, settled, result(s, first.Bound[0], domain.OutcomeSucceeded))
	if len(res.Released) != 1 || res.Released[0].Pin != "i1" {
		t.Fatalf("the end on i1 released %+v", res.Released)
	}
	next := fireOn(t, s, res.Released)
	if len(next.Bound) != 1 || next.Bound[0].Instance != "i1" {
		t.Fatalf("fired %+v", next)
	}
	res = settle(t, s, settled, result(s, first.Bound[1], domain.OutcomeSucceeded))
	if res.Joined != 1 || len(res.Released) != 1 {
		t.Fatalf("the end on i2: %+v", res)
	}
	last := fireOn(t, s, res.Released)
	for i, r := range slices.Concat(second.Bound, next.Bound, last.Bound) {
		if res := settle(t, s, settled, result(s, r, domain.OutcomeSucceeded)); (res.Joined == 1) != (i == 2) {
			t.Errorf("shard %d of the second: %+v", i, res)
		}
	}
	noOwners(t, s)
}

// If the number of shards is fixed, several shards can share an instance. They keep its slot until the last of them ends.
func TestShardsShareAnInstance(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", perInstance, func(sp *domain.JobSpec) { sp.Shards = 3 })
	first := expand(t, s, job, "i1", "i2", "i1")
	if len(first.Bound) != 3 {
		t.Fatalf("the first broadcast: %+v", first)
	}
	if second := expand(t, s, job, "i1", "i1", "i2"); len(second.Held) != 3 {
		t.Fatalf("the second broadcast: %+v", second)
	}
	if res := settle(t, s, settled, result(s, first.Bound[0], domain.OutcomeSucceeded)); len(res.Released) != 0 {
		t.Errorf("released %+v although a shard still runs on the instance", res.Released)
	}
	// i1 refuses its other shard, so the slot is free. The reconciler releases the held shard.
	refused := slices.IndexFunc(first.Bound[1:], func(r engine.LiveRun) bool { return r.Instance == "i1" }) + 1
	r := first.Bound[refused]
	if waiting, _, err := s.Unbind(t.Context(), []store.Refusal{{RunID: r.ID, Attempt: 1, Bind: r.Bind, Why: "full"}}); err != nil || len(waiting) != 1 {
		t.Fatalf("unbind: %+v, %v", waiting, err)
	}
	if due, err := s.ReleaseOrphans(t.Context(), 10); err != nil || len(due) != 1 {
		t.Errorf("released %+v, %v", due, err)
	}
}

func TestShardsDiscarded(t *testing.T) {
	s, ups := open(t)
	child := create(t, s, "child")
	job := create(t, s, "a", perInstance, func(sp *domain.JobSpec) {
		sp.Block = domain.BlockDiscardLater
		sp.Children = []domain.Child{{JobID: child.ID, On: domain.OnAlways}}
	})
	first := expand(t, s, job, "i1", "i2")
	ups.ups = nil
	second := expand(t, s, job, "i1", "i2")
	if len(second.Ended) != 2 || second.Ended[0].State != domain.Skipped || second.Ended[0].Reason != domain.ReasonDiscarded {
		t.Fatalf("the second broadcast: %+v", second)
	}
	if len(ups.ups) != 1 {
		t.Errorf("%d children of a broadcast that was discarded whole", len(ups.ups))
	}
	third := expand(t, s, job, "i2", "i3")
	if len(third.Ended) != 1 || len(third.Bound) != 1 {
		t.Fatalf("the third broadcast: %+v", third)
	}
	for _, r := range slices.Concat(first.Bound, third.Bound) {
		settle(t, s, settled, result(s, r, domain.OutcomeSucceeded))
	}
	if n := query[int64](t, s, `SELECT count(*) FROM broadcasts`); n != 0 {
		t.Errorf("%d broadcasts are left", n)
	}
	noOwners(t, s)
}

// Before it is due, a broadcast takes its slots only if all are free. Otherwise it is tried again at its due instant, when
// shards whose slot is taken are held or discarded.
func TestShardsAheadOfDue(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", perInstance, func(sp *domain.JobSpec) { sp.Block = domain.BlockDiscardLater })
	expand(t, s, job, "i1")
	trigger(t, s, job.ID, 1)
	exec(t, s, `UPDATE runs_live SET due_at = date_trunc('ms', now()) + interval '3 s' WHERE state = 'pending'`)
	near := claim(t, s)
	def, err := s.Definition(t.Context(), job.ID, near[0].JobVersion)
	if err != nil {
		t.Fatal(err)
	}
	to := []store.ShardBinding{
		{Binding: engine.Binding{Instance: "i1", BootID: "b"}, Pin: "i1"},
		{Binding: engine.Binding{Instance: "i2", BootID: "b"}, Pin: "i2"},
	}
	out, err := s.ExpandBroadcast(t.Context(), near[0], def, to)
	if err != nil || len(out.Later) != 1 || !out.Later[0].AtDue || len(out.Bound)+len(out.Ended) != 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	if n := query[int64](t, s, `SELECT count(*) FROM block_slots WHERE owner = $1`, near[0].RunID); n != 0 {
		t.Error("a broadcast that is tried again at its due instant owns a slot")
	}
}

// Like every run of scope instance, a shard gives up its slot before it is retried.
func TestShardRetried(t *testing.T) {
	s, _ := open(t)
	job := create(t, s, "a", perInstance, func(sp *domain.JobSpec) { sp.Retries = 1 })
	first := expand(t, s, job, "i1", "i2")
	expand(t, s, job, "i1", "i2")
	res := settle(t, s, settled, result(s, first.Bound[0], domain.OutcomeFailed))
	if len(res.Released) != 1 {
		t.Fatalf("a failed shard released %+v", res.Released)
	}
	next := fireOn(t, s, res.Released)
	exec(t, s, `UPDATE runs_live SET due_at = date_trunc('ms', now()) WHERE state = 'retrying'`)
	if n, err := s.ReplanOverdue(t.Context(), 10); err != nil || n != 1 {
		t.Fatalf("replan: %d, %v", n, err)
	}
	if out := fireOn(t, s, claim(t, s)); len(out.Held) != 1 {
		t.Fatalf("the retry while the next shard runs: %+v", out)
	}
	if res := settle(t, s, settled, result(s, next.Bound[0], domain.OutcomeSucceeded)); len(res.Released) != 1 || res.Released[0].Attempt != 2 {
		t.Errorf("then: %+v", res)
	}
}

// If a user runs one shard again, the new run is not expanded again, keeps its pin, and joins by itself.
func TestOneShardIsRunAgain(t *testing.T) {
	s, ups := open(t)
	child := create(t, s, "child")
	for name, shards := range map[string]int{"one for each instance": 0, "spread": 3} {
		t.Run(name, func(t *testing.T) {
			job := create(t, s, name, func(sp *domain.JobSpec) {
				sp.Route, sp.Shards, sp.Children = domain.RouteBroadcast, shards, []domain.Child{{JobID: child.ID, On: domain.OnSuccess}}
			})
			pin := "i2"
			if shards > 0 {
				pin = ""
			}
			first := trigger(t, s, job.ID, 1)[0]
			due := claim(t, s)[0]
			defs, err := s.Definitions(t.Context(), []engine.Due{due})
			if err != nil {
				t.Fatal(err)
			}
			var to []engine.ShardBinding
			for _, i := range []string{"i1", "i2", "i3"} {
				b := engine.ShardBinding{Binding: engine.Binding{Instance: i, BootID: "b1"}}
				if shards == 0 {
					b.Pin = i
				}
				to = append(to, b)
			}
			out, err := s.ExpandBroadcast(t.Context(), due, defs.Of(job.ID, 1), to)
			if err != nil || len(out.Bound) != 3 {
				t.Fatalf("%+v, %v", out, err)
			}
			for i, r := range out.Bound {
				outcome := domain.OutcomeSucceeded
				if i == 1 {
					outcome = domain.OutcomeFailed
				}
				settle(t, s, settled, result(s, r, outcome))
			}
			again, err := s.RetryRun(t.Context(), domain.ShardRunID(first, 1), "ann")
			if err != nil {
				t.Fatal(err)
			}
			param := "other"
			moved, err := s.RetryRunWith(t.Context(), domain.ShardRunID(first, 1), "ann", domain.Retry{Param: &param, Instance: "i3"})
			if err != nil {
				t.Fatal(err)
			}
			if got := query[string](t, s, `SELECT pin || ' ' || param FROM runs_live WHERE id = $1`, moved); got != "i3 other" {
				t.Errorf("on another instance: %s", got)
			}
			exec(t, s, `DELETE FROM runs_live WHERE id = $1`, moved)
			exec(t, s, `DELETE FROM broadcasts WHERE id = $1`, moved)
			next := claim(t, s)
			if len(next) != 1 || next[0].RunID != again || next[0].Broadcast != again || next[0].Pin != pin {
				t.Fatalf("planned %+v", next)
			}
			before := len(ups.ups)
			bound := admit(t, s, next).Bound
			if len(bound) != 1 || bound[0].Shard == nil || *bound[0].Shard != (domain.Shard{Index: 1, Total: 3}) {
				t.Fatalf("bound %+v", bound)
			}
			settle(t, s, settled, result(s, bound[0], domain.OutcomeSucceeded))
			if n := len(ups.ups) - before; n != 1 || ups.ups[before].RunID != again {
				t.Errorf("%d follow-ups: %+v", n, ups.ups[before:])
			}
			if n := query[int64](t, s, `SELECT (SELECT count(*) FROM broadcasts) + (SELECT count(*) FROM runs_live)`); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		})
	}
}
