package offer

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// Offers are sent on one of two lanes. On the fast lane, the caller of Send sends them. On the slow lane, a bounded pool of
// workers sends them. The slow lane is for runs whose instances are asked first, and for jobs whose offers were answered late more
// than maxLate times in the current minute.
const (
	slowWorkers = 16  // concurrent functions on the slow lane
	slowQueue   = 256 // running or waiting functions; if the queue is full, the reconcilers do the work
	slowOffers  = 256 // messages of the slow lane without an answer
	lateAfter   = 500 * time.Millisecond
	maxLate     = 10
)

// SlowTimeout is the timeout of one function on the slow lane.
const SlowTimeout = 10 * time.Second

// lane limits the number of offer messages without an answer.
type lane struct {
	inFlight chan struct{}
	waits    bool // begin waits for a place; otherwise it reports that there is none
	took     prometheus.Observer
}

// begin takes a place and reports whether it got one.
func (l *lane) begin(ctx context.Context) bool {
	select {
	case l.inFlight <- struct{}{}:
		return true
	default:
	}
	if !l.waits {
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

// Aside runs f on the slow lane. It reports false, and does nothing, if the lane's queue is full.
func (s *Sender) Aside(f func()) bool { return s.pool.do(f) }

// pool runs functions in the background, a bounded number at a time.
type pool struct {
	queue   chan struct{} // one place for each function, until it has returned
	workers chan struct{}
	work    *sync.WaitGroup
}

func newPool(workers, queue int, work *sync.WaitGroup) *pool {
	return &pool{queue: make(chan struct{}, queue), workers: make(chan struct{}, workers), work: work}
}

func (p *pool) do(f func()) bool {
	select {
	case p.queue <- struct{}{}:
	default:
		return false
	}
	p.work.Go(func() {
		defer func() { <-p.queue }()
		p.workers <- struct{}{}
		defer func() { <-p.workers }()
		f()
	})
	return true
}

// lateness counts the late answers of the current minute by job.
type lateness struct {
	mu     sync.Mutex
	minute int64
	late   map[domain.JobID]int
	slow   int // jobs that were late more than maxLate times
}

// maxLateJobs is the maximum number of jobs that are counted.
const maxLateJobs = 10_000

// note counts a late answer for each of the runs.
func (l *lateness) note(runs []engine.LiveRun, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.startMinute(now)
	if l.late == nil {
		l.late = make(map[domain.JobID]int)
	}
	for i := range runs {
		job := runs[i].JobID
		if _, counted := l.late[job]; !counted && len(l.late) == maxLateJobs {
			continue
		}
		if l.late[job]++; l.late[job] == maxLate+1 {
			l.slow++
		}
	}
}

// split separates the runs of slow jobs. If there are no slow jobs, which is the usual case, nothing is copied.
func (l *lateness) split(runs []engine.LiveRun, now time.Time) (fast, slow []engine.LiveRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.startMinute(now)
	if l.slow == 0 {
		return runs, nil
	}
	for _, r := range runs {
		if l.late[r.JobID] > maxLate {
			slow = append(slow, r)
		} else {
			fast = append(fast, r)
		}
	}
	return fast, slow
}

func (l *lateness) startMinute(now time.Time) {
	if minute := now.Unix() / 60; minute != l.minute {
		l.minute, l.late, l.slow = minute, nil, 0
	}
}
