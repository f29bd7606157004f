package view

import "time"

// BoundSearches limits the work of a page of a search. A search hardly waits for others.
func (s *Store) BoundSearches(runs int, d time.Duration) {
	s.bounds = searchBounds{runs, d, time.Millisecond}
}

// OccupySearches takes the places of all searches until the returned function is called.
func (s *Store) OccupySearches() (free func()) {
	for range cap(s.searching) {
		s.searching <- struct{}{}
	}
	return func() {
		for range cap(s.searching) {
			<-s.searching
		}
	}
}
