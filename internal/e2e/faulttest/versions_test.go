//go:build unix

package faulttest

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/e2e/checker"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/store"
)

// envLong is set by .ci/long.
const envLong = "BELFRY_TEST_LONG"

// Processes of the previous release and of this one run side by side under load. They begin on the old schema, migrate up, are
// replaced one by one in the order of docs/operations.md, go back to the previous release on the newer schema, and forward again.
// Nothing is lost, nothing runs twice, and every fire time is accounted for.
func TestUpgrade(t *testing.T) {
	if os.Getenv(envLong) == "" {
		t.Skip("NOT COVERED: processes of two releases side by side; `.ci/long upgrade` runs it")
	}
	seed := givenSeed(t, rand.Uint64())
	w := newWorld(t, setup{previous: rig.Previous(t), before: true})
	l := newLoad(w, seed, time.Minute)
	l.prepare()
	events := l.sendEvents()
	begin := time.Now()
	w.under(l, events, func() {
		w.pass(phase)
		if err := store.Migrate(t.Context(), w.pg.url()); err != nil {
			t.Fatalf("migrate up under load: %v", err)
		}
		t.Log("the previous release works with the new schema")
		w.pass(phase)
		w.updateAll(forward, false)
		w.updateAll(back, true)
		w.updateAll(forward, false)
		w.nats.Streams = rig.AllStreams()
	})
	w.conclude(l, events, nil, checker.Span{From: begin, To: time.Now()}, "Two releases side by side", true)
}

// phase is how long both releases, or only one, run under load between two steps.
const phase = 10 * time.Second

// The order in which roles are updated, from docs/operations.md. To go back, the order is reversed: executors are never newer than
// the server roles for longer than needed.
var (
	forward = []string{"dispatcher", "scheduler", "console", "executor"}
	back    = []string{"executor", "console", "scheduler", "dispatcher"}
)

// updateAll replaces all processes, one by one, by those of a release. Between two roles, both releases run side by side.
func (w *world) updateAll(roles []string, old bool) {
	w.t.Helper()
	for _, role := range roles {
		for _, m := range w.members {
			if m.role != role {
				continue
			}
			m.busy.Lock()
			before := w.boot(m)
			m.update(old)
			m.busy.Unlock()
			if m.role == "executor" {
				rig.Eventually(w.t, rig.Patience, m.name+" is listed", func() bool { b := w.boot(m); return b != "" && b != before })
			} else if !m.awaitReady(rig.Patience) {
				w.t.Fatalf("%s is not ready; the end of its log: %s", m.name, tailOf(m.log, 2000))
			}
			w.pass(phase / 5)
		}
		w.t.Logf("replaced: %s, previous release: %t", role, old)
		w.pass(phase)
	}
}

// pass lets the load run for a time.
func (w *world) pass(d time.Duration) { <-time.After(d) }

// boot returns the boot id of an executor's process, "" if it is not listed or about to stop.
func (w *world) boot(m *member) string {
	for group, names := range testGroups {
		for _, name := range names {
			if name != m.name {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), requestBounds)
			defer cancel()
			list, err := w.api.Instances(ctx, group)
			for _, i := range list {
				if err == nil && i.ID == name && !i.Draining {
					return i.BootID
				}
			}
		}
	}
	return ""
}

// update replaces the process by one of this release or of the previous one. busy is held.
func (m *member) update(old bool) {
	m.w.t.Helper()
	from := time.Now()
	m.stop()
	m.old = old
	m.start()
	m.w.note("replace "+m.role, m.name, from)
}

// replacing is a fault that replaces a process by one of the other release.
func replacing(role string) func(*nemesis, string) {
	return func(n *nemesis, _ string) {
		m := n.victim(role)
		if m == nil {
			return
		}
		defer m.busy.Unlock()
		m.update(!m.old)
	}
}
