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
		job, err := l.w.api.ReplaceJob(ctx, j.id, forBoth(s))
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
