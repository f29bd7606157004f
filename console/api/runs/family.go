package runs

import (
	"context"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
)

// shards is a whole broadcast.
type shards struct {
	BroadcastID *domain.RunID        `json:"broadcast_id" doc:"null if the run is not a shard"`
	Total       int                  `json:"total"`
	Counts      map[domain.State]int `json:"counts" doc:"The number of shards by state"`
	Items       []domain.Run         `json:"items" nullable:"false" doc:"The shards, ordered by index. Message, output and param are cut to 1,024 characters"`
}

type familyInput struct {
	rest.RunPath
	rest.Reader
}

// relative names a run that another run has caused.
type relative struct {
	ID      domain.RunID `json:"id"`
	JobID   domain.JobID `json:"job_id"`
	JobName string       `json:"job_name"`
	Group   string       `json:"group"`
	State   domain.State `json:"state"`
}

// maxRelatives bounds the children that a run shows; GET /runs/{id}/children has all.
const maxRelatives = 100

func (a *API) shards(ctx context.Context, id auth.Identity, in *familyInput) (*rest.Output[shards], error) {
	if err := a.Visible.Run(ctx, id, in.ID); err != nil {
		return nil, err
	}
	runs, err := a.Views.Shards(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	writeNotes(runs, in.Language())
	out := shards{Items: runs, Counts: map[domain.State]int{}}
	for _, r := range runs {
		out.BroadcastID, out.Total = r.BroadcastID, r.Shard.Total
		out.Counts[r.State]++
	}
	return rest.Answer(out), nil
}

func (a *API) children(ctx context.Context, id auth.Identity, in *familyInput) (*rest.Output[rest.Page[domain.Run]], error) {
	r, err := a.read(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	runs, err := a.visibleChildren(ctx, id, r)
	writeNotes(runs, in.Language())
	return rest.Answer(rest.Page[domain.Run]{Items: runs}), err
}

// visibleChildren leaves out children in groups that the caller may not see.
func (a *API) visibleChildren(ctx context.Context, id auth.Identity, r domain.Run) ([]domain.Run, error) {
	runs, err := a.Views.Children(ctx, r)
	seen := []domain.Run{}
	for _, c := range runs {
		if id.Sees(c.Group) {
			seen = append(seen, c)
		}
	}
	return seen, err
}

// relatives are the children that a run shows. An unfinished run has none.
func (a *API) relatives(ctx context.Context, id auth.Identity, r domain.Run) ([]relative, error) {
	out := []relative{}
	if !r.State.Final() {
		return out, nil
	}
	runs, err := a.visibleChildren(ctx, id, r)
	for _, c := range runs[:min(len(runs), maxRelatives)] {
		out = append(out, relative{c.ID, c.JobID, c.JobName, c.Group, c.State})
	}
	return out, err
}
