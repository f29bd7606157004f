package store_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// told returns and removes the alerts that have been enqueued since the last call.
func (r *recorded) told() (out []engine.AlertNote) {
	for _, u := range r.ups {
		if u.Alert != nil {
			out = append(out, *u.Alert)
		}
	}
	r.ups = nil
	return out
}

func channel(t testing.TB, s *store.Store, names ...string) {
	t.Helper()
	for _, name := range names {
		exec(t, s, `INSERT INTO alert_channels (name, kind, settings, secrets) VALUES ($1, 'webhook', '{}', '')`, name)
	}
}

func alerting(on ...domain.AlertKind) func(*domain.JobSpec) {
	return func(sp *domain.JobSpec) { sp.Alert = domain.Alert{Channels: []string{"ops"}, On: on} }
}

// ends runs a job once.
func ends(t testing.TB, s *store.Store, job domain.JobID, outcome domain.Outcome) engine.LiveRun {
	t.Helper()
	r := start(t, s, job)
	settle(t, s, settled, result(s, r, outcome))
	return r
}

// There is one alert for the first failure, none for failures within the next hour, one with their number after it, and one when
// the job succeeds again. Only the clock of Postgres moves forward.
func TestAlertsFold(t *testing.T) {
	s, ups := open(t)
	channel(t, s, "ops")
	job := create(t, s, "a", alerting(domain.AlertFailed, domain.AlertRecovered)).ID
	hours := func(n int) {
		exec(t, s, `UPDATE alert_state SET told_at = told_at - $1 * interval '1 hour' WHERE job_id = $2`, n, job)
	}
	one := func(kind domain.AlertKind, count int64, run engine.LiveRun) engine.AlertNote {
		t.Helper()
		got := ups.told()
		if len(got) != 1 || got[0].Kind != kind || got[0].Count != count || got[0].RunID != run.ID || got[0].JobID != job || got[0].Folded {
			t.Fatalf("got alerts %+v, want one of kind %s with count %d", got, kind, count)
		}
		return got[0]
	}
	none := func() {
		t.Helper()
		if got := ups.told(); len(got) != 0 {
			t.Fatalf("got alerts %+v, want none", got)
		}
	}

	ends(t, s, job, domain.OutcomeSucceeded)
	none()
	one(domain.AlertFailed, 1, ends(t, s, job, domain.OutcomeFailed))
	ends(t, s, job, domain.OutcomeFailed)
	if got := ups.told(); len(got) != 1 || !got[0].Folded || time.Until(got[0].DueAt) < 59*time.Minute {
		t.Fatalf("the first folded failure caused an alert: %+v", got)
	}
	ends(t, s, job, domain.OutcomeFailed)
	none()
	if note, wait := folded(t, s, job); note != nil || wait < 59*time.Minute {
		t.Fatalf("folded failures caused an alert too early: %+v, wait %s", note, wait)
	}
	hours(1)
	one(domain.AlertFailed, 3, ends(t, s, job, domain.OutcomeFailed)) // two folded, and this one
	if note, wait := folded(t, s, job); note != nil || wait != 0 {
		t.Fatalf("the same failures caused a second alert: %+v, wait %s", note, wait)
	}
	ends(t, s, job, domain.OutcomeFailed)
	ups.told()
	hours(1)
	if note, _ := folded(t, s, job); note == nil || note.Count != 1 { // although no failure follows
		t.Fatalf("after an hour, the folded failure causes the alert %+v, want a count of 1", note)
	}
	one(domain.AlertRecovered, 5, ends(t, s, job, domain.OutcomeSucceeded))
	ends(t, s, job, domain.OutcomeSucceeded)
	none()
	// A job that flaps: no alert was sent about its failure, so none is sent about its recovery.
	ends(t, s, job, domain.OutcomeFailed)
	if got := ups.told(); len(got) != 1 || !got[0].Folded {
		t.Fatalf("after a recovery within the hour: %+v", got)
	}
	ends(t, s, job, domain.OutcomeSucceeded)
	none()
	hours(1)
	one(domain.AlertFailed, 2, ends(t, s, job, domain.OutcomeFailed))
	one(domain.AlertRecovered, 2, ends(t, s, job, domain.OutcomeSucceeded))
}

// A transaction locks the alert state of its failed and its succeeded jobs in one common order, so that two settlers with
// opposite results cannot deadlock.
func TestAlertsAreLockedInOrder(t *testing.T) {
	s, _ := open(t)
	channel(t, s, "ops")
	first := create(t, s, "first", alerting(domain.AlertFailed, domain.AlertRecovered)).ID
	last := create(t, s, "last", alerting(domain.AlertFailed, domain.AlertRecovered)).ID
	ends(t, s, first, domain.OutcomeFailed)
	ends(t, s, last, domain.OutcomeFailed)
	good, bad := start(t, s, first), start(t, s, last)
	tx := pgtest.Begin(t, s.Pool())
	defer tx.Rollback(t.Context()) //nolint:errcheck // it only holds locks
	lock := func(job domain.JobID) error {
		_, err := tx.Exec(t.Context(), `SELECT 1 FROM alert_state WHERE job_id = $1 FOR UPDATE NOWAIT`, job)
		return err
	}
	if err := lock(first); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Settle(t.Context(), []engine.Ended{result(s, good, domain.OutcomeSucceeded), result(s, bad, domain.OutcomeFailed)})
		done <- err
	}()
	for query[int64](t, s, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`) == 0 {
		select {
		case err := <-done:
			t.Fatalf("settled although another transaction holds the lock: %v", err)
		default:
		}
	}
	if err := lock(last); err != nil {
		t.Errorf("the transaction waits for the first job's lock and holds the last job's: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// folded does what the follow-up of a folded alert does.
func folded(t *testing.T, s *store.Store, job domain.JobID) (note *engine.AlertNote, wait time.Duration) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), s.Pool(), func(tx pgx.Tx) (err error) {
		note, wait, err = s.TakeFolded(t.Context(), tx, job, domain.AlertFailed)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return note, wait
}

// A run with attempts left causes no alert, and neither does a cancelled run. A broadcast causes one alert when its last shard
// ends.
func TestAlertsOfFinalFailuresOnly(t *testing.T) {
	s, ups := open(t)
	channel(t, s, "ops")
	job := create(t, s, "a", alerting(domain.AlertFailed), func(sp *domain.JobSpec) {
		sp.Retries, sp.RetryBackoff.Initial = 1, domain.Duration(time.Millisecond)
	}).ID
	r := ends(t, s, job, domain.OutcomeFailed)
	if got := ups.told(); len(got) != 0 {
		t.Fatalf("a retry caused an alert: %+v", got)
	}
	exec(t, s, `UPDATE runs_live SET replanned = true, attempt = 2, due_at = now() WHERE id = $1`, r.ID) // as the retry's follow-up does
	again := admit(t, s, claim(t, s))
	if len(again.Bound) != 1 {
		t.Fatalf("the retry: %+v", again)
	}
	settle(t, s, settled, result(s, again.Bound[0], domain.OutcomeFailed))
	if got := ups.told(); len(got) != 1 || got[0].Count != 1 || got[0].RunID != r.ID {
		t.Fatalf("got alerts %+v", got)
	}
	quiet := create(t, s, "b", alerting(domain.AlertFailed)).ID
	ends(t, s, quiet, domain.OutcomeCancelled)
	if got := ups.told(); len(got) != 0 {
		t.Fatalf("a cancelled run caused an alert: %+v", got)
	}

	all := create(t, s, "c", alerting(domain.AlertFailed), func(sp *domain.JobSpec) { sp.Route = domain.RouteBroadcast })
	shards := expand(t, s, all, "i1", "i2", "i3").Bound
	slices.SortFunc(shards, func(a, b engine.LiveRun) int { return cmp.Compare(a.Shard.Index, b.Shard.Index) })
	settle(t, s, slices.Repeat(settled, 2), result(s, shards[1], domain.OutcomeFailed), result(s, shards[0], domain.OutcomeSucceeded))
	if got := ups.told(); len(got) != 0 {
		t.Fatalf("a broadcast caused an alert before its join: %+v", got)
	}
	settle(t, s, settled, result(s, shards[2], domain.OutcomeFailed))
	if got := ups.told(); len(got) != 1 || got[0].Count != 1 || got[0].RunID != shards[0].ID {
		t.Fatalf("got alerts %+v", got)
	}
}

// Entries of the missed ledger and late starts cause alerts for jobs that want them.
func TestAlertsOfMissedAndLate(t *testing.T) {
	s, ups := open(t)
	channel(t, s, "ops")
	job := create(t, s, "a", alerting(domain.AlertMissed), everySecond).ID
	other := create(t, s, "b", alerting(domain.AlertFailed), everySecond).ID
	rewind(t, s, job, time.Hour)
	rewind(t, s, other, time.Hour)
	if _, err := s.PlanDue(t.Context(), 100, false); err != nil {
		t.Fatal(err)
	}
	if n := query[int](t, s, `SELECT count(DISTINCT job_id) FROM missed`); n != 2 {
		t.Fatalf("%d jobs have entries", n)
	}
	got := ups.told()
	if len(got) != 1 || got[0].JobID != job || got[0].Kind != domain.AlertMissed || got[0].Count < 3500 || got[0].Missed == nil ||
		got[0].Missed.Last.Sub(got[0].Missed.First.Time) < 50*time.Minute {
		t.Fatalf("got alerts %+v", got)
	}
	if m := got[0].Missed; m.Code != explain.NoScheduler || m.Args["tolerance_ms"] != int64(5000) || m.Why != m.Reason().Text || m.Why == "" {
		t.Errorf("the reason is %+v", m)
	}
	late := create(t, s, "c", alerting(domain.AlertLate)).ID
	ends(t, s, late, domain.OutcomeSucceeded)
	if got := ups.told(); len(got) != 0 {
		t.Fatalf("a punctual run caused an alert: %+v", got)
	}
	r := start(t, s, late)
	exec(t, s, `UPDATE runs_live SET due_at = due_at - interval '61 seconds' WHERE id = $1`, r.ID)
	settle(t, s, settled, result(s, r, domain.OutcomeSucceeded))
	if got := ups.told(); len(got) != 1 || got[0].Kind != domain.AlertLate || got[0].RunID != r.ID {
		t.Fatalf("got alerts %+v", got)
	}

	// A late run that runs for long causes its alert when it has started, and not again at its end.
	for _, outcome := range []domain.Outcome{domain.OutcomeSucceeded, domain.OutcomeFailed} {
		long := create(t, s, "long "+string(outcome), alerting(domain.AlertLate)).ID
		r = start(t, s, long)
		exec(t, s, `UPDATE runs_live SET due_at = due_at - interval '61 seconds' WHERE id = $1`, r.ID)
		if c, err := s.MarkRunning(t.Context(), []store.Started{{RunID: r.ID, Attempt: 1, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, StartedAt: s.Now()}}); err != nil || len(c) != 1 {
			t.Fatalf("marked %+v, %v", c, err)
		}
		if got := ups.told(); len(got) != 1 || got[0].Kind != domain.AlertLate || got[0].RunID != r.ID {
			t.Fatalf("got alerts %+v", got)
		}
		settle(t, s, settled, result(s, r, outcome))
		if got := ups.told(); len(got) != 0 {
			t.Fatalf("the run caused a second alert: %+v", got)
		}
	}
}

// A job may only name channels that exist. They cannot be deleted while the job exists.
func TestAlertChannelsOfJobs(t *testing.T) {
	s, _ := open(t)
	channel(t, s, "ops")
	_, err := s.CreateJob(t.Context(), spec("a", func(sp *domain.JobSpec) {
		sp.Alert = domain.Alert{Channels: []string{"ops", "nix", "No!"}, On: []domain.AlertKind{"odd"}}
	}), "test")
	var e *domain.Error
	if !errors.As(err, &e) || e.Code != domain.Invalid || len(e.Fields) != 3 {
		t.Fatalf("got %v", err)
	}
	job := create(t, s, "b", func(sp *domain.JobSpec) { sp.Alert.Channels = []string{"ops"} })
	if len(job.Alert.On) != 3 {
		t.Errorf("a job with channels and without kinds asks for alerts of kinds %v", job.Alert.On)
	}
}

// Transactions that settle the same jobs in different orders do not deadlock.
func TestAlertsOfTheSameJobs(t *testing.T) {
	s, _ := open(t)
	channel(t, s, "ops")
	const jobs, rounds = 8, 12
	var in [2][]engine.Ended
	for range jobs {
		job := create(t, s, "j"+domain.NewRunID(time.Now()).String(), alerting(domain.AlertFailed, domain.AlertRecovered), func(sp *domain.JobSpec) {
			sp.Block = domain.BlockParallel
		}).ID
		for i := range rounds {
			outcome := domain.OutcomeFailed
			if i%2 == 0 {
				outcome = domain.OutcomeSucceeded
			}
			in[i%2] = append(in[i%2], result(s, start(t, s, job), outcome))
		}
	}
	done := make(chan error, 2)
	for _, batch := range in {
		go func() {
			for len(batch) > 0 {
				n := min(5, len(batch))
				if _, err := s.Settle(context.Background(), batch[:n]); err != nil {
					done <- err
					return
				}
				batch = batch[n:]
			}
			done <- nil
		}()
	}
	for range in {
		if err := <-done; err != nil && domain.CodeOf(err) != domain.Unavailable {
			t.Error(err)
		}
	}
}
