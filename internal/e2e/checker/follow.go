package checker

import (
	"github.com/belfryhq/belfry/internal/domain"
)

// broadcasts checks that each broadcast has all its shards, each once.
func (c *check) broadcasts() {
	for id, shards := range c.shards() {
		if len(shards) == 1 && c.runAgain(shards[0]) {
			continue // a broadcast of one shard
		}
		seen := make(map[int]bool)
		total := shards[0].ShardTotal
		for _, s := range shards {
			if s.ShardTotal != total || s.ShardIndex < 0 || s.ShardIndex >= total || seen[s.ShardIndex] {
				c.fail(RuleBroadcast, "the broadcast %s has the shard %d of %d twice, or also shards of %d", id, s.ShardIndex, s.ShardTotal, total)
			}
			seen[s.ShardIndex] = true
		}
		if len(seen) != total {
			c.fail(RuleBroadcast, "the broadcast %s of %d shards has %d", id, total, len(seen))
		}
	}
}

// runAgain reports whether a user ran a final run again. Such a run is manual and does not have the param that marks each trigger.
func (c *check) runAgain(r *Run) bool { return r.Cause == domain.CauseManual && r.Param == "" }

func (c *check) shards() map[string][]*Run {
	out := make(map[string][]*Run)
	for i := range c.h.Runs {
		if r := &c.h.Runs[i]; r.Broadcast != "" {
			out[r.Broadcast] = append(out[r.Broadcast], r)
		}
	}
	return out
}

// children checks that each parent, a run or a whole broadcast, has each of its children exactly once, and that each child has a
// matching parent.
func (c *check) children() {
	type birth struct {
		parent string
		child  int64
	}
	born := make(map[birth]int)
	for i := range c.h.Runs {
		r := &c.h.Runs[i]
		if r.Cause == domain.CauseChild || r.Parent != "" {
			born[birth{r.Parent, r.Job}]++
		}
	}
	wanted := make(map[birth]bool)
	want := func(r *Run, parent string, state domain.State) {
		j := c.jobs[r.Job]
		if j == nil || j.version(r.Version) == nil || !state.Final() {
			return
		}
		for _, child := range j.version(r.Version).Spec.Children {
			if starts(child.On, state) {
				wanted[birth{parent, int64(child.JobID)}] = true
			}
		}
	}
	for i := range c.h.Runs {
		if r := &c.h.Runs[i]; r.Broadcast == "" {
			want(r, r.ID, r.State)
		}
	}
	for id, shards := range c.shards() {
		want(shards[0], id, joined(shards))
	}
	for b := range wanted {
		if n := born[b]; n != 1 {
			c.fail(RuleChild, "the run %s has %d runs of its child, job %d", b.parent, n, b.child)
		}
	}
	for b, n := range born {
		if !wanted[b] {
			c.fail(RuleChild, "job %d ran %d times as a child of %q, which does not match", b.child, n, b.parent)
		}
	}
}

func starts(on domain.ChildOn, end domain.State) bool {
	switch on {
	case domain.OnSuccess:
		return end == domain.Succeeded
	case domain.OnFailure:
		return end == domain.Failed
	case domain.OnAlways:
		return true
	}
	return false
}

// joined returns the end of a whole broadcast, which succeeds if all shards succeed.
func joined(shards []*Run) domain.State {
	succeeded, cancelled := 0, 0
	for _, s := range shards {
		switch s.State {
		case domain.Succeeded:
			succeeded++
		case domain.Cancelled:
			cancelled++
		case domain.Skipped:
			if s.Reason == domain.ReasonCovered {
				cancelled++
			}
		case domain.Failed:
		case domain.Pending, domain.Queued, domain.Running, domain.Retrying:
			return s.State
		}
	}
	switch {
	case succeeded == len(shards):
		return domain.Succeeded
	case cancelled > 0 && succeeded+cancelled == len(shards):
		return domain.Cancelled
	}
	return domain.Failed
}
