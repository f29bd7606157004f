package sdktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/wire"
)

// logbook collects an executor's log records as lines of JSON.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{} // capacity one
}

func newLogbook() *logbook { return &logbook{news: make(chan struct{}, 1)} }

func (b *logbook) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(b, nil)) }

// Write implements io.Writer.
func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

// lines returns the records that contain all of the words.
func (b *logbook) lines(words ...string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
line:
	for line := range strings.Lines(b.text.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue line
			}
		}
		found = append(found, line)
	}
	return found
}

// await waits for a record that contains all of the words.
func (b *logbook) await(t *testing.T, words ...string) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		if found := b.lines(words...); len(found) > 0 {
			return found[0]
		}
		select {
		case <-b.news:
		case <-deadline:
			t.Fatalf("no record with %q within %v; the log is:\n%s", words, patience, strings.Join(b.lines(), ""))
		}
	}
}

func (w *world) bucket() jetstream.KeyValue {
	w.t.Helper()
	kv, err := w.js.KeyValue(w.t.Context(), wire.BucketInstances)
	must(w.t, err)
	return kv
}

// holder returns the boot whose heartbeat is stored under the name i1, or "" if there is none.
func (w *world) holder() string {
	w.t.Helper()
	entry, err := w.bucket().Get(w.t.Context(), "g.i1")
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return ""
	}
	must(w.t, err)
	var beat wire.Heartbeat
	must(w.t, wire.Decode(entry.Value(), &beat))
	return beat.BootID
}

// runOut deletes the heartbeat, as the bucket's time limit does after 10 s or a loss of NATS's storage does.
func (w *world) runOut() error {
	stream, err := w.js.Stream(w.t.Context(), "KV_"+wire.BucketInstances)
	if err != nil {
		return err
	}
	return stream.Purge(w.t.Context())
}

// TestTakenNameIsLogged runs two processes with the same configuration, except for the spool. The process that has lost the name
// must not answer requests, because callers could not distinguish its answers from those of the other process.
func TestTakenNameIsLogged(t *testing.T) {
	w := newWorld(t)
	book := newLogbook()
	c := w.config()
	c.Logger = book.logger()
	first := w.start(c, nil)
	second := w.start(w.config(), map[string]executor.HandlerFunc{"h": func(context.Context, executor.Run) error { return nil }})
	book.await(t, `"level":"ERROR"`, `"group":"g"`, `"instance":"i1"`, "--instance")
	boot := w.holder()
	for n := range 20 {
		if rep := second.control(wire.Control{Op: wire.OpPing}); rep.BootID != boot {
			t.Fatalf("boot %q answered a ping, want %q, which has the name", rep.BootID, boot)
		}
		run := fmt.Sprint("r", n)
		ans := second.offerTo(boot, newOffer(run, "h"))
		wantVerdict(t, ans, wire.Accepted, "")
		w.result(run)
	}
	must(t, first.end())
	if got := w.holder(); got == "" {
		t.Error("the goodbye of one process deleted the heartbeat of the other")
	}
	must(t, second.end())
	if got := w.holder(); got != "" {
		t.Error("the goodbye did not delete the heartbeat")
	}
}

// TestTakenName starts a second process with a name that is in use. The lease of the process that loses the name ends, although it
// continues to send heartbeats. It gets the name back when the other process has ended.
func TestTakenName(t *testing.T) {
	w := newWorld(t)
	loser := w.start(w.config(), nil)
	keeper := w.start(w.config(), nil)
	looks := time.NewTicker(20 * time.Millisecond)
	defer looks.Stop()
	until := func(what string, look func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !look(); <-looks.C {
			if time.Now().After(deadline) {
				t.Fatalf("waited %v for %s", patience, what)
			}
		}
	}
	until("the end of a lease", func() bool {
		if loser.e.Status().Leased && !keeper.e.Status().Leased { // on a slow machine the first one may get the name back
			loser, keeper = keeper, loser
		}
		return !loser.e.Status().Leased
	})
	kept := w.holder()
	must(t, keeper.end())
	must(t, w.runOut())
	until("a heartbeat of the other one", func() bool { got := w.holder(); return got != "" && got != kept })
	until("the other one's lease", func() bool { return loser.e.Status().Leased })
	must(t, loser.end())
}
