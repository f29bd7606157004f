package deadletter_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/deadletter"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/embednats"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBox(t *testing.T) {
	ctx := t.Context()
	server, err := embednats.Start(ctx, embednats.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	nc, err := nats.Connect(server.URL(), append(server.SystemOptions(), nats.Timeout(time.Minute), nats.ReconnectBufSize(-1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	box, err := deadletter.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.DeadLetters(ctx, "", "", 0, 10); domain.CodeOf(err) != domain.Unavailable {
		t.Errorf("without a stream: %v", err)
	}
	if err := natsinfra.Ensure(ctx, js, 1); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)
	of := "" // the group in the subject; older releases had none
	letter := func(kind, subject, data string, change func(*wire.DeadLetter)) {
		t.Helper()
		l := wire.DeadLetter{V: wire.Version, At: wire.Time{Time: at}, Subject: subject, Error: "why", Data: []byte(data)}
		if change != nil {
			change(&l)
		}
		if _, err := js.Publish(ctx, wire.DeadSubject(kind, of), wire.Encode(l)); err != nil {
			t.Fatal(err)
		}
	}
	letter("event", "belfry.v1.event.a", `{`, func(l *wire.DeadLetter) {
		l.Headers = map[string][]string{"Nats-Msg-Id": {"m"}, "Nats-Expected-Stream": {"OTHER"}, "Ce-Id": {"1"}}
	})
	letter("result", "belfry.v1.result.g", "\xff", nil)
	letter("event", "belfry.v1.event.a", `{`, func(l *wire.DeadLetter) { l.Bytes = 700_000 })
	letter("event", "belfry.v1.control.g.i", `{`, nil)
	letter("event", "belfry.v1.event.>", `{`, nil)
	if _, err := js.Publish(ctx, wire.DeadSubject("log", ""), []byte("rubbish")); err != nil {
		t.Fatal(err)
	}
	letter("event", "belfry.v1.event.b", `1`, nil)
	letter("event", "belfry.v1.event.c", `1`, func(l *wire.DeadLetter) { l.Headers = map[string][]string{wire.HeaderMessageID: {"its place"}} })
	of = "g"
	letter("result", "belfry.v1.result.g", "1", nil)
	of = "orders.created"
	letter("event", "belfry.v1.event.orders.created", "1", nil)
	own := func(name string) {
		t.Helper()
		l := wire.DeadLetter{V: wire.Version, At: wire.Time{Time: at}, Subject: wire.EventSubject(name), Error: "why", Data: []byte("1")}
		if _, err := js.Publish(ctx, wire.DeadEventSubject(name), wire.Encode(l)); err != nil {
			t.Fatal(err)
		}
	}
	own("orders.created")
	own("paid")
	const e1, e2 = wire.FirstDeadEvent, wire.FirstDeadEvent + 1
	of = ""
	letter("event", "belfry.v1.event.d", "1", func(l *wire.DeadLetter) { l.V = 99 })
	for _, tt := range []struct {
		kind, group string
		after       uint64
		limit       int
		want        []uint64
	}{
		{"", "", 0, 20, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, e1, e2}}, {"", "", 2, 2, []uint64{3, 4}}, {"", "", 11, 10, []uint64{e1, e2}},
		{"", "", 10, 2, []uint64{11, e1}}, {"", "", e1, 10, []uint64{e2}}, {"", "", e2, 10, nil}, {"event", "paid", 0, 10, []uint64{e2}}, {"", "paid", 0, 10, []uint64{e2}},
		{"result", "", 0, 10, []uint64{2, 9}}, {"event", "", 1, 10, []uint64{3, 4, 5, 7, 8, 10, 11, e1, e2}}, {"event", "", 1, 6, []uint64{3, 4, 5, 7, 8, 10}},
		{"result", "g", 0, 10, []uint64{9}}, {"result", "h", 0, 10, nil}, {"", "g", 0, 10, []uint64{9}},
		{"event", "orders.created", 0, 10, []uint64{10, e1}}, {"event", "orders.created", 10, 10, []uint64{e1}},
	} {
		letters, err := box.DeadLetters(ctx, tt.kind, tt.group, tt.after, tt.limit)
		var got []uint64
		for _, l := range letters {
			got = append(got, l.Seq)
			if l.Data != "" || l.DataBase64 != nil {
				t.Errorf("data in a list: %+v", l)
			}
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%q of %q after %d: got %v, %v", tt.kind, tt.group, tt.after, got, err)
		}
	}
	one, err := box.DeadLetter(ctx, 1)
	if err != nil || one.Kind != "event" || one.Subject != "belfry.v1.event.a" || one.Error != "why" || one.Data != "{" || !one.At.Equal(at) || one.Bytes != 1 || one.Headers["Ce-Id"][0] != "1" {
		t.Errorf("got %+v, %v", one, err)
	}
	if l, err := box.DeadLetter(ctx, 10); err != nil || l.Kind != "event" || l.Group != "orders.created" {
		t.Errorf("got %+v, %v", l, err)
	}
	if l, err := box.DeadLetter(ctx, e2); err != nil || l.Kind != "event" || l.Group != "paid" || l.Seq != e2 {
		t.Errorf("got %+v, %v", l, err)
	}
	if l, err := box.DeadLetter(ctx, 2); err != nil || l.Data != "" || string(l.DataBase64) != "\xff" {
		t.Errorf("got %+v, %v", l, err)
	}
	for _, seq := range []uint64{3, 4, 5, 6} {
		if _, err := box.Replay(ctx, seq); domain.CodeOf(err) != domain.Conflict {
			t.Errorf("replay of letter %d: %v", seq, err)
		}
	}
	for _, seq := range []uint64{1, 7, 8, 2, 10, e1} {
		if _, err := box.Replay(ctx, seq); err != nil {
			t.Errorf("replay of letter %d: %v", seq, err)
		}
		if _, err := box.Replay(ctx, seq); domain.CodeOf(err) != domain.NotFound {
			t.Errorf("another replay of letter %d: %v", seq, err)
		}
	}
	events, err := js.Stream(ctx, wire.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	first, err := events.GetMsg(ctx, 1)
	if err != nil || string(first.Data) != "{" || fmt.Sprint(first.Header) != "map[Belfry-Msg-Id:[m] Ce-Id:[1]]" {
		t.Errorf("got %+v, %v", first, err)
	}
	if second, err := events.GetMsg(ctx, 2); err != nil || second.Header.Get(wire.HeaderMessageID) == "" {
		t.Errorf("an event without an id: %+v, %v", second, err)
	}
	if third, err := events.GetMsg(ctx, 3); err != nil || third.Header.Get(wire.HeaderMessageID) != "its place" {
		t.Errorf("an event that says what it is known by: %+v, %v", third, err)
	}
	for _, seq := range []uint64{3, e2} {
		if _, err := box.Delete(ctx, seq); err != nil {
			t.Error(err)
		}
	}
	for _, seq := range []uint64{3, 99, e1, e2, e2 + 1} {
		if _, err := box.Delete(ctx, seq); domain.CodeOf(err) != domain.NotFound {
			t.Errorf("delete of letter %d: %v", seq, err)
		}
	}
	nc.Close()
	if _, err := box.DeadLetter(ctx, 4); domain.CodeOf(err) != domain.Unavailable {
		t.Errorf("while NATS is away: %v", err)
	}
}
