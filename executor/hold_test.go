package executor

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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
	wake(b.news)
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

// newLinkedBoot is a boot of instance i1 that is connected, and beats only when it is told to.
func newLinkedBoot(w *world) *boot {
	w.t.Helper()
	c := w.config()
	e, err := New(c)
	must(w.t, err)
	name, spool, left, err := findSpool(c.SpoolDir, c.Group, c.Instance, c.Logger)
	must(w.t, err)
	b := e.newBoot(name, spool, left)
	if !b.link.connect(w.t.Context()) {
		w.t.Fatal("it does not connect")
	}
	w.t.Cleanup(func() {
		b.link.close()
		b.stop(nil)
		must(w.t, spool.close())
	})
	return b
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

// TestNameIsHeldByOneBoot starts a second process under a name that is taken.
func TestNameIsHeldByOneBoot(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	first, second := newLinkedBoot(w), newLinkedBoot(w)
	must(t, first.link.sendBeat(ctx))
	must(t, first.link.sendBeat(ctx))
	must(t, second.link.sendBeat(ctx))
	confirmed := first.engine.lease.confirmed
	for range 3 {
		if err := first.link.sendBeat(ctx); !errors.Is(err, errNameTaken) {
			t.Fatalf("the older boot's heartbeat: %v, want %v", err, errNameTaken)
		}
		must(t, second.link.sendBeat(ctx))
	}
	if first.engine.lease.confirmed != confirmed {
		t.Error("a refused heartbeat renewed the lease")
	}
	first.link.goodbye(ctx)
	if got := w.holder(); got != second.boot {
		t.Errorf("after the older boot's goodbye the name is %q's, want %q's", got, second.boot)
	}
	must(t, second.link.sendBeat(ctx))
	second.link.goodbye(ctx)
	if got := w.holder(); got != "" {
		t.Errorf("after its own goodbye the name is still %q's", got)
	}
	must(t, w.bucket().Purge(ctx, "g.i1"))
	must(t, w.runOut())
	must(t, first.link.sendBeat(ctx))
	if got := w.holder(); got != first.boot {
		t.Errorf("when the other is gone the name is %q's, want %q's", got, first.boot)
	}
}

// runOut does at once what the bucket's time limit does in 10 s, or a loss of NATS's storage.
func (w *world) runOut() error {
	stream, err := w.js.Stream(w.t.Context(), "KV_"+wire.BucketInstances)
	if err != nil {
		return err
	}
	return stream.Purge(w.t.Context())
}

// TestHeartbeatWithoutAnswer stores a heartbeat whose acknowledgement is lost: its own boot must not take it for
// another's, and one that has lost the name must not take it back by such an accident.
func TestHeartbeatWithoutAnswer(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	first, second := newLinkedBoot(w), newLinkedBoot(w)
	loseAnswer := func(b *boot) {
		_, err := w.js.Publish(ctx, b.link.keySubject(), wire.Encode(b.link.heartbeat(1)))
		must(t, err)
		b.link.hold.note(b.now(), 0, fmt.Errorf("publish: %w", context.DeadlineExceeded))
	}
	must(t, first.link.sendBeat(ctx))
	loseAnswer(first)
	must(t, first.link.sendBeat(ctx))
	must(t, first.link.sendBeat(ctx))

	must(t, second.link.sendBeat(ctx))
	if err := first.link.sendBeat(ctx); !errors.Is(err, errNameTaken) {
		t.Fatalf("the older boot's heartbeat: %v, want %v", err, errNameTaken)
	}
	first.link.hold.note(first.now(), 0, context.DeadlineExceeded)
	if err := first.link.sendBeat(ctx); !errors.Is(err, errNameTaken) {
		t.Errorf("a boot that had lost the name: %v, want %v", err, errNameTaken)
	}
	must(t, second.link.sendBeat(ctx))
}

func TestMaybeStored(t *testing.T) {
	for err, want := range map[error]bool{
		context.DeadlineExceeded:     true,
		nats.ErrTimeout:              true,
		nats.ErrNoResponders:         false,
		nats.ErrReconnectBufExceeded: false,
		&streamError{code: 10077}:    false,
	} {
		if got := maybeStored(fmt.Errorf("publish: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
	h := hold{seq: 7, unsure: true}
	if got := h.expectations(instant{mono: wire.LeaseTTL}); len(got) != 3 {
		t.Errorf("while the lost heartbeat may stand: %v", got)
	}
	if got := h.expectations(instant{mono: wire.LeaseTTL + 1}); len(got) != 2 {
		t.Errorf("when it has run out: %v", got)
	}
}

// TestTakenNameIsLogged runs two processes with one configuration, but for the spool. The one that has lost the name
// must also be silent, for its answers would pass for the other's.
func TestTakenNameIsLogged(t *testing.T) {
	w := newWorld(t)
	book := newLogbook()
	c := w.config()
	c.Logger = book.logger()
	first := w.start(c, nil)
	second := w.start(w.config(), map[string]HandlerFunc{"h": func(context.Context, Run) error { return nil }})
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
