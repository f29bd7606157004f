package memstore

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// RaiseBinds begins a new offer round for attempts, with the boots that they are bound to.
func (s *Store) RaiseBinds(_ context.Context, runs []engine.LiveRun) (out []engine.LiveRun, err error) {
	db := s.db
	db.tx(func() {
		for _, known := range runs {
			r := db.live[known.ID]
			if r == nil || r.Attempt != known.Attempt || r.Bind != known.Bind || r.State != domain.Queued || r.Instance == "" {
				continue
			}
			r.Bind++
			r.BoundAt = at(db.now())
			out = append(out, r.LiveRun)
		}
	})
	return out, nil
}

// Unbind makes attempts wait again that their instances refused. It returns runs with a kill request as killed instead.
func (s *Store) Unbind(_ context.Context, refused []engine.Refusal) (waiting, killed []engine.LiveRun, err error) {
	db := s.db
	db.tx(func() {
		for _, f := range refused {
			r := db.live[f.RunID]
			//sim:seam unbind-compare
			if r == nil || r.Attempt != f.Attempt || r.Bind != f.Bind || r.State != domain.Queued || r.Instance == "" {
				continue
			}
			def, k := db.def(r), slotKey{r.JobID, r.Instance}
			r.Instance, r.BootID, r.BoundAt, r.GiveUpAt, r.Waiting = "", "", nil, time.Time{}, f.Why
			if db.slots[k] != domain.NilRunID {
				db.owner(k) // frees the slot if no run of its owner is left there; a reconciler releases the held runs
			}
			if f.Avoid != "" {
				r.Avoid = f.Avoid
			}
			if r.KillRequested {
				killed = append(killed, r.LiveRun)
				continue
			}
			s.wait(r, def)
			waiting = append(waiting, r.LiveRun)
		}
	})
	return waiting, killed, nil
}

// MarkRunning records attempts as running.
func (s *Store) MarkRunning(_ context.Context, started []engine.Started) (out []engine.Change, err error) {
	db := s.db
	db.tx(func() {
		for _, st := range started {
			r := db.live[st.RunID]
			if r == nil || r.Attempt != st.Attempt || r.Instance != st.Instance || r.BootID != st.BootID || r.Bind != st.Bind || r.State != domain.Queued {
				continue
			}
			r.State, r.StartedAt, r.Waiting = domain.Running, at(st.StartedAt), ""
			r.late(st.StartedAt)
			out = append(out, change(r))
		}
	})
	return out, nil
}

// late records the lateness of the run's first start.
func (r *Run) late(start time.Time) {
	if r.LatenessMS == nil && !start.IsZero() {
		ms := start.Sub(r.DueAt).Milliseconds()
		r.LatenessMS = &ms
	}
}

// ParentOutputs returns the outputs of finished parent runs, for the handlers of their child runs.
func (s *Store) ParentOutputs(_ context.Context, parents []domain.RunID) (map[domain.RunID]string, error) {
	out := make(map[domain.RunID]string)
	s.db.tx(func() {
		for _, id := range parents {
			if r := s.db.history[id]; r != nil {
				out[id] = r.Output
			}
		}
	})
	return out, nil
}
