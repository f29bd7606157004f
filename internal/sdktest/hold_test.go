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

// logbook keeps what an executor logs, as lines of JSON.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{} // has room for one
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

// lines are the records that hold all of the words.
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

// await waits for a record that holds all of the words.
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
			t.Fatalf("nothing with %q was logged in %v, but:\n%s", words, patience, strings.Join(b.lines(), ""))
		}
	}
}

func (w *world) bucket() jetstream.KeyValue {
	w.t.Helper()
	kv, err := w.js.KeyValue(w.t.Context(), wire.BucketInstances)
	must(w.t, err)
	return kv
}

// holder is the boot whose heartbeat stands under i1's name; empty when there is none.
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

// runOut does at once what the bucket's time limit does in 10 s, or a loss of NATS's storage.
func (w *world) runOut() error {
	stream, err := w.js.Stream(w.t.Context(), "KV_"+wire.BucketInstances)
	if err != nil {
		return err
	}
	return stream.Purge(w.t.Context())
}

// TestTakenNameIsLogged runs two processes with one configuration, but for the spool. The one that has lost the name
// must also be silent, for its answers would pass for the other's.
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
			t.Fatalf("boot %q answered a ping, want %q, which holds the name", rep.BootID, boot)
		}
		run := fmt.Sprint("r", n)
		ans := second.offerTo(boot, newOffer(run, "h"))
		wantVerdict(t, ans, wire.Accepted, "")
		w.result(run)
	}
	must(t, first.end())
	if got := w.holder(); got == "" {
		t.Error("the goodbye of one process took back the heartbeat of the other")
	}
	must(t, second.end())
	if got := w.holder(); got != "" {
		t.Error("the goodbye took nothing back")
	}
}

// TestTakenName starts a second process under a name that is taken. The lease of the one that has lost the name ends,
// although it goes on sending heartbeats, and it has the name again when the other one is gone.
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
