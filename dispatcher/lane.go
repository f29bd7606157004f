package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/domain"
)

// Runs go out by one of two lanes, so that those which take long delay nobody. The fast lane is whoever fires; the slow one
// is a bounded pool, for runs whose instances are asked first, and for jobs whose offers were answered late more than
// lateMax times in the current minute.
const (
	slowWorkers = 16  // at work at a time in the slow lane
	slowLine    = 256 // at work or waiting for their turn; what comes then is left to the reconcilers
	slowOffers  = 256 // messages of offers of the slow lane whose answer is awaited
	lateAfter   = 500 * time.Millisecond
	lateMax     = 10
)

// lane bounds the messages of offers whose answer is awaited.
type lane struct {
	inFlight chan struct{}
	patient  bool // waits for its turn to send; else what finds no room is left to the reconciler
	took     prometheus.Observer
}

// begin takes a place, and reports whether there was one.
func (l *lane) begin(ctx context.Context) bool {
	select {
	case l.inFlight <- struct{}{}:
		return true
	default:
	}
	if !l.patient {
		return false
	}
	select {
	case l.inFlight <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *lane) end() { <-l.inFlight }

// pool does work beside whoever brings it, a bounded part of it at a time.
type pool struct {
	line    chan struct{} // a place for each piece of work, from when it is brought until it is done
	workers chan struct{}
	work    *sync.WaitGroup
}

func newPool(workers, line int, work *sync.WaitGroup) *pool {
	return &pool{line: make(chan struct{}, line), workers: make(chan struct{}, workers), work: work}
}

// do takes work in, unless the line is full, and reports whether it did.
func (p *pool) do(f func()) bool {
	select {
	case p.line <- struct{}{}:
	default:
		return false
	}
	p.work.Go(func() {
		defer func() { <-p.line }()
		p.workers <- struct{}{}
		defer func() { <-p.workers }()
		f()
	})
	return true
}

// lateness counts, by job, the offers of the current minute that were answered late.
type lateness struct {
	mu     sync.Mutex
	minute int64
	late   map[domain.JobID]int
	slow   map[domain.JobID]bool // late more than lateMax times; replaced, never changed
}

// lateJobsMax bounds the jobs that are counted.
const lateJobsMax = 10_000

// note counts late answers to offers of the given runs.
func (l *lateness) note(runs []domain.LiveRun, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(now)
	if l.late == nil {
		l.late = make(map[domain.JobID]int)
	}
	for i := range runs {
		job := runs[i].JobID
		if _, counted := l.late[job]; !counted && len(l.late) == lateJobsMax {
			continue
		}
		if l.late[job]++; l.late[job] == lateMax+1 {
			slow := map[domain.JobID]bool{job: true}
			for j := range l.slow {
				slow[j] = true
			}
			l.slow = slow
		}
	}
}

// jobs returns the jobs for the slow lane; nil is the rule.
func (l *lateness) jobs(now time.Time) map[domain.JobID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(now)
	return l.slow
}

func (l *lateness) turn(now time.Time) {
	if minute := now.Unix() / 60; minute != l.minute {
		l.minute, l.late, l.slow = minute, nil, nil
	}
}

// bySpeed takes the runs of late jobs apart. Without such jobs nothing is copied.
func (d *Dispatcher) bySpeed(runs []domain.LiveRun) (fast, slow []domain.LiveRun) {
	jobs := d.late.jobs(time.Now())
	if len(jobs) == 0 {
		return runs, nil
	}
	for _, r := range runs {
		if jobs[r.JobID] {
			slow = append(slow, r)
		} else {
			fast = append(fast, r)
		}
	}
	return fast, slow
}
