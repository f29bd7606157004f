package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/outage"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/view"
)

// seenPresence is what Postgres knows in a test.
type seenPresence struct {
	reads    int
	present  view.Presence
	blockers []view.Blocker
}

func (s *seenPresence) Presence(context.Context) (view.Presence, error) {
	s.reads++
	return s.present, nil
}
func (s *seenPresence) Blockers(context.Context) ([]view.Blocker, error) { return s.blockers, nil }

// endedAcks records whose acknowledgements end.
type endedAcks struct {
	ids []string
	err error
}

func (e *endedAcks) Ended(_ context.Context, ids []string) error {
	if e.err == nil {
		e.ids = append(e.ids, ids...)
	}
	return e.err
}

// A console names what is missing from what its probes and Postgres tell. While Postgres accepts no writes, it does not ask Postgres, and remembers
// the troubles that it saw before.
func TestTroublesOfAConsole(t *testing.T) {
	nc := toNATS(t)
	var postgres error
	said := func(context.Context, error) {}
	v := &servers{nc: nc}
	v.postgres = newProbe("postgres", 0, func(context.Context) error { return postgres }, said)
	v.jetStream = newProbe("jetstream", 0, func(context.Context) error { return nil }, said)
	state, acks := &seenPresence{}, &endedAcks{}
	state.present.Processes = []view.Process{{Role: "scheduler", Name: "host/1"}}
	x := &troubles{watch: &outage.Watch{}, servers: v, view: state, acks: acks, log: slog.New(slog.DiscardHandler)}
	now := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	look := func(after time.Duration, want ...string) {
		t.Helper()
		now = now.Add(after)
		v.postgres.once(t.Context())
		v.jetStream.once(t.Context())
		x.look(t.Context(), now)
		var got []string
		for _, trouble := range x.watch.Troubles() {
			got = append(got, trouble.ID())
		}
		if !slices.Equal(got, want) {
			t.Errorf("at %v: %q, want %q", now, got, want)
		}
	}
	look(0)
	look(2 * time.Second)
	if state.reads != 1 {
		t.Errorf("Postgres was asked %d times in two seconds", state.reads)
	}
	look(presenceEvery)
	look(presenceEvery, "role_missing:dispatcher")
	acks.ids = nil

	postgres = store.ErrReadOnly
	reads := state.reads
	look(presenceEvery, "server_unavailable:postgres", "role_missing:dispatcher")
	if text := x.watch.Troubles()[0].Why.Text; !strings.Contains(text, "accepts no writes: it is a standby, or read-only. Without") {
		t.Errorf("the text is %q", text)
	}
	postgres = domain.WrapError(domain.Unavailable, "write to Postgres", errors.New("dial db.internal"))
	look(presenceEvery, "server_unavailable:postgres", "role_missing:dispatcher")
	if trouble := x.watch.Troubles()[0]; strings.Contains(trouble.Why.Text, "db.internal") || !strings.Contains(trouble.Detail, "db.internal") {
		t.Errorf("the trouble is %+v", trouble)
	}
	if state.reads != reads {
		t.Errorf("Postgres was asked %d times while it was unavailable", state.reads-reads)
	}

	postgres, acks.err = nil, errors.New("a lock")
	state.present.Processes = append(state.present.Processes, view.Process{Role: "dispatcher", Name: "host/2"})
	look(presenceEvery)
	acks.err = nil
	look(2 * time.Second)
	if want := []string{"role_missing:dispatcher", "server_unavailable:postgres"}; fmt.Sprint(slices.Sorted(slices.Values(acks.ids))) != fmt.Sprint(want) {
		t.Errorf("the acknowledgements of %q have ended, want %q", acks.ids, want)
	}
}
