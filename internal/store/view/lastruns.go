package view

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// LastRun is one of the latest events of a job: a run, a broadcast with all its shards, or missed fire times.
type LastRun struct {
	ID       domain.RunID // for a broadcast, the most significant shard; zero for missed fire times
	At       time.Time    // the fire time, or the creation if there is none
	Cause    domain.Cause
	State    domain.State // for a broadcast, the worst of its shards; empty for missed fire times
	Reason   domain.Reason
	Duration time.Duration // if it has ended
	Ended    bool
	Shards   int                  // number of shards of a broadcast that were read
	Missed   int64                // number of missed fire times; 0: it is a run
	Why      *explain.Explanation // why the fire times were missed
}

const (
	shardsOfJob = 400    // shards that are read for the last broadcasts of one job
	shardsRead  = 20_000 // shards that are read for all jobs
)

// LastRuns returns up to most of the last runs of each job, newest first, of the given groups (nil: all), including its
// missed fire times. Runs that are planned and not yet due are left out.
func (s *Store) LastRuns(ctx context.Context, jobs []domain.Job, only []string, most int) (map[domain.JobID][]LastRun, error) {
	ids, broadcast := []int64{}, []int64{}
	for _, j := range jobs {
		ids = append(ids, int64(j.ID))
		if j.Route == domain.RouteBroadcast {
			broadcast = append(broadcast, int64(j.ID))
		}
	}
	out := make(map[domain.JobID][]LastRun, len(jobs))
	if len(jobs) == 0 {
		return out, nil
	}
	shards := max(most, min(shardsOfJob, shardsRead/max(len(broadcast), 1)))
	runs, err := s.q.LastRunsOfJobs(ctx, sqlcgen.LastRunsOfJobsParams{JobIds: ids, Broadcast: broadcast, Shards: int32(shards), Runs: int32(most)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	missed, err := s.q.LastMissedOfJobs(ctx, sqlcgen.LastMissedOfJobsParams{JobIds: ids, Entries: int32(most)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	seen := RunFilter{Only: only}
	folded := make(map[domain.RunID]LastRun)
	of := make(map[domain.RunID]domain.JobID)
	for _, r := range runs {
		if !seen.Sees(r.GroupName) {
			continue
		}
		key := r.ID
		if r.BroadcastID != nil {
			key = *r.BroadcastID
		}
		now := lastRun(r)
		if before, ok := folded[key]; ok {
			now = fold(before, now, r.BroadcastID != nil)
		}
		folded[key], of[key] = now, domain.JobID(r.JobID)
	}
	for key, r := range folded {
		out[of[key]] = append(out[of[key]], r)
	}
	for _, m := range missed {
		job := domain.JobID(m.JobID)
		out[job] = append(out[job], LastRun{At: m.LastFireTime.UTC(), Missed: m.Count, Why: explain.Read(explain.Note(orZero(m.WhyNote)), m.Why)})
	}
	for job, all := range out {
		slices.SortFunc(all, func(a, b LastRun) int {
			return cmp.Or(b.At.Compare(a.At), slices.Compare(b.ID[:], a.ID[:]))
		})
		out[job] = all[:min(len(all), most)]
	}
	return out, nil
}

func lastRun(r sqlcgen.LastRunsOfJobsRow) LastRun {
	out := LastRun{ID: r.ID, At: r.ID.Time().UTC(), Cause: domain.Cause(r.Cause), State: domain.State(r.State), Reason: domain.Reason(r.Reason)}
	if r.FireTime != nil {
		out.At = r.FireTime.UTC()
	}
	if r.FinishedAt != nil {
		out.Ended = true
		if r.StartedAt != nil {
			out.Duration = r.FinishedAt.Sub(*r.StartedAt)
		}
	}
	if r.BroadcastID != nil {
		out.Shards = 1
	}
	return out
}

// fold merges two shards of a broadcast, or two rows of a run that is being moved to the history.
func fold(a, b LastRun, shards bool) LastRun {
	if !shards || a.ID == b.ID {
		if a.Ended {
			return a
		}
		return b
	}
	out := a
	if gravity(b.State) > gravity(a.State) || gravity(b.State) == gravity(a.State) && slices.Compare(b.ID[:], a.ID[:]) < 0 {
		out = b
	}
	out.Shards = a.Shards + b.Shards
	out.Ended = a.Ended && b.Ended
	out.Duration = max(a.Duration, b.Duration)
	return out
}

// gravity orders states by their significance for a broadcast.
func gravity(s domain.State) int {
	return slices.Index([]domain.State{
		domain.Succeeded, domain.Skipped, domain.Cancelled, domain.Pending, domain.Queued, domain.Retrying, domain.Running, domain.Failed,
	}, s)
}
