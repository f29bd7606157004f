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

// shared are values of the rows of a batch, of which many may have the same. Then a statement gets each value once, and of each
// row its place among them, counted from one as Postgres does: to take a text in, to unnest and to join it costs that a good part of
// a microsecond.
type shared[T comparable] struct {
	values []T     // different ones
	places []int32 // of each row
	known  map[T]int32
}

// sharedMost is how many values may differ. To find one in an array of texts, Postgres goes through those before it.
const sharedMost = 32

func newShared[T comparable](rows int) *shared[T] {
	return &shared[T]{places: make([]int32, 0, rows), known: make(map[T]int32)}
}

// add adds the next row's value.
func (s *shared[T]) add(v T) {
	if n := len(s.places); n > 0 && s.values[s.places[n-1]-1] == v {
		s.places = append(s.places, s.places[n-1])
		return
	}
	at, ok := s.known[v]
	if !ok {
		s.values = append(s.values, v)
		at = int32(len(s.values))
		s.known[v] = at
	}
	s.places = append(s.places, at)
}

// texts are what a statement is given of the values: those that rows share, or each row's own where too many differ. Of the two
// arrays one is empty, which stands for nulls.
func texts[T comparable](s *shared[T], of func(T) string) (common, own []string) {
	if len(s.values) <= sharedMost {
		common = make([]string, len(s.values))
		for i, v := range s.values {
			common[i] = of(v)
		}
		return common, []string{}
	}
	own = make([]string, len(s.places))
	for i, at := range s.places {
		own[i] = of(s.values[at-1])
	}
	return []string{}, own
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
