//go:build unix

package faulttest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

// eventLoad sends each event twice: over REST with the same Idempotency-Key, or over NATS with the same Nats-Msg-Id. All events fire
// one job, and about half of them also fire a second job.
type eventLoad struct {
	w       *world
	seed    uint64
	all, on *testJob

	mu   sync.Mutex
	sent map[string]bool // guarded by mu; the keys of acknowledged events, and whether the event fires `on`
	said []string        // guarded by mu; failures
}

const eventPause = 150 * time.Millisecond

// sendEvents creates the jobs and their event triggers.
func (l *load) sendEvents() *eventLoad {
	l.w.t.Helper()
	e := &eventLoad{w: l.w, seed: l.seed, sent: make(map[string]bool)}
	for group, job := range map[string]**testJob{"red": &e.all, "blue": &e.on} {
		s := domain.DefaultJobSpec()
		s.Group, s.Name, s.Handler, s.Schedule = group, "event", "work", domain.Schedule{Kind: domain.ScheduleNone}
		s.Block, s.Retries = domain.BlockParallel, 1
		made := l.mustCreate(s)
		l.mu.Lock()
		made.edited, made.bound = false, true
		l.mu.Unlock()
		*job = made
	}
	for _, spec := range []event.TriggerSpec{
		{Name: "faulttest.*", JobID: e.all.id, Enabled: true, Param: `{"ms": {{.event.data.ms}}}`},
		{Name: "faulttest.>", JobID: e.all.id, Enabled: true, Param: `{"ms": 1}`}, // the job still fires once for each event
		{Name: ">", JobID: e.on.id, Enabled: true, Param: `{"ms": 2, "ms_max": 30}`, Filter: "event.data.odd"},
	} {
		if _, err := l.w.api.CreateEventTrigger(l.w.t.Context(), spec); err != nil {
			l.w.t.Fatal(err)
		}
	}
	return e
}

// run sends events until stop. Then it waits until all are acknowledged, so all faults must be healed by then.
func (e *eventLoad) run(stop <-chan struct{}) {
	js, err := jetstream.New(e.w.nats.Conn)
	if err != nil {
		e.note("use JetStream: %v", err)
		return
	}
	r := rand.New(rand.NewPCG(e.seed, 21))
	var sending sync.WaitGroup
	room := make(chan struct{}, 64)
	for i, going := 0, true; going; i++ {
		timer := time.NewTimer(eventPause/2 + time.Duration(r.Int64N(int64(eventPause))))
		select {
		case <-timer.C:
		case <-stop:
			timer.Stop()
			going = false
		}
		select {
		case room <- struct{}{}:
		default:
			continue
		}
		key, odd := fmt.Sprintf("e%d", i), r.IntN(2) == 1
		data := fmt.Appendf(nil, `{"ms": %d, "odd": %t}`, r.IntN(20), odd)
		send := func() error { return e.post(key, data) }
		if i%2 == 0 {
			send = func() error { return publish(js, key, data) }
		}
		sending.Go(func() {
			defer func() { <-room }()
			if e.untilDone(key, send) {
				e.mu.Lock()
				e.sent[key] = odd
				e.mu.Unlock()
			}
		})
	}
	sending.Wait()
	e.again(js)
}

// untilDone sends an event until it was acknowledged twice.
func (e *eventLoad) untilDone(key string, send func() error) bool {
	deadline := time.Now().Add(15 * time.Minute) // longer than any fault
	for acks := 0; acks < 2; {
		err := send()
		if err == nil {
			acks++
			continue
		}
		if time.Now().After(deadline) {
			e.note("event %s could not be sent: %v", key, err)
			return false
		}
		<-time.After(300 * time.Millisecond)
	}
	return true
}

func (e *eventLoad) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = append(e.said, fmt.Sprintf(format, args...))
}

func (e *eventLoad) post(key string, data json.RawMessage) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestBounds)
	defer cancel()
	sent, err := e.w.api.SendEvent(ctx, "faulttest.rest", data, key)
	if status := client.StatusOf(err); status >= 400 && status < 500 {
		e.note("event %s: %v", key, err)
	}
	if err == nil && len(sent.RunIDs) == 0 {
		e.note("event %s fired nothing: %+v", key, sent)
	}
	return err
}

func publish(js jetstream.JetStream, key string, data []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestBounds)
	defer cancel()
	m := nats.NewMsg(wire.EventSubject("faulttest.nats"))
	m.Data = data
	m.Header.Set(nats.MsgIdHdr, key)
	_, err := js.PublishMsg(ctx, m)
	return err
}

// again publishes events without a record. They were in the stream when its storage was wiped, so their sender must repeat them.
func (e *eventLoad) again(js jetstream.JetStream) {
	deadline := time.Now().Add(2 * time.Minute)
	for time.Now().Before(deadline) {
		missing := e.missing()
		if len(missing) == 0 {
			return
		}
		for _, key := range missing {
			data := fmt.Appendf(nil, `{"ms": 5, "odd": %t}`, e.odd(key))
			if err := publish(js, key, data); err != nil {
				break
			}
		}
		<-time.After(3 * time.Second)
	}
}

func (e *eventLoad) odd(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sent[key]
}

// missing returns the keys of acknowledged events without a record.
func (e *eventLoad) missing() []string {
	ctx, cancel := context.WithTimeout(context.Background(), requestBounds)
	defer cancel()
	e.mu.Lock()
	defer e.mu.Unlock()
	var keys, missing []string
	for key := range e.sent {
		keys = append(keys, key)
	}
	if err := e.w.db.QueryRow(ctx, `SELECT coalesce(array_agg(k), '{}') FROM unnest($1::text[]) k WHERE NOT EXISTS (SELECT FROM events WHERE key = k)`, keys).
		Scan(&missing); err != nil {
		return keys
	}
	return missing
}

// whereabouts says which streams have a message with the key.
func (e *eventLoad) whereabouts(ctx context.Context, key string) string {
	js, err := jetstream.New(e.w.nats.Conn)
	if err != nil {
		return err.Error()
	}
	found := "no stream has it"
	for _, name := range []string{wire.StreamEvents, natsinfra.Dead} {
		ctx, cancel := context.WithTimeout(ctx, requestBounds)
		defer cancel()
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return fmt.Sprintf("%s: %v", name, err)
		}
		state := stream.CachedInfo().State
		for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
			m, err := stream.GetMsg(ctx, seq)
			if err == nil && (m.Header.Get(nats.MsgIdHdr) == key || strings.Contains(string(m.Data), fmt.Sprintf("%q", key))) {
				found = fmt.Sprintf("%s has it: %s", name, m.Data)
			}
		}
	}
	return found
}

// judge checks that each event was accepted once and fired each matching job once.
func (e *eventLoad) judge(t *testing.T) {
	t.Helper()
	for _, s := range e.said {
		t.Error(s)
	}
	rows, err := e.w.db.Query(t.Context(), `SELECT e.key, count(DISTINCT e.id), count(r.id) FILTER (WHERE r.job_id = $1), count(r.id) FILTER (WHERE r.job_id = $2)
		FROM events e LEFT JOIN runs r ON r.event_id = e.id::text GROUP BY e.key`, int64(e.all.id), int64(e.on.id))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	accepted := make(map[string]bool)
	for rows.Next() {
		var key string
		var events, all, on int
		if err := rows.Scan(&key, &events, &all, &on); err != nil {
			t.Fatal(err)
		}
		accepted[key] = true
		odd, certain := e.sent[key]
		want := 0
		if odd {
			want = 1
		}
		if events != 1 || all != 1 || on > 1 || certain && on != want {
			t.Errorf("event %s: accepted %d times, fired the job of all events %d times, and the job of some events %d times, want %d", key, events, all, on, want)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for key := range e.sent {
		if !accepted[key] {
			t.Errorf("event %s was acknowledged and is not in the database: %s", key, e.whereabouts(t.Context(), key))
		}
	}
	if len(e.sent) < 20 {
		t.Errorf("only %d events were sent", len(e.sent))
	}
	var stray int
	if err := e.w.db.QueryRow(t.Context(), `SELECT count(*) FROM runs r WHERE cause = 'event' AND NOT EXISTS (SELECT FROM events e WHERE e.id::text = r.event_id)`).
		Scan(&stray); err != nil || stray > 0 {
		t.Errorf("%d runs belong to events that are not in the database: %v", stray, err)
	}
	t.Logf("%d events were accepted and fired once each", len(accepted))
}
