package bench

import "time"

// load describes the fires of a measurement, as sets on a grid of seconds. The loader writes it as jobs for the engine.
// The baseline receives the load itself.
type load struct {
	Sets []set `json:"sets"`
	// Closed is how long the baseline runs as fast as it can, without due instants. If it is zero, Sets apply.
	Closed time.Duration `json:"closed_ns,omitempty"`
}

// set describes N fires in each second of a period, or in one instant if For is 0.
type set struct {
	Group  string        `json:"-"` // of the jobs; "": the executors' group
	N      int           `json:"n"`
	From   time.Time     `json:"from"` // a whole second
	For    time.Duration `json:"for_ns"`
	Spread bool          `json:"spread"` // evenly over the second
}

// seconds returns how often each of the set's N jobs fires.
func (s set) seconds() int { return max(1, int(s.For/time.Second)) }

// phase returns how far into the second the i-th job of the set fires, in whole milliseconds.
func (s set) phase(i int) time.Duration {
	if !s.Spread {
		return 0
	}
	return (time.Duration(i) * time.Second / time.Duration(s.N)).Truncate(time.Millisecond)
}

func (s set) fires() int { return s.N * s.seconds() }

// fires returns the number of all fires.
func (l load) fires() int {
	n := 0
	for _, s := range l.Sets {
		n += s.fires()
	}
	return n
}

// span returns when the first fire is due, and when the last second of fires ends.
func (l load) span() (from, to time.Time) {
	for _, s := range l.Sets {
		if from.IsZero() || s.From.Before(from) {
			from = s.From
		}
		if end := s.From.Add(s.For); end.After(to) {
			to = end
		}
	}
	return from, to
}

// due calls yield for the instants of all fires, second by second, in order, until it returns false.
func (l load) due(yield func(time.Time) bool) {
	from, to := l.span()
	for second := from; !second.After(to); second = second.Add(time.Second) {
		for ms := range 1000 {
			at := second.Add(time.Duration(ms) * time.Millisecond)
			for _, s := range l.Sets {
				for range s.at(second, ms) {
					if !yield(at) {
						return
					}
				}
			}
		}
	}
}

// at returns how many fires of the set are due in a millisecond of a second.
func (s set) at(second time.Time, ms int) int {
	k := int(second.Sub(s.From) / time.Second)
	if second.Before(s.From) || k >= s.seconds() {
		return 0
	}
	if !s.Spread {
		if ms == 0 {
			return s.N
		}
		return 0
	}
	// The i-th job has phase i*1000/N, rounded down. So the jobs from ceil(ms*N/1000) to ceil((ms+1)*N/1000) are due.
	first := func(ms int) int { return (ms*s.N + 999) / 1000 }
	return first(ms+1) - first(ms)
}

// ahead is the time between the moment at which a load is ready and its first fire. It covers the horizon of the
// pre-read and the start of the processes.
const ahead = 7 * time.Second

// firstFire returns the whole second at which a load starts if its preparation takes the given time.
func firstFire(prepare time.Duration) time.Time {
	return time.Now().Add(ahead + prepare + 999*time.Millisecond).Truncate(time.Second)
}
