package memstore

import (
	"context"
	"maps"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// CountRoutes adds n to the shared counters of round_robin jobs and returns their previous values.
func (s *Store) CountRoutes(_ context.Context, n map[domain.JobID]int) (map[domain.JobID]int64, error) {
	out := make(map[domain.JobID]int64)
	s.db.tx(func() {
		for id, k := range n {
			out[id] = s.db.routes[id]
			s.db.routes[id] += int64(k)
		}
	})
	return out, nil
}

// uses holds a number per instance of a job. For route least_frequently_used it counts the day's runs; otherwise it orders
// the instances by their last use.
type uses struct {
	route   domain.Route
	day     string
	numbers map[string]int64
}

// TakeTurns records the use of instances by runs that are about to be routed, and returns the previous numbers.
func (s *Store) TakeTurns(_ context.Context, turns map[domain.JobID]engine.Turns) (map[domain.JobID]map[string]int64, error) {
	out := make(map[domain.JobID]map[string]int64)
	db := s.db
	db.tx(func() {
		for id, t := range turns {
			counts, day := t.Route == domain.RouteLeastFrequentlyUsed, db.now().Format(time.DateOnly)
			u := db.uses[id]
			if u.route != t.Route || (counts && u.day != day) {
				u.numbers = nil
			}
			found := u.found(t.Known, counts)
			out[id] = found
			u = uses{route: t.Route, day: day, numbers: maps.Clone(found)}
			for range t.Runs {
				u.take(t.Open, counts)
			}
			db.uses[id] = u
		}
	})
	return out, nil
}

// found returns the numbers of the known instances. If uses are counted, a new instance gets the lowest number of the others;
// otherwise it gets 0.
func (u uses) found(known []string, counts bool) map[string]int64 {
	lowest := int64(-1)
	for _, k := range known {
		if n, ok := u.numbers[k]; ok && (lowest < 0 || n < lowest) {
			lowest = n
		}
	}
	if lowest < 0 || !counts {
		lowest = 0
	}
	out := make(map[string]int64, len(known))
	for _, k := range known {
		n, ok := u.numbers[k]
		if !ok {
			n = lowest
		}
		out[k] = n
	}
	return out
}

func (u uses) take(open []string, counts bool) {
	best := ""
	for _, o := range open {
		if n, b := u.numbers[o], u.numbers[best]; best == "" || n < b || (n == b && o < best) {
			best = o
		}
	}
	switch {
	case best == "":
	case counts:
		u.numbers[best]++
	default:
		var top int64
		for _, n := range u.numbers {
			top = max(top, n)
		}
		u.numbers[best] = top + 1
	}
}
