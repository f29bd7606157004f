package runs

import (
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/stream"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/console/live"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store/view"
)

// runGone is a run that no longer matches the filter. A client removes it from its list.
type runGone struct {
	ID domain.RunID `json:"id"`
}

// runGap says that changes are missing.
type runGap struct{}

func (a *API) stream(ctx context.Context, id auth.Identity, in *struct{ RunQuery }) (*rest.Streamed, error) {
	f, err := in.filter(id)
	if err != nil {
		return nil, err
	}
	if err := a.Visible.CheckGroup(ctx, id, in.Group); err != nil {
		return nil, err
	}
	parents := []domain.RunID{f.ParentRunID}
	if !f.ParentRunID.IsZero() {
		// Each shard of a broadcast has the children of the whole broadcast.
		found, err := a.Views.RunsByID(ctx, parents)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 && found[0].BroadcastID != nil {
			parents = append(parents, *found[0].BroadcastID)
		}
	}
	watcher, err := a.Hub.Watch(runFilter(f, parents))
	if err != nil {
		return nil, err
	}
	answer, err := a.Streams.Open(id, func(ctx context.Context, s *stream.Stream) {
		defer watcher.Close()
		sendRuns(ctx, s, watcher)
	})
	if err != nil {
		watcher.Close()
	}
	return answer, err
}

// runFilter selects the changed runs that a list with that filter shows. The row of a run decides whether the caller may
// see it.
func runFilter(f view.RunFilter, parents []domain.RunID) live.Filter {
	// A run can leave a list when its state, reason or instance changes. Final runs do not change.
	lasting := f
	lasting.States, lasting.Reason, lasting.Instance = nil, "", ""
	final := len(f.States) > 0 && !slices.ContainsFunc(f.States, func(s domain.State) bool { return !s.Final() })
	loses := !final && (len(f.States) > 0 || f.Reason != "" || f.Instance != "")
	return live.Filter{
		Wants: func(c *engine.Change) bool {
			return f.Sees(c.Group) && (f.JobID == 0 || f.JobID == c.JobID) && (f.Cause == "" || f.Cause == c.Cause) &&
				(!final || slices.Contains(f.States, c.State))
		},
		Judge: func(r *domain.Run) live.Verdict {
			child := f.ParentRunID.IsZero() || r.ParentRunID != nil && slices.Contains(parents, *r.ParentRunID)
			switch {
			case child && f.Fits(r):
				return live.Show
			case child && loses && lasting.Fits(r):
				return live.Gone
			}
			return live.Nothing
		},
	}
}

// sendRuns sends the events of the watcher.
func sendRuns(ctx context.Context, s *stream.Stream, w *live.Watcher) {
	beat := time.NewTicker(stream.Beat)
	defer beat.Stop()
	for s.Flush() == nil {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		case <-w.Wake():
		}
		events, gap := w.Take()
		for _, e := range events {
			if e.Gone {
				s.Event("gone", 0, runGone{e.Run.ID})
			} else {
				s.Event("run", 0, e.Run)
			}
		}
		if gap {
			s.Event("gap", 0, runGap{})
		}
	}
}
