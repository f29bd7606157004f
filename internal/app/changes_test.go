package app

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/embednats"
	"github.com/belfryhq/belfry/internal/engine"
)

// The console receives every dispatcher's changes, and missed is called when changes may have been lost.
func TestRunChanges(t *testing.T) {
	server, err := embednats.Start(t.Context(), embednats.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop(context.Background()) }) //nolint:errcheck // the process ends
	connect := func() *nats.Conn {
		nc, err := nats.Connect(server.URL(), append(server.SystemOptions(), nats.Timeout(patience), nats.ReconnectWait(10*time.Millisecond))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	mine, other := connect(), connect()
	heard, missed := make(chan []engine.Change, 100_000), make(chan struct{}, 100)
	hold := make(chan struct{}, 1)
	hold <- struct{}{}
	stop, err := runChanges{mine, slog.New(slog.DiscardHandler)}.Hear(func(c []engine.Change) {
		hold <- <-hold // the test blocks the subscription while it holds this
		heard <- c
	}, func() { missed <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	id := domain.NewRunID(time.Now())
	message := wire.EncodeRunChanges([]wire.RunChange{
		{RunID: id.String(), JobID: 7, JobName: "j", State: "running", Cause: "manual", Attempt: 2},
		{RunID: "no id", State: "failed"},
	})
	tell := func(nc *nats.Conn, group string) {
		t.Helper()
		if err := nc.Publish(wire.RunSubject(group), message); err != nil {
			t.Fatal(err)
		}
	}
	within := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(patience):
			t.Fatalf("%s: nothing came", what)
		}
	}
	next := func() []engine.Change {
		t.Helper()
		select {
		case c := <-heard:
			return c
		case <-time.After(patience):
			t.Fatal("no change was received")
			return nil
		}
	}
	want := func(group string) []engine.Change {
		return []engine.Change{{RunID: id, JobID: 7, Group: group, State: domain.Running, Cause: domain.CauseManual, Attempt: 2}}
	}
	for _, nc := range []*nats.Conn{mine, other} {
		for _, group := range []string{"a", "b"} {
			tell(nc, group)
			if got := next(); !slices.Equal(got, want(group)) {
				t.Errorf("heard %+v", got)
			}
		}
	}
	if err := other.Publish(wire.RunSubject("a"), []byte(`{"v":9}`)); err != nil {
		t.Fatal(err)
	}
	within("a message that cannot be read", missed)
	if err := mine.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	within("a connection that broke", missed)
	tell(other, "a")
	next()
	<-hold
	for range changesHeld + 100 {
		tell(other, "a")
	}
	within("more than can be held", missed)
	hold <- struct{}{}
	next()
}
