package dispatcher

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/dispatcher/announce"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// Every subscriber receives each change, in order. Without subscribers, the dispatcher does not publish many changes.
func TestNotifiesSubscribers(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true})
	job := w.job("j")
	const n = 2 * announce.MaxChanges
	changes := make([]engine.Change, n)
	var want []string
	for i := range changes {
		changes[i] = engine.Change{RunID: domain.NewRunID(w.pg.Now()), JobID: job, JobVersion: 1, Group: "g", State: domain.Queued, Attempt: 1}
		want = append(want, changes[i].RunID.String())
	}
	// sent returns the bytes that the dispatcher's connection sends during Notify. Heartbeats and other traffic add a
	// little.
	sent := func() uint64 {
		before := w.nc.Stats().OutBytes
		w.announcer.Notify(changes)
		return w.nc.Stats().OutBytes - before
	}
	const few, many = n * 20, n * 100
	if bytes := sent(); bytes > few {
		t.Errorf("the dispatcher sent %d bytes without a subscriber", bytes)
	}
	sub, err := w.admin.SubscribeSync(wire.RunSubject("g"))
	if err != nil {
		t.Fatal(err)
	}
	received := func() (got []string) {
		for len(got) < n {
			m, err := sub.NextMsg(patience)
			if err != nil {
				t.Fatalf("received %d changes: %v", len(got), err)
			}
			var c wire.RunChanges
			if err := wire.Decode(m.Data, &c); err != nil {
				t.Fatal(err)
			}
			for _, r := range c.Runs {
				got = append(got, r.RunID)
			}
		}
		return got
	}
	if err := w.admin.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, the dispatcher knows that there is a subscriber
		if bytes := sent(); bytes < many {
			t.Errorf("the dispatcher sent only %d bytes to a subscriber", bytes)
		}
		if got := received(); !slices.Equal(got, want) {
			t.Errorf("received %d runs, and they are not the changed ones in order", len(got))
		}
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
}

// Runs that end without an attempt are published and counted: the run of a child whose group has no room, and the unstarted run of
// a deleted job.
func TestRunsThatEndWithoutAnAttempt(t *testing.T) {
	w := newWorld(t, option{quiet: true, still: true})
	w.pg.OnEnded(w.Ended)
	sub, err := w.admin.SubscribeSync(wire.RunSubject("g"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.admin.Flush(); err != nil {
		t.Fatal(err)
	}
	published := func() wire.RunChange {
		t.Helper()
		for {
			m, err := sub.NextMsg(patience)
			if err != nil {
				t.Fatal(err)
			}
			var c wire.RunChanges
			if err := wire.Decode(m.Data, &c); err != nil {
				t.Fatal(err)
			}
			if len(c.Runs) == 1 {
				return c.Runs[0]
			}
		}
	}
	check := func(id domain.RunID, state domain.State, reason domain.Reason) {
		t.Helper()
		if c := published(); c.RunID != id.String() || c.State != string(state) || c.Reason != string(reason) {
			t.Errorf("published: %+v, want run %s %s/%s", c, id, state, reason)
		}
		if n := w.metric("belfry_runs_finished_total", string(state)); n != 1 {
			t.Errorf("%v runs are counted as %s", n, state)
		}
	}
	job, child := w.job("j"), w.job("child")
	id := w.trigger(job)
	if _, err := w.pg.DeleteJob(t.Context(), job, 0, "test"); err != nil {
		t.Fatal(err)
	}
	check(id, domain.Cancelled, domain.ReasonJobDeleted)

	w.exec(`UPDATE groups SET limits = '{"max_live_runs": 0}' WHERE name = 'g'`)
	at := w.pg.Now()
	var ended []engine.Change
	err = w.pg.Tx(t.Context(), func(tx pgx.Tx) (err error) {
		ended, err = w.pg.PlanChildTx(t.Context(), tx, id, child, at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.pg.Ended(ended)
	check(domain.ChildRunID(id, child, at), domain.Skipped, domain.ReasonQueueFull)
}
