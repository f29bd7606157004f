//go:build unix

package faulttest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/checker"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// load makes the jobs of the fault test, and the changes and triggers that people and programs send through REST meanwhile.
type load struct {
	w      *world
	random *rand.Rand // for the creation of jobs
	seed   uint64
	begin  time.Time
	length time.Duration

	mu     sync.Mutex
	jobs   []*testJob      // guarded by mu
	acks   []checker.Ack   // guarded by mu
	kills  map[string]bool // guarded by mu; runs with a kill request
	recent []domain.RunID  // guarded by mu; the runs triggered last
	failed int             // guarded by mu; requests without an answer of success
	guests int             // guarded by mu; at most guestsMax
	ops    map[string]int  // guarded by mu; number of requests by kind
}

// testJob is a job of the test, with its state according to the test's own requests.
type testJob struct {
	busy      sync.Mutex
	id        domain.JobID
	spec      domain.JobSpec // guarded by busy
	bound     bool           // it is a parent or a child, and must not be deleted
	triggered bool           // the test triggers it; its runs are short
	edited    bool           // the test edits it
	guest     bool           // guarded by busy; it was created during the faults
	deleted   bool           // guarded by busy
}

// The number of jobs of each sort. Together they make about 210 runs a second. The short test has half of them, because other tests
// run at the same time. The pauses are the mean times between two requests of a lane.
const (
	everySecond   = 80
	serialSecond  = 25
	jittered      = 24
	sparse        = 20
	broadcasting  = 12
	delayed       = 14
	parents       = 6
	unlucky       = 12
	tooSlow       = 10
	discarding    = 10
	perInstance   = 10
	covering      = 14
	windowed      = 12
	onces         = 40
	byHand        = 12
	catchingUp    = 16
	impatient     = 6
	scripted      = 12
	foreigners    = 12
	guestsMax     = 60 // jobs created during the faults; with more, the machine could not keep up with their fire times
	triggerPause  = 150 * time.Millisecond
	editPause     = 350 * time.Millisecond
	killPause     = 700 * time.Millisecond
	requestBounds = 8 * time.Second
)

func newLoad(w *world, seed uint64, length time.Duration) *load {
	return &load{
		w: w, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), begin: w.now(), length: length,
		kills: make(map[string]bool), ops: make(map[string]int),
	}
}

// now returns the database's time.
func (w *world) now() (now time.Time) {
	w.t.Helper()
	if err := w.db.QueryRow(context.Background(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
		w.t.Fatal(err)
	}
	return now
}

// prepare creates the jobs.
func (l *load) prepare() {
	l.w.t.Helper()
	second := func(i int) domain.Schedule {
		switch i % 4 {
		case 0:
			return domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
		case 1:
			return domain.Schedule{Kind: domain.ScheduleCron, Dialect: domain.DialectQuartz, Expr: "* * * * * ?"}
		case 2:
			return domain.Schedule{Kind: domain.ScheduleFixedRate, Every: seconds(1)}
		default:
			return domain.Schedule{Kind: domain.ScheduleFixedRate, Every: seconds(1.1)}
		}
	}
	parallel := func(s *domain.JobSpec) { s.Block = domain.BlockParallel }
	l.many("second", everySecond, func(i int, s *domain.JobSpec) {
		s.Schedule = second(i)
		parallel(s)
	})
	l.many("serial", serialSecond, func(i int, s *domain.JobSpec) {
		s.Schedule = second(i)
		s.Param = work{MS: 5, MSMax: 400}.String() // plus the time until the next run may start, about a second with faults
		s.Retries = i % 2
	})
	l.many("jitter", jittered, func(i int, s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "*/2 * * * * *", Jitter: seconds(1.9)}
		if i%3 == 0 {
			s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: seconds(2), Jitter: seconds(0.5)}
		}
		if i%2 == 0 {
			parallel(s)
			// Edits then meet runs that wait seconds for their next attempt.
			s.Param = work{MS: 2, MSMax: 30, Fail: 50}.String()
			s.Retries, s.RetryBackoff.Initial = 1, seconds(3)
		}
	})
	l.many("sparse", sparse, func(i int, s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: []string{"*/5 * * * * *", "1,7,20-24 * * * * *", "30 * * * * *", "*/4 */2 * * * *"}[i%4]}
		if i%2 == 1 {
			s.Schedule.TimeZone = "Asia/Tokyo"
		}
		parallel(s)
		s.Param = work{MS: 500, MSMax: 4000}.String()
		s.Retries = 2
		s.RetryBackoff.Initial = seconds(0.5)
	})
	l.many("broadcast", broadcasting, func(i int, s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Dialect: domain.DialectQuartz, Expr: "0/2 * * * * ?"}
		s.Route, s.Shards = domain.RouteBroadcast, []int{0, 0, 3}[i%3]
		s.Retries = i % 2
		s.Param = work{MS: 5, MSMax: 100, Fail: 5}.String()
		switch i % 4 {
		case 0:
			parallel(s)
		case 1:
			s.BlockScope = domain.ScopeInstance
		}
	})
	l.many("delay", delayed, func(i int, s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: seconds(0.5 + float64(i%3))}
		s.Param = work{MS: 5, MSMax: 200, Fail: 10}.String()
		s.Retries = i % 2
		s.RetryBackoff.Initial = seconds(0.3)
	})
	l.family()
	l.many("unlucky", unlucky, func(i int, s *domain.JobSpec) {
		s.Schedule = second(i)
		parallel(s)
		s.Param = work{MS: 5, MSMax: 60, Fail: 30, Permanent: 3, Panic: 3}.String()
		s.Retries, s.RetryBackoff = i%4, domain.RetryBackoff{Initial: seconds(0.2), Factor: 2, Max: seconds(2)}
	})
	l.many("slow", tooSlow, func(i int, s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: seconds(3)}
		s.Param = work{MS: 100, MSMax: 2000}.String()
		s.Timeout, s.Retries = seconds(1), i%2
		if i%2 == 0 {
			parallel(s)
		}
	})
	l.many("discard", discarding, func(i int, s *domain.JobSpec) {
		s.Schedule, s.Block = second(i), domain.BlockDiscardLater
		s.Param = work{MS: 300, MSMax: 1600}.String()
	})
	l.many("cover", covering, func(i int, s *domain.JobSpec) {
		s.Schedule, s.Block = second(i), domain.BlockCoverEarly
		s.Param = work{MS: 300, MSMax: 1900, Fail: 5}.String()
		s.Retries = i % 2
		if i%2 == 1 {
			s.BlockScope, s.Route = domain.ScopeInstance, testRoutes[i%len(testRoutes)]
		}
		if i%7 == 6 {
			s.Route, s.Shards = domain.RouteBroadcast, i%3
		}
	})
	l.many("instance", perInstance, func(i int, s *domain.JobSpec) {
		s.Schedule, s.BlockScope = second(i), domain.ScopeInstance
		s.Param = work{MS: 100, MSMax: 1200}.String()
		s.Route = []domain.Route{domain.RouteRoundRobin, domain.RouteRandom}[i%2]
		if i%3 == 0 {
			s.Block = domain.BlockDiscardLater
		}
	})
	l.many("window", windowed, func(i int, s *domain.JobSpec) {
		s.Schedule = second(i)
		parallel(s)
		from := domain.At(l.begin.Add(time.Duration(l.random.Int64N(int64(l.length / 2)))))
		to := domain.At(from.Add(time.Duration(l.random.Int64N(int64(l.length / 2)))))
		s.Schedule.StartAt, s.Schedule.EndAt = &from, &to
	})
	l.many("once", onces, func(i int, s *domain.JobSpec) {
		at := domain.At(l.begin.Add(time.Duration(l.random.Int64N(int64(l.length)))))
		s.Schedule = domain.Schedule{Kind: domain.ScheduleOnce, At: &at}
		s.Misfire = domain.MisfireFireOnce
		s.Retries = 3
	})
	l.many("catch-up", catchingUp, func(i int, s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "*/3 * * * * *"}
		s.Misfire = []domain.Misfire{domain.MisfireFireAll, domain.MisfireFireOnce}[i%2]
		if i%4 < 2 {
			parallel(s)
		}
	})
	l.many("impatient", impatient, func(i int, s *domain.JobSpec) {
		s.Schedule, s.StartDeadline = second(i), seconds(2)
		parallel(s)
	})
	l.many("script", scripted, func(i int, s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "*/2 * * * * *"}
		s.Handler, s.Script = "", script(0)
		s.Retries = i % 3
		s.RetryBackoff.Initial = seconds(0.2)
		if i%2 == 0 {
			parallel(s)
		}
		if i%6 == 5 {
			s.Route, s.Schedule.Expr = domain.RouteBroadcast, "*/4 * * * * *"
		}
	})
	l.many("hand", byHand, func(i int, s *domain.JobSpec) {
		if i%2 == 0 {
			parallel(s)
		}
		s.Param = work{MS: 5, MSMax: 50, Fail: 5}.String()
		s.Retries = 2
	})
	if l.w.setup.python != "" {
		l.foreign()
	}
	if l.w.setup.java != "" {
		l.xxlLoad()
	}
	for _, j := range l.jobs {
		byHand, broadcast := j.spec.Schedule.Kind == domain.ScheduleNone, j.spec.Route == domain.RouteBroadcast && !j.bound
		j.triggered, j.edited = (byHand || broadcast) && !j.bound, !byHand
	}
}

// foreign creates jobs for the executors in Python, which have one handler and no scripts.
func (l *load) foreign() {
	l.w.t.Helper()
	l.many("foreign", foreigners, func(i int, s *domain.JobSpec) {
		s.Group = foreign
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: []string{"* * * * * *", "*/2 * * * * *"}[i%2]}
		s.Param = work{MS: 5, MSMax: 300, Fail: 10}.String()
		s.Retries = i % 3
		if i%4 > 0 {
			s.Block = domain.BlockParallel
		}
	})
}

// script returns a script that sometimes fails. Editions differ, so that no instance has the code of a new edition.
func script(edition int) *domain.Script {
	return &domain.Script{Language: "sh", Code: fmt.Sprintf(`# edition %d
sleep 0.05
case $BELFRY_RUN_ID in
*0) [ "$BELFRY_ATTEMPT" -gt 1 ] || exit 1 ;;
esac
echo "::output $BELFRY_RUN_ID"
`, edition)}
}

func seconds(s float64) domain.Duration { return domain.Duration(s * float64(time.Second)) }

// testRoutes are the routes that jobs other than broadcasts use in turn.
var testRoutes = []domain.Route{
	domain.RouteAny, domain.RouteFirst, domain.RouteLast, domain.RouteRoundRobin, domain.RouteRandom, domain.RouteConsistentHash,
	domain.RouteLeastFrequentlyUsed, domain.RouteLeastRecentlyUsed, domain.RouteFailover, domain.RouteBusyover,
}

// many creates n jobs of a sort, with both groups, all routes and all misfire policies in turn.
func (l *load) many(sort string, n int, edit func(i int, s *domain.JobSpec)) (made []*testJob) {
	l.w.t.Helper()
	if l.length <= shortTest || l.w.setup.java != "" && !strings.HasPrefix(sort, xxl) { // executors in Java need much CPU time
		n = (n + 1) / 2
	}
	for i := range n {
		s := domain.DefaultJobSpec()
		s.Group, s.Name, s.Handler = []string{"red", "blue"}[i%2], fmt.Sprintf("%s-%02d", sort, i), "work"
		s.Schedule = domain.Schedule{Kind: domain.ScheduleNone}
		s.Route = testRoutes[i%len(testRoutes)]
		s.Misfire = []domain.Misfire{domain.MisfireSkip, domain.MisfireFireOnce, domain.MisfireFireAll}[i%3]
		s.Param = work{MS: 2, MSMax: 30}.String()
		edit(i, &s)
		made = append(made, l.mustCreate(s))
	}
	return made
}

// mustCreate creates a job before the faults. On a busy machine, an attempt may take too long.
func (l *load) mustCreate(s domain.JobSpec) *testJob {
	l.w.t.Helper()
	for name, tries := s.Name, 1; ; tries++ {
		j, err := l.create(s, rig.Patience)
		if err == nil {
			return j
		}
		if domain.CodeOf(err) != domain.Unavailable || tries == 20 {
			l.w.t.Fatal(err)
		}
		s.Name = fmt.Sprintf("%s-again-%d", name, tries) // the job may exist; it is disabled at the end like those of others
	}
}

// family creates parents, single runs and broadcasts, and their children.
func (l *load) family() {
	l.w.t.Helper()
	children := l.many("child", 6, func(i int, s *domain.JobSpec) { s.Block = domain.BlockParallel })
	made := l.many("parent", parents, func(i int, s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
		s.Block = domain.BlockParallel
		s.Param = work{MS: 2, MSMax: 50, Fail: 20}.String()
		for n, on := range []domain.ChildOn{domain.OnSuccess, domain.OnFailure, domain.OnAlways} {
			s.Children = append(s.Children, domain.Child{JobID: children[n].id, On: on})
		}
		if i%3 == 2 {
			s.Route, s.Schedule.Expr = domain.RouteBroadcast, "*/3 * * * * *"
		}
	})
	for _, j := range append(made, children...) {
		j.bound = true
	}
}

// forBoth returns a spec as both releases read it: without the fields that the previous release does not know, if they are empty.
func forBoth(s domain.JobSpec) any {
	encoded, err := json.Marshal(s)
	if err != nil {
		panic(err) // a spec can be encoded
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &fields); err != nil {
		panic(err)
	}
	for name, empty := range map[string]string{"runbook_url": `""`, "retry_unknown": "false"} {
		if string(fields[name]) == empty {
			delete(fields, name)
		}
	}
	return fields
}

func (l *load) create(s domain.JobSpec, bound time.Duration) (*testJob, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	job, err := l.w.api.CreateJob(ctx, forBoth(s))
	if err != nil {
		return nil, err
	}
	j := &testJob{id: job.ID, spec: job.JobSpec, edited: true}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs = append(l.jobs, j)
	l.acks = append(l.acks, checker.Ack{What: "version", Job: int64(job.ID), Version: job.Version, At: time.Now()})
	return j, nil
}

// did counts a request, and whether it failed.
func (l *load) did(what string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops[what]++
	if err != nil {
		l.failed++
	}
}
