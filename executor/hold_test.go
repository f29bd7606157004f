package executor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

// shelf is an instance bucket with one key. Like a stream, it accepts a heartbeat only if the last message on the key's
// subject has the sequence number that the heartbeat expects.
type shelf struct {
	mu   sync.Mutex // guards the fields while a boot sends heartbeats on its own
	seq  uint64     // of the stream's last message
	last uint64     // of the last message on the subject; 0 means none
	data []byte     // nil after the boot has deleted its heartbeat
}

func (s *shelf) store(_ context.Context, _ string, header nats.Header, data []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if expected := header.Get(nats.ExpectedLastSubjSeqHdr); expected != "" && expected != strconv.FormatUint(s.last, 10) {
		return 0, fmt.Errorf("publish: %w", &streamError{code: codeWrongSequence})
	}
	s.seq++
	s.last, s.data = s.seq, data
	return s.seq, nil
}

// runOut removes the key, as the bucket does when the key expires.
func (s *shelf) runOut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.data = 0, nil
}

// holder returns the boot whose heartbeat is stored under the key, or "" if there is none.
func (s *shelf) holder(t *testing.T) string {
	t.Helper()
	if s.data == nil {
		return ""
	}
	var beat wire.Heartbeat
	must(t, wire.Decode(s.data, &beat))
	return beat.BootID
}

// newShelvedBoot returns a boot of instance i1 that stores its heartbeats in s. The test sends each heartbeat.
func newShelvedBoot(t *testing.T, s *shelf) *boot {
	t.Helper()
	e, err := New(Config{NATSURL: "nats://127.0.0.1:1", Group: "g", Instance: "i1", SpoolDir: t.TempDir(), Logger: quietLogger()})
	must(t, err)
	name, spool, left, err := findSpool(e.config.SpoolDir, "g", "i1", e.config.Logger)
	must(t, err)
	b := e.newBoot(name, spool, left)
	b.link.store = s.store
	t.Cleanup(func() {
		b.stop(nil)
		must(t, spool.close())
	})
	return b
}

// A heartbeat that dispatchers would remove is not sent, and the error says why.
func TestLargeHeartbeat(t *testing.T) {
	var bucket shelf
	b := newShelvedBoot(t, &bucket)
	must(t, b.link.sendBeat(t.Context()))
	for i := range 150 {
		b.link.names = append(b.link.names, fmt.Sprintf("%0128d", i))
	}
	seq := bucket.seq
	if err := b.link.sendBeat(t.Context()); !errors.Is(err, errLargeBeat) || bucket.seq != seq {
		t.Errorf("got %v, message %d, want %v and none after %d", err, bucket.seq, errLargeBeat, seq)
	}
}

// TestNameIsHeldByOneBoot has two boots send heartbeats under one name. TestTakenName in internal/sdktest does this
// with a real server.
func TestNameIsHeldByOneBoot(t *testing.T) {
	var bucket shelf
	ctx := t.Context()
	first, second := newShelvedBoot(t, &bucket), newShelvedBoot(t, &bucket)
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
	first.link.takeBack(ctx, true)
	if got := bucket.holder(t); got != second.boot {
		t.Errorf("after the older boot's goodbye, the name belongs to %q, want %q", got, second.boot)
	}
	must(t, second.link.sendBeat(ctx))
	second.link.takeBack(ctx, true)
	if got := bucket.holder(t); got != "" {
		t.Errorf("after its own goodbye, the name still belongs to %q", got)
	}
	bucket.runOut()
	must(t, first.link.sendBeat(ctx))
	if got := bucket.holder(t); got != first.boot {
		t.Errorf("after the end of the other boot, the name belongs to %q, want %q", got, first.boot)
	}
}

// TestHeartbeatWithoutAnswer stores a heartbeat whose acknowledgement is lost. Its boot must not treat it as another
// boot's heartbeat. A boot that has lost the name must not take it back because of such a loss.
func TestHeartbeatWithoutAnswer(t *testing.T) {
	var bucket shelf
	ctx := t.Context()
	first, second := newShelvedBoot(t, &bucket), newShelvedBoot(t, &bucket)
	loseAnswer := func(b *boot) {
		_, err := bucket.store(ctx, b.link.keySubject(), nil, wire.Encode(b.link.heartbeat(1)))
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

// An instance whose heartbeat was refused tries again soon, because the message that refuses it may be removed at once.
func TestTakenNameIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bucket shelf
		b := newShelvedBoot(t, &bucket)
		must(t, b.link.sendBeat(t.Context()))
		bucket.seq++
		bucket.last = bucket.seq // a message of another client
		time.AfterFunc(takenAgain/2, bucket.runOut)
		ctx, cancel := context.WithTimeout(t.Context(), wire.HeartbeatEvery/2)
		defer cancel()
		b.link.beat(ctx)
		if bucket.holder(t) != b.boot || bucket.last == 0 {
			t.Error("the next heartbeat is not stored before its usual time")
		}
		if b.link.silent.Load() {
			t.Error("the instance is still silent")
		}
	})
}

// Another client writes the key all the time. After a dispatcher has said so, the instance overwrites these messages, but never for longer
// than a lease.
func TestOverwritesWhatIsNoHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bucket shelf
		b := newShelvedBoot(t, &bucket)
		must(t, b.link.sendBeat(t.Context()))
		disturb := func() {
			bucket.seq++
			bucket.last, bucket.data = bucket.seq, nil
		}
		tell := func(boot string) {
			b.link.takeControl(&nats.Msg{Data: wire.Encode(wire.Control{V: wire.Version, Op: wire.OpOverwrite, BootID: boot})})
		}
		disturb()
		tell("another")
		if err := b.link.sendBeat(t.Context()); !errors.Is(err, errNameTaken) || !b.link.silent.Load() {
			t.Fatalf("what another boot is notified of: %v, silent %t", err, b.link.silent.Load())
		}
		tell(b.boot)
		for range 3 {
			disturb()
			must(t, b.link.sendBeat(t.Context()))
			if bucket.holder(t) != b.boot || b.link.silent.Load() || !b.link.hold.contested {
				t.Errorf("held by %q, silent %t, contested %t", bucket.holder(t), b.link.silent.Load(), b.link.hold.contested)
			}
		}
		must(t, b.link.sendBeat(t.Context()))
		if b.link.hold.contested {
			t.Error("still contested")
		}
		time.Sleep(wire.LeaseTTL + time.Second)
		disturb()
		if err := b.link.sendBeat(t.Context()); !errors.Is(err, errNameTaken) {
			t.Errorf("long after it received the request: %v", err)
		}
	})
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
		t.Errorf("while the lost heartbeat may still be stored: %v", got)
	}
	if got := h.expectations(instant{mono: wire.LeaseTTL + 1}); len(got) != 2 {
		t.Errorf("after it has expired: %v", got)
	}
	// A stream without a quorum stores it only when it has a leader again.
	h.note(instant{mono: 5 * wire.LeaseTTL}, 0, nats.ErrNoResponders)
	if got := h.expectations(instant{mono: 6 * wire.LeaseTTL}); len(got) != 3 {
		t.Errorf("after an outage of the stream: %v", got)
	}
}
