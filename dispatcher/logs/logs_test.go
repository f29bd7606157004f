package logs_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/dispatcher/logs"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/embednats"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/logchunk"
	"github.com/belfryhq/belfry/internal/store/view"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bench is a consumer with its own database and NATS server.
type bench struct {
	t        *testing.T
	pg       *store.Store
	js       jetstream.JetStream
	run      domain.RunID
	fail     *failing
	room     intake.Bounds
	registry *prometheus.Registry

	mu      sync.Mutex
	letters []string
}

// failing is a store that fails as configured.
type failing struct {
	logs.Store
	mu     sync.Mutex
	refuse func([]engine.LogChunk) error
	asked  int
}

func (f *failing) StoreLogs(ctx context.Context, chunks []engine.LogChunk) error {
	f.mu.Lock()
	f.asked++
	refuse := f.refuse
	f.mu.Unlock()
	if refuse != nil {
		if err := refuse(chunks); err != nil {
			return err
		}
	}
	return f.Store.StoreLogs(ctx, chunks)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	ctx := context.Background()
	b := &bench{t: t}
	var err error
	if b.pg, err = store.Open(ctx, store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 4}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.pg.Close)
	if _, err := b.pg.Pool().Exec(ctx, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'g'), ('h', 'h')`); err != nil {
		t.Fatal(err)
	}
	sp := domain.DefaultJobSpec()
	sp.Group, sp.Name, sp.Handler, sp.Schedule = "g", "j", "echo", domain.Schedule{Kind: domain.ScheduleNone}
	job, err := b.pg.CreateJob(ctx, sp, "test")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := b.pg.Trigger(ctx, job.ID, domain.Trigger{Cause: domain.CauseManual})
	if err != nil {
		t.Fatal(err)
	}
	b.run = ids[0]
	server, err := embednats.Start(ctx, embednats.Config{StoreDir: t.TempDir(), MaxStoreBytes: natsinfra.StorageBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(ctx) })
	nc, err := nats.Connect(server.URL(), append(server.SystemOptions(), nats.Timeout(patience))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if b.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if err := natsinfra.Ensure(ctx, b.js, 1); err != nil {
		t.Fatal(err)
	}
	b.fail = &failing{Store: b.pg}
	return b
}

// begin runs the consumer until the test ends.
func (b *bench) begin() {
	b.t.Helper()
	b.registry = prometheus.NewRegistry()
	c, err := logs.New(logs.Config{
		JetStream: b.js, Store: b.fail, Encode: logchunk.Encode, Log: slog.New(slog.DiscardHandler), Registry: b.registry, Bounds: b.room,
		DeadLetter: func(_ context.Context, kind, subject string, _ []byte, reason error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.letters = append(b.letters, kind+" "+subject+" "+reason.Error())
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	})
}

func (b *bench) dead() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.letters...)
}

// patience bounds each wait, because the machine may be busy.
const patience = 5 * time.Minute

func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for tick := time.NewTicker(10 * time.Millisecond); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			b.t.Fatalf("in vain: %s", what)
		}
	}
}

func (b *bench) publish(group string, data []byte) {
	b.t.Helper()
	if _, err := b.js.Publish(context.Background(), wire.LogSubject(group), data); err != nil {
		b.t.Fatal(err)
	}
}

// lines creates a message of consecutive lines that starts at first.
func (b *bench) lines(first int64, texts ...string) wire.Logs {
	l := wire.Logs{V: wire.Version, Instance: "a", RunID: b.run.String(), Attempt: 1}
	for i, text := range texts {
		l.Lines = append(l.Lines, wire.LogLine{N: first + int64(i), At: wire.Time{Time: time.Now()}, Level: "info", Text: text})
	}
	return l
}

// pending returns the number of unacknowledged messages.
func (b *bench) pending() int {
	b.t.Helper()
	s, err := b.js.Stream(context.Background(), wire.StreamLogs)
	if err != nil {
		b.t.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

// stored returns the lines in Postgres, in order.
func (b *bench) stored() []domain.LogLine {
	b.t.Helper()
	rows, err := b.pg.Pool().Query(context.Background(), `SELECT lines FROM run_logs WHERE run_id = $1 ORDER BY attempt, first_line`, b.run)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	var out []domain.LogLine
	for rows.Next() {
		var chunk []byte
		if err := rows.Scan(&chunk); err != nil {
			b.t.Fatal(err)
		}
		lines, err := logchunk.Decode(chunk)
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, lines...)
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) texts() string {
	var out []string
	for _, l := range b.stored() {
		out = append(out, l.Text)
	}
	return strings.Join(out, ",")
}

func TestStored(t *testing.T) {
	b := newBench(t)
	b.begin()
	b.publish("g", wire.Encode(b.lines(1, "one", "two")))
	b.publish("g", wire.Encode(b.lines(3, "three", strings.Repeat("x", wire.MaxLogLineBytes+10), "with \x00 and \xff")))
	b.eventually("all are stored", func() bool { return len(b.stored()) == 5 })
	got := b.stored()
	if got[0].Text != "one" || got[2].N != 3 || got[2].Level != "info" {
		t.Errorf("lines %+v", got[:3])
	}
	if len(got[3].Text) > wire.MaxLogLineBytes+20 || !strings.HasSuffix(got[3].Text, "… cut") {
		t.Errorf("a long line has %d bytes", len(got[3].Text))
	}
	// A redelivered batch changes nothing.
	b.publish("g", wire.Encode(b.lines(1, "one", "TWO")))
	b.publish("g", wire.Encode(b.lines(6, "six")))
	b.eventually("the one after it is stored", func() bool { return len(b.stored()) >= 6 })
	b.eventually("all are acknowledged", func() bool { return b.pending() == 0 })
	if text := b.texts(); !strings.HasPrefix(text, "one,two,three,") || len(b.stored()) != 6 {
		t.Errorf("stored %.80s", text)
	}
	if l := b.dead(); len(l) != 0 {
		t.Errorf("dead letters %v", l)
	}
}

func TestSetAside(t *testing.T) {
	b := newBench(t)
	b.begin()
	edit := func(f func(*wire.Logs)) []byte {
		l := b.lines(1, "one", "two", "three")
		f(&l)
		return wire.Encode(l)
	}
	for _, tt := range []struct {
		name  string
		group string
		data  []byte
		why   string
	}{
		{"garbage", "g", []byte("{"), "decode"},
		{"unknown version", "g", edit(func(l *wire.Logs) { l.V = 2 }), "version 2"},
		{"another group's run", "h", edit(func(*wire.Logs) {}), "belongs to another group"},
		{"unknown run", "g", edit(func(l *wire.Logs) { l.RunID = domain.NewRunID(time.Now()).String() }), "does not exist"},
		{"no run", "g", edit(func(l *wire.Logs) { l.RunID = "" }), "run_id"},
		{"no lines", "g", edit(func(l *wire.Logs) { l.Lines = nil }), "out of range"},
		{"attempt 0", "g", edit(func(l *wire.Logs) { l.Attempt = 0 }), "out of range"},
		{"attempt beyond all bounds", "g", edit(func(l *wire.Logs) { l.Attempt = 1 << 40 }), "out of range"},
		{"line 0", "g", edit(func(l *wire.Logs) { l.Lines[0].N, l.Lines[1].N, l.Lines[2].N = 0, 1, 2 }), "out of range"},
		{"a gap", "g", edit(func(l *wire.Logs) { l.Lines[2].N = 4 }), "line 4 follows line 2"},
		{"backwards", "g", edit(func(l *wire.Logs) { l.Lines[1].N = 1 }), "line 1 follows line 1"},
		{"lines beyond all numbers", "g", edit(func(l *wire.Logs) {
			const most = 1<<63 - 1
			l.Lines[0].N, l.Lines[1].N, l.Lines[2].N = most, -most-1, -most
		}), "out of range"},
	} {
		before := len(b.dead())
		b.publish(tt.group, tt.data)
		b.eventually(tt.name+" is set aside", func() bool { return len(b.dead()) > before })
		if l := b.dead(); len(l) != before+1 || !strings.Contains(l[before], tt.why) || !strings.HasPrefix(l[before], "log "+wire.LogSubject(tt.group)) {
			t.Errorf("%s: %q", tt.name, l[before:])
		}
	}
	b.publish("g", wire.Encode(b.lines(1, "good")))
	b.eventually("the good one is stored", func() bool { return b.texts() == "good" })
	b.eventually("all are acknowledged", func() bool { return b.pending() == 0 })
}

func TestPostgresAway(t *testing.T) {
	b := newBench(t)
	b.fail.refuse = func([]engine.LogChunk) error { return domain.NewError(domain.Unavailable, "Postgres is away") }
	b.begin()
	for i := range 10 {
		b.publish("g", wire.Encode(b.lines(int64(i+1), "line")))
	}
	b.eventually("it was tried", func() bool {
		b.fail.mu.Lock()
		defer b.fail.mu.Unlock()
		return b.fail.asked > 1
	})
	if n := b.pending(); n != 10 || len(b.dead()) != 0 {
		t.Errorf("%d of 10 messages are left, %d set aside", n, len(b.dead()))
	}
	b.fail.mu.Lock()
	b.fail.refuse = nil
	b.fail.mu.Unlock()
	b.eventually("all are stored", func() bool { return len(b.stored()) == 10 })
	b.eventually("all are acknowledged", func() bool { return b.pending() == 0 })
}

// A message that Postgres rejects is set aside, and the other messages are stored.
func TestPoison(t *testing.T) {
	b := newBench(t)
	b.fail.refuse = func(chunks []engine.LogChunk) error {
		for _, c := range chunks {
			if c.First == 5 {
				return domain.NewError(domain.Invalid, "a value is not allowed")
			}
		}
		return nil
	}
	for i := range 10 {
		b.publish("g", wire.Encode(b.lines(int64(i+1), "line")))
	}
	b.begin()
	b.eventually("the others are stored", func() bool { return len(b.stored()) == 9 })
	b.eventually("it is set aside", func() bool { return len(b.dead()) == 1 })
	b.eventually("all are acknowledged", func() bool { return b.pending() == 0 })
}

// Lines of a run that has ended are stored, too.
func TestAfterTheEnd(t *testing.T) {
	b := newBench(t)
	b.begin()
	b.publish("g", wire.Encode(b.lines(1, "one")))
	b.eventually("the first is stored", func() bool { return b.texts() == "one" })
	if _, err := b.pg.RequestKill(t.Context(), b.run, domain.ReasonKilled, "test"); err != nil {
		t.Fatal(err)
	}
	b.publish("g", wire.Encode(b.lines(2, "two")))
	b.eventually("the last is stored", func() bool { return b.texts() == "one,two" })
}

// runOf returns the id of a new run of a group.
func (b *bench) runOf(group string) domain.RunID {
	b.t.Helper()
	sp := domain.DefaultJobSpec()
	sp.Group, sp.Name, sp.Handler, sp.Schedule = group, "other", "echo", domain.Schedule{Kind: domain.ScheduleNone}
	job, err := b.pg.CreateJob(b.t.Context(), sp, "test")
	if err != nil {
		b.t.Fatal(err)
	}
	ids, err := b.pg.Trigger(b.t.Context(), job.ID, domain.Trigger{Cause: domain.CauseManual})
	if err != nil {
		b.t.Fatal(err)
	}
	return ids[0]
}

// metric returns the value of a metric for a group.
func (b *bench) metric(name, group string) float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if f.GetName() == name && l.GetName() == "group" && l.GetValue() == group {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

// Lines beyond a group's share are replaced by a line with their number. The log has no gap.
func TestShareOfLines(t *testing.T) {
	b := newBench(t)
	b.room = intake.Bounds{GroupBytes: 1} // one message
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	b.fail.refuse = func(chunks []engine.LogChunk) error {
		if chunks[0].First == 1 {
			<-gate
		}
		return nil
	}
	b.begin()
	b.publish("g", wire.Encode(b.lines(1, "one", "two")))
	b.eventually("the first message is held", func() bool {
		b.fail.mu.Lock()
		defer b.fail.mu.Unlock()
		return b.fail.asked == 1
	})
	b.publish("g", wire.Encode(b.lines(3, "three", "four")))
	b.publish("g", []byte("garbage"))
	b.publish("g", wire.Encode(b.lines(5, "five", "six", "seven")))
	b.eventually("the others are dropped", func() bool { return b.metric("belfry_group_excess_total", "g") == 3 })
	b.eventually("they are acknowledged", func() bool { return b.pending() == 1 })
	open()
	b.eventually("the first lines are stored", func() bool { return strings.HasPrefix(b.texts(), "one,two,") })
	b.publish("g", wire.Encode(b.lines(8, "eight")))
	b.eventually("the last line is stored", func() bool { return strings.HasSuffix(b.texts(), ",eight") })
	if text := b.texts(); text != "one,two,5 lines dropped: the group exceeded its log share,eight" &&
		text != "one,two,2 lines dropped: the group exceeded its log share,3 lines dropped: the group exceeded its log share,eight" {
		t.Errorf("the log is %s", text)
	}
	if l := b.dead(); len(l) != 1 {
		t.Errorf("dead letters %v", l)
	}
	// If the log had a gap, the page would end before it, because a reader waits for missing lines.
	page, err := view.New(b.pg.Pool()).Log(t.Context(), b.run, 1, 100, view.LogFilter{})
	if err != nil || page.Next != 9 || page.Lines[len(page.Lines)-1].Text != "eight" {
		t.Errorf("the page is %+v, %v", page, err)
	}
}

// Lines beyond the quota of the day are replaced by a line with their number. Other groups are not affected.
func TestQuotaOfLines(t *testing.T) {
	b := newBench(t)
	other := b.runOf("h")
	if _, err := b.pg.Pool().Exec(t.Context(), `UPDATE groups SET limits = '{"max_log_bytes_per_day": 5}' WHERE name = 'g'`); err != nil {
		t.Fatal(err)
	}
	b.begin()
	b.publish("g", wire.Encode(b.lines(1, "one", "two")))
	b.eventually("the first lines are stored", func() bool { return b.texts() == "one,two" })
	n := int64(3)
	b.eventually("lines are replaced", func() bool { // as soon as the dispatcher has read the quotas again
		b.publish("g", wire.Encode(b.lines(n, "x", "y")))
		b.eventually("they are acknowledged", func() bool { return b.pending() == 0 })
		n += 2
		return strings.HasSuffix(b.texts(), "2 lines dropped: the group exceeded its log quota of the day")
	})
	if b.metric("belfry_group_excess_total", "g") == 0 {
		t.Error("the dropped lines are not counted")
	}
	b.run = other
	b.publish("h", wire.Encode(b.lines(1, "of another group")))
	b.eventually("the other group's line is stored", func() bool { return b.texts() == "of another group" })
}

// A line of one group does not wait for the many lines of another one.
func TestFloodOfLines(t *testing.T) {
	b := newBench(t)
	other := b.runOf("h")
	const messages, size = 500, 2 << 10
	b.room = intake.Bounds{GroupBytes: 300 * size}
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	var mu sync.Mutex
	before, found := 0, false // chunks of the flood that were stored before the other group's line
	b.fail.refuse = func(chunks []engine.LogChunk) error {
		<-gate
		mu.Lock()
		defer mu.Unlock()
		for _, c := range chunks {
			found = found || c.RunID == other
			if !found && c.First == c.Last {
				before++
			}
		}
		return nil
	}
	b.begin()
	for i := range messages {
		b.publish("g", wire.Encode(b.lines(int64(i+1), strings.Repeat("x", size))))
	}
	one := b.lines(1, "one")
	one.RunID = other.String()
	b.publish("h", wire.Encode(one))
	b.eventually("it has fetched the line", func() bool { return b.metric("belfry_group_queue_bytes", "h") > 0 })
	open()
	b.eventually("all is stored", func() bool { return b.pending() == 0 })
	mu.Lock()
	defer mu.Unlock()
	const batch, turn = 100, 20
	if !found || before > batch+turn {
		t.Errorf("found: %t, after %d messages of the flood", found, before)
	}
	if b.metric("belfry_group_excess_total", "h") != 0 || b.metric("belfry_group_excess_total", "g") == 0 {
		t.Error("the share of the wrong group was exceeded")
	}
}

// Postgres itself refuses the lines of one group's run.
func TestRefusedByPostgres(t *testing.T) {
	b := newBench(t)
	if _, err := b.pg.Pool().Exec(t.Context(), `ALTER TABLE run_logs ADD CONSTRAINT poison CHECK (1 / (first_line - 7) <> 2)`); err != nil {
		t.Fatal(err)
	}
	bad := b.lines(7, "line")
	bad.RunID = b.runOf("h").String()
	for i := range 6 {
		b.publish("g", wire.Encode(b.lines(int64(i+1), "line")))
	}
	b.publish("h", wire.Encode(bad))
	b.begin()
	b.eventually("the others are stored", func() bool { return len(b.stored()) == 6 })
	b.eventually("it is set aside", func() bool { return len(b.dead()) == 1 })
	b.eventually("all are acknowledged", func() bool { return b.pending() == 0 })
}
