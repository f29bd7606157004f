package store

import (
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// epoch stands for NULL in arrays of instants.
func epoch(t time.Time) time.Time {
	if t.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return t
}

// fromEpoch undoes epoch.
func fromEpoch(t time.Time) time.Time {
	if t.Unix() == 0 {
		return time.Time{}
	}
	return t.UTC()
}

// nullable makes NULL of the zero time.
func nullable(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// atPlace sets one of n values that few have, and that are rest where it is not set. While none has one the array stays
// empty, which a statement takes for nulls and costs nothing.
func atPlace[T any](values []T, n, place int, v, rest T) []T {
	if len(values) == 0 {
		values = slices.Repeat([]T{rest}, n)
	}
	values[place] = v
	return values
}

// shared are values that many rows of a batch have in common. A statement gets them once, and of each row a place among them,
// counted from one as Postgres does: to take a text in, to unnest and to join it costs that a good part of a microsecond.
type shared[T comparable] struct {
	all    []T
	places map[T]int32
	last   int32 // most often it is the same again
}

// place returns the place of a value.
func (s *shared[T]) place(v T) int32 {
	if s.last > 0 && s.all[s.last-1] == v {
		return s.last
	}
	at, ok := s.places[v]
	if !ok {
		if s.places == nil {
			s.places = make(map[T]int32)
		}
		s.all = append(s.all, v)
		at = int32(len(s.all))
		s.places[v] = at
	}
	s.last = at
	return at
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func liveRun(r sqlcgen.RunsLive) domain.LiveRun {
	out := domain.LiveRun{
		ID: r.ID, JobID: domain.JobID(r.JobID), JobVersion: int(r.JobVersion), Group: r.GroupName,
		Cause: domain.Cause(r.Cause), State: domain.State(r.State), Attempt: int(r.Attempt), Bind: int(r.Bind),
		FireTime: r.FireTime, DueAt: r.DueAt, BoundAt: r.BoundAt, StartedAt: r.StartedAt,
		Instance: orZero(r.Instance), BootID: orZero(r.BootID), Pin: orZero(r.Pin), Avoid: orZero(r.Avoid),
		Param: r.Param, BroadcastID: r.BroadcastID, ParentRunID: r.ParentRunID,
		KillRequested: r.KillRequestedAt != nil, KillReason: domain.Reason(orZero(r.KillReason)),
	}
	if r.ShardIndex != nil && r.ShardTotal != nil {
		out.Shard = &domain.Shard{Index: int(*r.ShardIndex), Total: int(*r.ShardTotal)}
	}
	return out
}

func liveRuns(rows []sqlcgen.RunsLive) []domain.LiveRun {
	out := make([]domain.LiveRun, len(rows))
	for i, r := range rows {
		out[i] = liveRun(r)
	}
	return out
}

func change(r sqlcgen.RunsLive) domain.Change {
	return domain.Change{
		RunID: r.ID, JobID: domain.JobID(r.JobID), JobVersion: int(r.JobVersion), Group: r.GroupName,
		Cause: domain.Cause(r.Cause), State: domain.State(r.State), Reason: domain.Reason(r.Reason),
		FireTime: r.FireTime, Attempt: int(r.Attempt),
	}
}
