package storetest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// turns takes n turns of a job. Of the known instances, the open ones have free slots.
func (s *suite) turns(job domain.JobID, r domain.Route, n int, known, open []string) map[string]int64 {
	s.t.Helper()
	got, err := s.Fire.TakeTurns(s.t.Context(), map[domain.JobID]engine.Turns{job: {Route: r, Runs: n, Known: known, Open: open}})
	s.must(err)
	return got[job]
}

func (s *suite) uses(what string, got, want map[string]int64) {
	s.t.Helper()
	if !maps.Equal(got, want) {
		s.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func sharedUses(t *testing.T, s *suite) {
	const often, recent = domain.RouteLeastFrequentlyUsed, domain.RouteLeastRecentlyUsed
	abc := []string{"a", "b", "c"}
	job := s.job("a").ID
	s.uses("at first", s.turns(job, often, 1, abc, abc), map[string]int64{"a": 0, "b": 0, "c": 0})
	s.uses("the first by name", s.turns(job, often, 4, abc, abc[:2]), map[string]int64{"a": 1, "b": 0, "c": 0})
	s.uses("b, a, b, a", s.turns(job, often, 1, abc, nil), map[string]int64{"a": 3, "b": 2, "c": 0})
	s.uses("no instance had room", s.turns(job, often, 2, []string{"a", "b", "d"}, []string{"d"}), map[string]int64{"a": 3, "b": 2, "d": 2})
	s.uses("c left, and returns as a new instance", s.turns(job, often, 0, abc, nil), map[string]int64{"a": 3, "b": 2, "c": 2})
	s.uses("another route has its own numbers", s.turns(job, recent, 2, abc, abc), map[string]int64{"a": 0, "b": 0, "c": 0})
	s.uses("a, b", s.turns(job, recent, 5, abc, abc), map[string]int64{"a": 1, "b": 2, "c": 0})
	s.uses("c, a, b, c, a", s.turns(job, recent, 1, []string{"a", "b", "d"}, abc[1:2]), map[string]int64{"a": 7, "b": 5, "d": 0})
	s.uses("b", s.turns(job, recent, 0, []string{"a", "b"}, nil), map[string]int64{"a": 7, "b": 8})
	s.Advance(t, 25*time.Hour)
	s.uses("the order is kept after a day", s.turns(job, recent, 0, []string{"a", "b"}, nil), map[string]int64{"a": 7, "b": 8})
	other := s.job("b").ID
	s.turns(other, often, 9, abc, abc)
	s.Advance(t, 25*time.Hour)
	s.uses("counts expire after a day", s.turns(other, often, 0, abc, nil), map[string]int64{"a": 0, "b": 0, "c": 0})
	s.takeTogether(s.job("c").ID)
	s.takeAsOne(s.job("d").ID)
}

// takeTogether takes turns concurrently. No turn is lost or given twice.
func (s *suite) takeTogether(job domain.JobID) {
	s.t.Helper()
	abc := []string{"a", "b", "c"}
	const workers, each = 4, 15
	var mu sync.Mutex
	seen := make(map[int64]int) // how often each number of earlier turns was returned
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range each {
				got, err := s.Fire.TakeTurns(s.t.Context(), map[domain.JobID]engine.Turns{
					job: {Route: domain.RouteLeastFrequentlyUsed, Runs: 1, Known: abc, Open: abc},
				})
				if err != nil {
					s.t.Error(err)
					return
				}
				mu.Lock()
				seen[got[job]["a"]+got[job]["b"]+got[job]["c"]]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for n := range int64(workers * each) {
		if seen[n] != 1 {
			s.t.Fatalf("turn %d was taken %d times", n, seen[n])
		}
	}
}

// takeAsOne compares turns taken together with the same turns taken one by one.
func (s *suite) takeAsOne(one domain.JobID) {
	s.t.Helper()
	many := s.job("e").ID
	random := rand.New(rand.NewPCG(1, 1))
	names := []string{"a", "B", "c", "D_1", "e-2"}
	for range 30 {
		known := names[:1+random.IntN(len(names))]
		open := slices.DeleteFunc(slices.Clone(known), func(string) bool { return random.IntN(3) == 0 })
		r := []domain.Route{domain.RouteLeastFrequentlyUsed, domain.RouteLeastRecentlyUsed}[random.IntN(8)/7]
		n := 1 + random.IntN(9)
		s.turns(many, r, n, known, open)
		for range n {
			s.turns(one, r, 1, known, open)
		}
		s.uses("together, compared with one by one", s.turns(many, r, 0, known, nil), s.turns(one, r, 0, known, nil))
	}
}

func waitApart(t *testing.T, s *suite) {
	asks := s.job("a", parallel, func(sp *domain.JobSpec) { sp.Route = domain.RouteFailover })
	plain := s.job("b", parallel)
	s.trigger(asks.ID, 1)
	s.trigger(plain.ID, 1)
	_, err := s.Jobs.Trigger(t.Context(), asks.ID, domain.Trigger{Cause: domain.CauseManual, Instance: "i1"})
	s.must(err)
	equal(t, "wait", len(s.admit(s.claim(), "").Waiting), 3)
	keys, err := s.Assign.WaitingKeys(t.Context())
	s.must(err)
	for _, want := range []engine.WaitingKey{
		{Group: "g", Target: "echo"}, {Group: "g", Target: "echo", Apart: asks.ID}, {Group: "g", Target: "echo", Pin: "i1"},
	} {
		if !slices.Contains(keys, want) {
			t.Fatalf("no run waits as %+v, but %+v", want, keys)
		}
		bound, _, err := s.Fire.AssignWaiting(t.Context(), want, 10, func(runs []engine.WaitingRun) []engine.Binding {
			out := make([]engine.Binding, len(runs))
			for i := range out {
				out[i] = to("i1")
			}
			return out
		})
		s.must(err)
		s.one(bound)
	}
}
