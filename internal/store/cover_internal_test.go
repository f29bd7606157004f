package store

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// idAt is the n-th id of a millisecond around noon.
func idAt(ms, n int) domain.RunID {
	var id domain.RunID
	binary.BigEndian.PutUint64(id[:], uint64(noon.UnixMilli()+int64(ms))<<16)
	id[15] = byte(n)
	return id
}

// newRun draws a run of one of two jobs that comes due around noon. It may be a shard of a broadcast.
func newRun(t *rapid.T, defs []*engine.Definition) Admission {
	id := idAt(rapid.IntRange(-3, 2).Draw(t, "id"), rapid.IntRange(1, 3).Draw(t, "of the millisecond"))
	a := Admission{Def: rapid.SampledFrom(defs).Draw(t, "job")}
	a.RunID, a.JobID, a.Attempt = id, a.Def.JobID, 1
	a.DueAt = noon.Add(time.Duration(rapid.IntRange(-3, 2).Draw(t, "due")) * time.Millisecond)
	a.Instance = rapid.SampledFrom([]string{"", "i1", "i2"}).Draw(t, "instance")
	if rapid.IntRange(0, 3).Draw(t, "shard") == 0 {
		a.Broadcast = idAt(rapid.IntRange(-3, 2).Draw(t, "broadcast"), 0)
	}
	return a
}

func drawDefs(t *rapid.T) []*engine.Definition {
	var defs []*engine.Definition
	for i := range 2 {
		d := &engine.Definition{JobID: domain.JobID(i + 1)}
		d.Block = rapid.SampledFrom([]domain.Block{domain.BlockCoverEarly, domain.BlockCoverEarly, domain.BlockSerial}).Draw(t, "block")
		d.BlockScope = rapid.SampledFrom([]domain.BlockScope{domain.ScopeCluster, domain.ScopeInstance}).Draw(t, "scope")
		defs = append(defs, d)
	}
	return defs
}

// Of the due runs of a batch at one slot of a cover_early job, only the newest is left, or the shards of the newest
// broadcast. Runs that are not due, own their slot, wait for an instance, or have another policy do not change.
func TestCoveredInBatchLeavesTheNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		defs := drawDefs(t)
		var in []Admission
		fireable, admitted := make(map[domain.RunID]bool), make(map[domain.RunID]bool)
		for range rapid.IntRange(0, 8).Draw(t, "runs") {
			a := newRun(t, defs)
			if !slices.ContainsFunc(in, func(b Admission) bool { return a.RunID == b.RunID }) {
				in, fireable[a.RunID] = append(in, a), rapid.IntRange(0, 5).Draw(t, "fireable") > 0
				admitted[a.RunID] = rapid.IntRange(0, 2).Draw(t, "admitted") == 0
			}
		}
		slots := &slotSet{owners: make(map[slotKey]domain.RunID)}
		for _, a := range in {
			slots.owners[slotOf(a.Def, a.Instance)] = rapid.SampledFrom([]domain.RunID{{}, idAt(0, 1), idAt(9, 9)}).Draw(t, "owner")
		}
		before := slices.Clone(in)
		rest, ended := coveredInBatch(in, fireable, admitted, slots, noon)
		if len(rest)+len(ended) != len(in) || !slices.EqualFunc(before, in, func(a, b Admission) bool { return a.RunID == b.RunID }) {
			t.Fatalf("of %d runs %d are left and %d ended", len(in), len(rest), len(ended))
		}
		candidate := func(a Admission) bool {
			return a.Def.Block == domain.BlockCoverEarly && !a.DueAt.After(noon) && fireable[a.RunID] && takes(&a) &&
				slots.owners[slotOf(a.Def, a.Instance)] != a.Owner()
		}
		left := make(map[slotKey]domain.RunID)
		for _, a := range rest {
			if !candidate(a) {
				continue
			}
			k := slotOf(a.Def, a.Instance)
			if o, known := left[k]; known && o != a.Owner() {
				t.Fatalf("both %s and %s are left at %v", o, a.Owner(), k)
			}
			left[k] = a.Owner()
		}
		for _, e := range ended {
			i := slices.IndexFunc(in, func(a Admission) bool { return a.RunID == e.RunID })
			a := in[i]
			if !candidate(a) || e.Outcome != domain.OutcomeSkipped || e.Reason != domain.ReasonCovered {
				t.Fatalf("%+v ended as %+v", a, e)
			}
			if !slices.ContainsFunc(rest, func(b Admission) bool {
				return slotOf(b.Def, b.Instance) == slotOf(a.Def, a.Instance) && candidate(b) && !cameDue(&b, admitted).Before(cameDue(&a, admitted))
			}) {
				t.Fatalf("%+v is not covered by a newer run", a)
			}
		}
	})
}

// Of two runs at most one counts as older, so that two runs never cover each other. A run that first comes due after
// the other covers it.
func TestNewerThanByIsOneSided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		defs := drawDefs(t)[:1]
		a, b := newRun(t, defs), newRun(t, defs)
		if a.RunID == b.RunID || a.Owner() == b.Owner() {
			return // they do not meet
		}
		live := func(x Admission) engine.LiveRun {
			r := engine.LiveRun{ID: x.RunID, JobID: x.JobID, DueAt: x.DueAt}
			if !x.Broadcast.IsZero() {
				r.BroadcastID = &x.Broadcast
			}
			return r
		}
		meets := func(x, y Admission, admitted bool) bool {
			st := &slotState{by: x, owners: []engine.LiveRun{live(y)}}
			o := st.newerThanBy(admitted)
			if !o.IsZero() && o != y.Owner() {
				t.Fatalf("covered by %s, which does not exist", o)
			}
			return !o.IsZero()
		}
		for _, admitted := range []bool{false, true} {
			if meets(a, b, admitted) && meets(b, a, admitted) {
				t.Fatal("each is older than the other")
			}
		}
		if meets(a, b, false) && !a.DueAt.Before(b.DueAt) {
			t.Fatal("a run that is due later counts as older")
		}
	})
}

// A broadcast succeeded if all its shards succeeded. It was cancelled if all other shards were cancelled. Otherwise it failed.
func TestJoinedState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := sqlcgen.Broadcast{}
		failed := 0
		for range rapid.IntRange(1, 20).Draw(t, "shards") {
			b.Total++
			switch rapid.SampledFrom([]domain.State{domain.Succeeded, domain.Cancelled, domain.Failed}).Draw(t, "end") {
			case domain.Succeeded:
				b.Succeeded++
			case domain.Cancelled:
				b.Cancelled++
			default:
				failed++
			}
		}
		want := domain.Failed
		switch {
		case failed == 0 && b.Cancelled == 0:
			want = domain.Succeeded
		case failed == 0:
			want = domain.Cancelled
		}
		if got := joinedState(b); got != want {
			t.Fatalf("%+v is %s, want %s", b, got, want)
		}
	})
}
