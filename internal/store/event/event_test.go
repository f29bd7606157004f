package event_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	storeevent "github.com/belfryhq/belfry/internal/store/event"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bench is a database with the jobs 1 and 2 of group g, and 3 of group h.
type bench struct {
	t      *testing.T
	engine *store.Store
	*storeevent.Store
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	engine, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	b := &bench{t: t, engine: engine}
	if b.Store, err = storeevent.New(engine); err != nil {
		t.Fatal(err)
	}
	b.exec(`INSERT INTO groups (name, token_sha256) VALUES ('g', 'g'), ('h', 'h')`)
	for i, group := range []string{"g", "g", "h"} {
		spec := domain.DefaultJobSpec()
		spec.Group, spec.Name, spec.Handler, spec.Schedule = group, fmt.Sprint("j", i), "echo", domain.Schedule{Kind: domain.ScheduleNone}
		if _, err := engine.CreateJob(t.Context(), spec, "test"); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.engine.Pool().Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) count(sql string, args ...any) (n int) {
	b.t.Helper()
	if err := b.engine.Pool().QueryRow(b.t.Context(), sql, args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) trigger(name string, job domain.JobID, change ...func(*event.TriggerSpec)) event.Trigger {
	b.t.Helper()
	spec := event.DefaultTriggerSpec()
	spec.Name, spec.JobID = name, job
	for _, c := range change {
		c(&spec)
	}
	tr, err := b.CreateTrigger(b.t.Context(), spec)
	if err != nil {
		b.t.Fatal(err)
	}
	return tr
}

func incoming(name, data, key string) event.Incoming {
	in := event.Incoming{Name: name, Data: []byte(data), Via: event.ViaREST, SentBy: "ann"}
	in.SetKey(event.KeyIdempotency, key)
	return in
}

func (b *bench) accept(in ...event.Incoming) []storeevent.Accepted {
	b.t.Helper()
	out, err := b.Accept(b.t.Context(), in)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func outcomes(e event.Event) []event.DeliveryOutcome {
	out := []event.DeliveryOutcome{}
	for _, d := range e.Deliveries {
		out = append(out, d.Outcome)
	}
	return out
}

func TestAccept(t *testing.T) {
	b := newBench(t)
	b.trigger("orders.*", 1, func(s *event.TriggerSpec) { s.Filter, s.Param = "event.data.n > 5", "n={{.event.data.n}}" })
	b.trigger("orders.created", 2)
	b.trigger(">", 3, func(s *event.TriggerSpec) { s.Enabled = false })
	b.trigger("orders.deleted", 3)
	got := b.accept(incoming("orders.created", `{"n":7}`, ""), incoming("orders.created", `{"n":1}`, ""), incoming("other", `1`, ""))
	for i, want := range [][]event.DeliveryOutcome{
		{event.DeliveryFired, event.DeliveryFired, event.DeliveryDisabled},
		{event.DeliveryFiltered, event.DeliveryFired, event.DeliveryDisabled},
		{event.DeliveryDisabled},
	} {
		if !slices.Equal(outcomes(got[i].Event), want) {
			t.Errorf("event %d: got %+v, want %v", i, got[i].Deliveries, want)
		}
		kept, err := b.Event(t.Context(), got[i].ID)
		if err != nil || fmt.Sprintf("%+v", kept.Runs()) != fmt.Sprintf("%+v", got[i].Runs()) || kept.Name != got[i].Name || string(kept.Data) != string(got[i].Data) ||
			kept.ReceivedAt != got[i].ReceivedAt || kept.Time != got[i].Time || kept.SentBy != "ann" || !slices.Equal(outcomes(kept), want) {
			t.Errorf("event %d: kept %+v, %v", i, kept, err)
		}
	}
	if n := b.count(`SELECT count(*) FROM runs_live WHERE id = $1 AND cause = 'event' AND event_id = $2 AND param = 'n=7' AND job_id = 1 AND due_at <= clock_timestamp() AND fire_time IS NOT NULL`,
		got[0].Runs()[0], got[0].ID.String()); n != 1 {
		t.Error("the run of the first event is not as it should be")
	}
	if n := b.count(`SELECT count(*) FROM runs_live`); n != 3 {
		t.Errorf("%d runs, want 3", n)
	}
}

// Events with the same key are one event with one run, whether they arrive in one batch, later, or concurrently.
func TestAcceptedOnce(t *testing.T) {
	b := newBench(t)
	b.trigger("a", 1)
	first := b.accept(incoming("a", `1`, "k"), incoming("a", `1`, "k"), incoming("a", `2`, "k"), incoming("a", `1`, ""))
	if first[0].Repeated || !first[1].Repeated || first[1].OtherBody || !first[2].OtherBody || first[3].Repeated || first[1].ID != first[0].ID || first[3].ID == first[0].ID {
		t.Errorf("got %+v", first)
	}
	again := b.accept(incoming("a", `1`, "k"))[0]
	if !again.Repeated || again.OtherBody || again.ID != first[0].ID || !slices.Equal(again.Runs(), first[0].Runs()) {
		t.Errorf("got %+v", again)
	}
	var wg sync.WaitGroup
	ids := make([]domain.RunID, 8)
	for i := range ids {
		wg.Go(func() {
			out, err := b.Accept(context.Background(), []event.Incoming{incoming("a", `1`, "x"), incoming("a", `1`, "y")})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = out[0].ID
		})
	}
	wg.Wait()
	if slices.ContainsFunc(ids, func(id domain.RunID) bool { return id != ids[0] }) {
		t.Errorf("one event has several ids: %v", ids)
	}
	if n := b.count(`SELECT count(*) FROM runs_live`); n != 4 {
		t.Errorf("%d runs, want 4", n)
	}
	if n := b.count(`SELECT count(*) FROM events`); n != 4 {
		t.Errorf("%d records, want 4", n)
	}
	// After the retention, events and their keys are deleted.
	b.exec(`UPDATE event_keys SET at = now() - interval '8 days'`)
	if err := b.DropDays(t.Context(), 7*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if out := b.accept(incoming("a", `1`, "k"))[0]; out.Repeated {
		t.Error("the key of a deleted event still counts")
	}
}

// An event of a user with access to some groups fires only jobs of these groups, and does not use up the keys of other users.
func TestConfined(t *testing.T) {
	b := newBench(t)
	b.trigger("a", 1)
	b.trigger("a", 3)
	ce := func(only ...string) event.Incoming {
		in := event.Incoming{Name: "a", Data: []byte(`1`), Source: "s", Type: "t", SentBy: "bob", Only: only}
		in.SetKey(event.KeyCloudEvent, "1")
		return in
	}
	if out := b.accept(ce("h"))[0]; len(out.Deliveries) != 1 || out.Deliveries[0].JobID != 3 {
		t.Errorf("got %+v", out)
	}
	if out := b.accept(ce())[0]; out.Repeated || len(out.Deliveries) != 2 {
		t.Errorf("got %+v", out)
	}
}

// Edits, deletions and moves of jobs apply to all events that are accepted later.
func TestTriggersChange(t *testing.T) {
	b := newBench(t)
	tr := b.trigger("a", 1)
	change := func(edit func(*event.TriggerSpec)) (before, after event.Trigger) {
		t.Helper()
		before, after, err := b.EditTrigger(t.Context(), tr.ID, 0, func(s *event.TriggerSpec) error { edit(s); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return before, after
	}
	expect := func(want ...event.DeliveryOutcome) {
		t.Helper()
		if got := b.accept(incoming("a", `1`, ""))[0]; !slices.Equal(outcomes(got.Event), want) {
			t.Errorf("got %+v, want %v", got.Deliveries, want)
		}
	}
	expect(event.DeliveryFired)
	if before, after := change(func(s *event.TriggerSpec) { s.Enabled = false }); before.Version != 1 || after.Version != 2 || after.Enabled {
		t.Errorf("got %+v", after)
	}
	expect(event.DeliveryDisabled)
	if _, after := change(func(*event.TriggerSpec) {}); after.Version != 2 {
		t.Errorf("an edit of nothing made version %d", after.Version)
	}
	change(func(s *event.TriggerSpec) { s.Name, s.Enabled = "b.>", true })
	expect()
	change(func(s *event.TriggerSpec) { s.Name, s.JobID = "*", 2 })
	expect(event.DeliveryFired)
	_, _, err := b.EditTrigger(t.Context(), tr.ID, 1, func(*event.TriggerSpec) error { return nil })
	if domain.CodeOf(err) != domain.Conflict {
		t.Errorf("a stale version: %v", err)
	}
	if _, err := b.DeleteTrigger(t.Context(), tr.ID, 1); domain.CodeOf(err) != domain.Conflict {
		t.Errorf("a stale version: %v", err)
	}
	if _, err := b.engine.DeleteJob(t.Context(), 2, 0, "test"); err != nil {
		t.Fatal(err)
	}
	expect()
	if _, err := b.Trigger(t.Context(), tr.ID); domain.CodeOf(err) != domain.NotFound {
		t.Errorf("a trigger outlived its job: %v", err)
	}
	for _, spec := range []event.TriggerSpec{{Name: "a", JobID: 99}, {Name: "a..", JobID: 0, Filter: "(", Param: "{{"}} {
		if _, err := b.CreateTrigger(t.Context(), spec); domain.CodeOf(err) != domain.Invalid {
			t.Errorf("%+v: %v", spec, err)
		}
	}
}

// A trigger that is edited between its evaluation and the transaction is evaluated again.
func TestEditedMeanwhile(t *testing.T) {
	b := newBench(t)
	tr := b.trigger("a", 1)
	meddling := &meddler{Store: b.engine}
	s, err := storeevent.New(meddling)
	if err != nil {
		t.Fatal(err)
	}
	meddling.before = func() {
		if _, _, err := b.EditTrigger(context.Background(), tr.ID, 0, func(s *event.TriggerSpec) error { s.Enabled = false; return nil }); err != nil {
			t.Error(err)
		}
	}
	out, err := s.Accept(t.Context(), []event.Incoming{incoming("a", `1`, "k")})
	if err != nil || !slices.Equal(outcomes(out[0].Event), []event.DeliveryOutcome{event.DeliveryDisabled}) {
		t.Errorf("got %+v, %v", out, err)
	}
	meddling.before = func() { // before each transaction
		b.exec(`UPDATE event_triggers SET version = version + 1`)
		meddling.again = true
	}
	if _, err := s.Accept(t.Context(), []event.Incoming{incoming("a", `1`, "l")}); domain.CodeOf(err) != domain.Unavailable {
		t.Errorf("got %v", err)
	}
	meddling.before, meddling.again = func() {
		b.exec(`ALTER TABLE event_triggers DISABLE TRIGGER USER; DELETE FROM job_due; DELETE FROM jobs`)
	}, false
	if out, err := s.Accept(t.Context(), []event.Incoming{incoming("a", `1`, "l")}); err != nil || len(out[0].Deliveries) != 0 {
		t.Errorf("got %+v, %v", out, err)
	}
}

// meddler calls before ahead of the next transaction. If again is set, it calls before ahead of every transaction.
type meddler struct {
	*store.Store
	before func()
	again  bool
}

func (m *meddler) Tx(ctx context.Context, f func(tx pgx.Tx) error) error {
	if before := m.before; before != nil {
		m.before = nil
		before()
		if m.again {
			m.before = before
		}
	}
	return m.Store.Tx(ctx, f)
}

func TestLists(t *testing.T) {
	b := newBench(t)
	b.trigger("orders.>", 1)
	b.trigger("*", 3, func(s *event.TriggerSpec) { s.Filter = "false" })
	long := `"` + fmt.Sprintf("%05000d", 0) + `"`
	tooLong := `"` + fmt.Sprintf("%070000d", 0) + `"`
	var before storeevent.Accepted
	for _, name := range []string{"orders.created", "orders.deleted", "stock", "orders.a.b"} {
		before = b.accept(incoming(name, long, ""))[0]
	}
	// Events of one millisecond have no order: this one is the newest.
	cut := b.accept(incoming("bobs", tooLong, ""))[0]
	for bytes.Compare(cut.ID[:6], before.ID[:6]) <= 0 {
		b.exec(`DELETE FROM events WHERE id = $1`, cut.ID)
		cut = b.accept(incoming("bobs", tooLong, ""))[0]
	}
	if kept, err := b.Event(t.Context(), cut.ID); err != nil || kept.Data != nil || kept.DataBytes != 70002 {
		t.Errorf("got %d bytes, %d kept, %v", kept.DataBytes, len(kept.Data), err)
	}
	for _, tt := range []struct {
		filter storeevent.EventFilter
		want   []string
	}{
		{storeevent.EventFilter{}, []string{"bobs", "orders.a.b", "stock", "orders.deleted", "orders.created"}},
		{storeevent.EventFilter{Name: "orders.created"}, []string{"orders.created"}},
		{storeevent.EventFilter{Name: "orders.*"}, []string{"orders.deleted", "orders.created"}},
		{storeevent.EventFilter{Name: "orders.>"}, []string{"orders.a.b", "orders.deleted", "orders.created"}},
		{storeevent.EventFilter{Only: []string{"h"}}, []string{"bobs", "stock"}},
		{storeevent.EventFilter{Only: []string{"x"}}, []string{}},
		{storeevent.EventFilter{Only: []string{"x"}, SentBy: "ann", Limit: 1}, []string{"bobs"}},
		{storeevent.EventFilter{To: time.Now().Add(-time.Hour)}, []string{}},
		{storeevent.EventFilter{From: time.Now().Add(time.Hour)}, []string{}},
		{storeevent.EventFilter{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour), Before: cut.ID, Limit: 10, Name: "orders.created"}, []string{"orders.created"}},
	} {
		if tt.filter.Limit == 0 {
			tt.filter.Limit = 10
		}
		events, err := b.Events(t.Context(), tt.filter)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, e := range events {
			names = append(names, e.Name)
			if e.Data != nil {
				t.Errorf("%d bytes of data in a list", len(e.Data))
			}
		}
		if !slices.Equal(sorted(names), sorted(tt.want)) {
			t.Errorf("%+v: got %v, want %v", tt.filter, names, tt.want)
		}
	}
	b.exec(`SELECT make_event_day((now() - interval '30 days')::date)`)
	if err := b.DropDays(t.Context(), 7*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if n := b.count(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass`); n != 1 {
		t.Errorf("%d days are left, want today", n)
	}
	triggers, err := b.Triggers(t.Context(), storeevent.TriggerFilter{Limit: 10, Only: []string{"h"}})
	if err != nil || len(triggers) != 1 || triggers[0].Group != "h" || triggers[0].JobName != "j2" {
		t.Errorf("got %+v, %v", triggers, err)
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// Runs of events that end at once are reported after the commit, and once for each accepted event.
func TestEndedRunsAreReported(t *testing.T) {
	b := newBench(t)
	b.trigger("a", 1)
	b.trigger("a", 3)
	b.exec(`UPDATE groups SET limits = '{"max_live_runs": 0}' WHERE name = 'g'`)
	var ended []engine.Change
	b.engine.OnEnded(func(runs []engine.Change) {
		for _, r := range runs {
			if n := b.count(`SELECT count(*) FROM runs_history WHERE id = $1`, r.RunID); n != 1 {
				t.Errorf("run %s is reported before the commit", r.RunID)
			}
		}
		ended = append(ended, runs...)
	})
	for range 2 { // the second one is a repeat
		if _, err := b.Accept(t.Context(), []event.Incoming{incoming("a", `1`, "k")}); err != nil {
			t.Fatal(err)
		}
	}
	if len(ended) != 1 || ended[0].JobID != 1 || ended[0].State != domain.Skipped || ended[0].Cause != domain.CauseEvent {
		t.Errorf("the ended runs are %+v", ended)
	}
}
