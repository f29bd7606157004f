package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

// runFamily is a run with its broadcast and the runs that it caused.
type runFamily struct {
	client.RunDetail
	Shards []domain.Run `json:"shards,omitempty"`
}

func (a *app) runFamily(cl *client.Client, id domain.RunID) (runFamily, error) {
	r, err := cl.RunDetail(a.ctx, id)
	if err != nil || r.BroadcastID == nil {
		return runFamily{RunDetail: r}, err
	}
	s, err := cl.Shards(a.ctx, id)
	return runFamily{r, s.Items}, err
}

func familyTable(t *table, f runFamily) {
	runTable(t, f.Run)
	if s := f.LastSuccess; s != nil {
		t.pair("last success", fmt.Sprintf("%s at %s", s.RunID, people(s.At.Time)))
		t.pair("changed since", changesText(f.Changes))
	}
	for _, c := range f.Children {
		t.pair("child", fmt.Sprintf("%s %s/%s: %s", c.ID, c.Group, c.JobName, c.State))
	}
	if len(f.Shards) < 2 {
		return
	}
	t.pair("shards", stateCounts(f.Shards))
	for _, s := range f.Shards {
		text := fmt.Sprintf("%s %s", s.ID, outcomeText(s))
		if s.Instance != "" {
			text += " on " + s.Instance
		}
		t.pair(fmt.Sprintf("shard %d", s.Shard.Index), text)
	}
}

func outcomeText(r domain.Run) string {
	if r.Reason == domain.NoReason {
		return string(r.State)
	}
	return fmt.Sprintf("%s (%s)", r.State, r.Reason)
}

// stateCounts returns how many runs are in each state, such as "1 running, 2 failed".
func stateCounts(runs []domain.Run) string {
	var parts []string
	for _, state := range domain.States {
		n := 0
		for _, r := range runs {
			if r.State == state {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

// folded is one row of a list: a run, or the shards of one broadcast.
type folded []domain.Run

// fold groups the shards of each broadcast at the position of the first shard in the list.
func fold(runs []domain.Run) []folded {
	var lines []folded
	at := make(map[domain.RunID]int)
	for _, r := range runs {
		if r.BroadcastID == nil {
			lines = append(lines, folded{r})
			continue
		}
		i, known := at[*r.BroadcastID]
		if !known {
			i = len(lines)
			at[*r.BroadcastID] = i
			lines = append(lines, nil)
		}
		lines[i] = append(lines[i], r)
	}
	return lines
}

// row writes one row of a list.
func (f folded) row(t *table) {
	r := f[0]
	name := shown(r.Group+"/"+r.JobName, 60)
	if len(f) == 1 {
		if r.Shard != nil {
			name += fmt.Sprintf(" [%d/%d]", r.Shard.Index, r.Shard.Total)
		}
		t.row(r.ID, name, r.Cause, r.State, r.Reason, r.FireTime, r.StartedAt, milliseconds(r.DurationMS),
			fmt.Sprintf("%d/%d", r.Attempt, r.MaxAttempts), r.Instance)
		return
	}
	name += fmt.Sprintf(" [%d of %d shards]", len(f), r.Shard.Total)
	first := slices.MinFunc(f, func(a, b domain.Run) int { return a.Shard.Index - b.Shard.Index })
	t.row(*r.BroadcastID, name, r.Cause, stateCounts(f), "", first.FireTime, first.StartedAt, "-", "-", "-")
}
