//go:build unix

package faulttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/client"
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
	if l.length <= shortTest {
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

func (l *load) create(s domain.JobSpec, bound time.Duration) (*testJob, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	job, err := l.w.api.CreateJob(ctx, s)
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

// run sends requests through REST until stop. Then it waits until every trigger has an answer, so all faults must be healed by then.
func (l *load) run(stop <-chan struct{}) {
	var all, triggers sync.WaitGroup
	lane := func(n uint64, pause time.Duration, do func(r *rand.Rand, i int)) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(l.seed, n))
			for i := 0; ; i++ {
				timer := time.NewTimer(pause/2 + time.Duration(r.Int64N(int64(pause))))
				select {
				case <-timer.C:
					do(r, i)
				case <-stop:
					timer.Stop()
					return
				}
			}
		})
	}
	lane(11, editPause, l.edit)
	lane(12, editPause, l.edit)
	lane(13, killPause, l.kill)
	room := make(chan struct{}, 64) // bounds the triggers that are repeated while the console is unavailable
	lane(14, triggerPause, func(r *rand.Rand, i int) {
		select {
		case room <- struct{}{}:
		default:
			return
		}
		job, tag := l.toTrigger(r), fmt.Sprintf("t%d", i)
		triggers.Go(func() {
			defer func() { <-room }()
			l.trigger(job, tag, i%2 == 0)
		})
	})
	all.Wait()
	triggers.Wait()
}

func (l *load) pick(r *rand.Rand, ok func(*testJob) bool) *testJob {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if j := l.jobs[r.IntN(len(l.jobs))]; ok(j) {
			return j
		}
	}
}

func (l *load) toTrigger(r *rand.Rand) *testJob {
	return l.pick(r, func(j *testJob) bool { return j.triggered })
}

// guest adds n to the number of guests, and returns false if that would be too many.
func (l *load) guest(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.guests+n > guestsMax {
		return false
	}
	l.guests += n
	return true
}

// edit changes, creates, enables, disables or deletes a random job.
func (l *load) edit(r *rand.Rand, i int) {
	if r.IntN(12) == 0 && l.guest(1) {
		s := domain.DefaultJobSpec()
		s.Group, s.Name, s.Handler = []string{"red", "blue"}[i%2], fmt.Sprintf("guest-%d-%d", r.Uint32(), i), "work"
		s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: seconds(2)}
		s.Param = work{MS: 2, MSMax: 300}.String()
		s.Retries = r.IntN(2)
		j, err := l.create(s, requestBounds)
		if err != nil {
			l.guest(-1)
		} else {
			j.busy.Lock()
			j.guest = true
			j.busy.Unlock()
		}
		l.did("create", err)
		return
	}
	j := l.pick(r, func(j *testJob) bool { return j.edited })
	j.busy.Lock()
	defer j.busy.Unlock()
	if j.deleted {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestBounds)
	defer cancel()
	switch n := r.IntN(20); {
	case n == 0 && !j.bound && !j.triggered:
		err := l.w.api.DeleteJob(ctx, j.id)
		j.deleted = err == nil
		if j.deleted && j.guest {
			l.guest(-1)
		}
		l.did("delete", err)
	case n < 7:
		j.spec.Enabled = false
		l.did("disable", l.w.api.SetJobEnabled(ctx, j.id, false))
	case n < 15:
		j.spec.Enabled = true
		l.did("enable", l.w.api.SetJobEnabled(ctx, j.id, true))
	default:
		s := j.spec
		s.Description = fmt.Sprint("edit ", i)
		s.Enabled = r.IntN(4) > 0
		if s.Script != nil {
			s.Script = script(i)
		}
		if s.Route != domain.RouteBroadcast {
			s.Route = testRoutes[r.IntN(len(testRoutes))]
		}
		if s.Schedule.Jitter == 0 && s.Schedule.Kind == domain.ScheduleFixedRate {
			// Not faster than at its creation. Otherwise a serial job could never keep up.
			whole := s.Schedule.Every.Std().Truncate(time.Second)
			s.Schedule.Every = domain.Duration(whole + time.Duration(r.IntN(10))*100*time.Millisecond)
		}
		if s.Schedule.Jitter == 0 && s.Schedule.Dialect == domain.DialectStandard && s.Schedule.TimeZone == "" {
			s.Schedule.Expr = []string{"* * * * * *", "*/2 * * * * *", "0-20 * * * * *", "1-59/3 * * * * *"}[r.IntN(4)]
		}
		job, err := l.w.api.ReplaceJob(ctx, j.id, s)
		if err == nil {
			j.spec = job.JobSpec
			l.mu.Lock()
			l.acks = append(l.acks, checker.Ack{What: "version", Job: int64(job.ID), Version: job.Version, At: time.Now()})
			l.mu.Unlock()
		}
		l.did("edit", err)
	}
}

// trigger triggers a job under an idempotency key, and repeats the request until it is acknowledged. If a console dies between the
// change and its answer, the key stays taken for two minutes. trigger does not wait that long.
func (l *load) trigger(j *testJob, tag string, asPerson bool) {
	w := work{MS: 2, MSMax: 40, Fail: 10, Tag: tag}
	param := w.String()
	token := l.w.key
	if asPerson {
		token = l.w.token
	}
	for tries, taken := 1, 0; taken < 5; tries++ {
		ids, status, err := l.post(j.id, param, tag, token)
		l.did("trigger", err)
		if err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, id := range ids {
				l.acks = append(l.acks, checker.Ack{What: "trigger", Job: int64(j.id), Run: id.String(), Tag: param, Again: tries > 1})
				l.recent = append(l.recent, id)
			}
			l.recent = l.recent[max(0, len(l.recent)-50):]
			return
		}
		if status == http.StatusConflict {
			taken++
		} else if status >= 400 && status < 500 && status != http.StatusTooManyRequests {
			l.w.died(fmt.Sprintf("a trigger of job %d was refused: %v", j.id, err))
			return
		}
		<-time.After(time.Second)
	}
}

func (l *load) post(job domain.JobID, param, key, token string) ([]domain.RunID, int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestBounds)
	defer cancel()
	body, err := json.Marshal(client.Trigger{Param: &param})
	if err != nil {
		return nil, 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/api/v1/jobs/%d/trigger", l.w.server, job), bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, 0, err
	}
	if res.StatusCode != http.StatusAccepted {
		return nil, res.StatusCode, fmt.Errorf("%s: %s", res.Status, text)
	}
	var out struct {
		RunIDs []domain.RunID `json:"run_ids"`
	}
	return out.RunIDs, res.StatusCode, json.Unmarshal(text, &out)
}

// kill kills a live run or a run that was triggered just now, or runs a failed run again.
func (l *load) kill(r *rand.Rand, i int) {
	ctx, cancel := context.WithTimeout(context.Background(), requestBounds)
	defer cancel()
	var id domain.RunID
	l.mu.Lock()
	if len(l.recent) > 0 {
		id = l.recent[r.IntN(len(l.recent))]
	}
	l.mu.Unlock()
	switch i % 3 {
	case 0:
		state := []string{"running", "queued", "retrying"}[r.IntN(3)]
		runs, err := l.w.api.Runs(ctx, client.RunFilter{State: state}, 20)
		l.did("list", err)
		if err != nil || len(runs) == 0 {
			return
		}
		id = runs[r.IntN(len(runs))].ID
	case 1:
		// Not a triggered run, because each trigger must have one run with its param.
		runs, err := l.w.api.Runs(ctx, client.RunFilter{State: "failed", Cause: string(domain.CauseSchedule)}, 20)
		if err == nil && len(runs) > 0 {
			_, err = l.w.api.RetryRun(ctx, runs[r.IntN(len(runs))].ID)
		}
		l.did("retry", err)
		return
	}
	if id.IsZero() {
		return
	}
	l.mu.Lock()
	l.kills[id.String()] = true
	l.mu.Unlock()
	l.did("kill", l.w.api.KillRun(ctx, id))
}

// end disables every job.
func (l *load) end() {
	l.w.t.Helper()
	for _, j := range l.jobs {
		if j.deleted {
			continue
		}
		rig.Eventually(l.w.t, rig.Patience, "a job is disabled at the end", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), requestBounds)
			defer cancel()
			err := l.w.api.SetJobEnabled(ctx, j.id, false)
			e, answered := err.(*client.Error)
			return err == nil || answered && e.Status == http.StatusNotFound // the job was deleted, but the deletion got no answer
		})
	}
	// Jobs whose creation got no answer are not in l.jobs.
	rig.Eventually(l.w.t, rig.Patience, "no job is enabled at the end", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), requestBounds)
		defer cancel()
		enabled := true
		jobs, err := l.w.api.Jobs(ctx, client.JobFilter{Enabled: &enabled}, 1000)
		for _, j := range jobs {
			_ = l.w.api.SetJobEnabled(ctx, j.ID, false)
		}
		return err == nil && len(jobs) == 0
	})
}
