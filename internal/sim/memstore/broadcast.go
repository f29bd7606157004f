package memstore

import (
	"context"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// ExpandBroadcast turns a fired or waiting broadcast into its shards.
func (s *Store) ExpandBroadcast(_ context.Context, run engine.Due, def *engine.Definition, to []engine.ShardBinding) (out engine.Admitted, err error) {
	db := s.db
	db.tx(func() {
		now := db.now()
		r := db.live[run.RunID]
		ready := r != nil && r.DueAt.Equal(run.DueAt) && r.JobVersion == run.JobVersion && r.Attempt == run.Attempt && !r.Held &&
			!r.KillRequested && r.BroadcastID == nil &&
			(r.State == domain.Pending || (r.State == domain.Queued && r.Instance == "")) &&
			(r.Cause != domain.CauseSchedule || r.Admitted || !r.DueAt.Before(now.Add(-db.settings.Tolerance)))
		if k, takes := slotFor(def, ""); takes {
			db.reserve([]engine.Admission{{Due: run, Def: def}})
			if owner := db.owner(k); !owner.IsZero() && owner != run.RunID {
				if db.fireable(r, &run, now) {
					s.block([]engine.Admission{{Due: run, Def: def}}, &out)
				}
				return
			}
			if ready {
				db.slots[k] = run.RunID
			}
		}
		if !ready {
			return
		}
		free, blocked := db.shardSlots(run.RunID, def, to)
		if len(blocked) > 0 && run.DueAt.After(s.Now()) {
			run.AtDue = true
			out.Later = append(out.Later, run) // before it is due, it may only take free slots
			return
		}
		var losers []engine.Admission
		delete(db.waiting, r.ID)
		r.State, r.Admitted, r.Replanned = domain.Queued, true, true
		r.BroadcastID = &run.RunID
		db.broadcasts[run.RunID] = &broadcast{total: len(to), remaining: len(to)}
		for _, k := range free {
			db.slots[k] = run.RunID
		}
		for i, b := range to {
			shard := r
			if i > 0 {
				shard = &Run{LiveRun: r.LiveRun, Admitted: true, Replanned: true, RungAt: r.RungAt, CreatedAt: r.CreatedAt}
				shard.ID, shard.Bind = domain.ShardRunID(run.RunID, i), 0
				db.live[shard.ID] = shard
			}
			shard.Shard = &domain.Shard{Index: i, Total: len(to)}
			shard.Pin = b.Pin
			if on, held := blocked[i]; held {
				losers = append(losers, engine.Admission{Due: shard.Due(), Def: def, Binding: engine.Binding{Instance: on}})
				continue
			}
			s.bind(shard, def, b.Binding, now)
			if shard.Instance != "" {
				out.Bound = append(out.Bound, shard.LiveRun)
			} else {
				out.Waiting = append(out.Waiting, shard.LiveRun)
			}
		}
		s.block(losers, &out)
	})
	return out, nil
}

// shardSlots returns, in scope instance, the slots that the shards of a broadcast take, and the instances of the shards whose
// slot is taken, by shard index. Shards of one broadcast share the slot of an instance.
func (db *DB) shardSlots(id domain.RunID, def *engine.Definition, to []engine.ShardBinding) (free []slotKey, blocked map[int]string) {
	blocked = make(map[int]string)
	if !def.NeedsSlot() || def.BlockScope != domain.ScopeInstance {
		return nil, blocked
	}
	for i, b := range to {
		if b.Instance == "" {
			continue
		}
		k := slotOf(def, b.Instance)
		if owner := db.owner(k); !owner.IsZero() && owner != id {
			blocked[i] = b.Instance
			continue
		}
		free = append(free, k)
	}
	return free, blocked
}
