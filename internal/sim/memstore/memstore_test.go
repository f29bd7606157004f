package memstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/belfryhq/belfry/dispatcher"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/sim/memstore"
	"github.com/belfryhq/belfry/internal/storetest"
)

// The store in memory passes the suite of the Postgres store.
func TestConformance(t *testing.T) {
	storetest.Test(t, func(*testing.T) *storetest.Backend {
		db := memstore.New()
		s := db.Store()
		return &storetest.Backend{
			Scheduler:  s,
			Stores:     dispatcher.Stores{Announce: s, Settle: s, Offer: s, Kill: s, Fire: s},
			RoleStores: dispatcher.RoleStores{Assign: s, Verdict: s, Reconcile: s, Upkeep: s, Glance: s},
			Jobs:       s,
			Pauses:     s,
			Replan:     s.Replan,
			PlanChild:  s.PlanChild,
			Advance: func(t *testing.T, d time.Duration) {
				db.Advance(d)
				if err := s.SyncClock(context.Background()); err != nil {
					t.Fatal(err)
				}
			},
			FollowUps: func(*testing.T) (out []engine.FollowUp) {
				for u, ok := db.TakeFollowUp(); ok; u, ok = db.TakeFollowUp() {
					out = append(out, u)
				}
				return out
			},
			Runs: func(_ *testing.T, job domain.JobID) (out []storetest.Run) {
				for _, r := range db.Runs() {
					if r.JobID != job {
						continue
					}
					view := storetest.Run{
						ID: r.ID, Version: r.JobVersion, State: r.State, Reason: r.Reason, Cause: r.Cause, Attempt: r.Attempt,
						FireTime: r.FireTime.UTC(), DueAt: r.DueAt, Instance: r.Instance, Message: r.Message, Notes: r.Notes,
					}
					if r.ParentRunID != nil {
						view.Parent = *r.ParentRunID
					}
					out = append(out, view)
				}
				return out
			},
			Missed:     func(_ *testing.T, job domain.JobID) []domain.Missed { return db.Missed(job) },
			OwnedSlots: func(*testing.T) int { return db.OwnedSlots() },
			HasLate: func(_ *testing.T, run domain.RunID, attempt int) bool {
				_, ok := db.Late(run, attempt)
				return ok
			},
		}
	})
}
