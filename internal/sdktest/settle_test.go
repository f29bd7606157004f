package sdktest

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/wire"
)

// published returns how often the result of a run was published. The caller holds the mutex, as in await.
func (w *world) published(runID string) (n int) {
	for _, m := range w.results {
		for _, r := range m.Results {
			if r.RunID == runID {
				n++
			}
		}
	}
	return n
}

// heartbeat returns the instance's heartbeat in the bucket.
func (i *instance) heartbeat() (h wire.Heartbeat, err error) {
	kv, err := i.w.js.KeyValue(context.Background(), wire.BucketInstances)
	if err != nil {
		return h, err
	}
	e, err := kv.Get(context.Background(), wire.InstanceKey("g", i.name))
	if err != nil {
		return h, err
	}
	return h, wire.Decode(e.Value(), &h)
}

func (i *instance) settled(runIDs ...string) {
	i.w.t.Helper()
	var refs []wire.Ref
	for _, id := range runIDs {
		refs = append(refs, wire.Ref{RunID: id, Attempt: 1, BootID: i.boot})
	}
	must(i.w.t, i.w.nc.Publish(wire.ControlSubject("g", i.name), wire.EncodeSettled(refs)))
}

// stopping stops the executor and waits until it has published the result of a run again. The executor must not end before.
func (i *instance) stopping(runID string) {
	i.w.t.Helper()
	i.w.mu.Lock()
	before := i.w.published(runID)
	i.w.mu.Unlock()
	var ended atomic.Bool
	i.stop()
	go func() {
		select {
		case err := <-i.done:
			i.done <- err // has room for it
			ended.Store(true)
			i.w.wake()
		case <-i.w.t.Context().Done():
		}
	}()
	i.w.await("another publication of the result", func() bool { return ended.Load() || i.w.published(runID) > before })
	if ended.Load() {
		i.w.t.Fatal("Run returned before the result was settled")
	}
}

// succeed is a handler that returns at once.
func succeed() map[string]executor.HandlerFunc {
	return map[string]executor.HandlerFunc{"h": func(context.Context, executor.Run) error { return nil }}
}

// goodbye returns the body of the message that deleted the instance's key, or the zero value if it has none.
func (w *world) goodbye() (bye wire.Goodbye) {
	w.t.Helper()
	s, err := w.js.Stream(w.t.Context(), "KV_"+wire.BucketInstances)
	must(w.t, err)
	last, err := s.GetLastMsgForSubject(w.t.Context(), wire.InstanceSubject(wire.InstanceKey("g", "i1")))
	must(w.t, err)
	if last.Header.Get("KV-Operation") != "DEL" {
		w.t.Fatalf("the key holds %s", last.Data)
	}
	if len(last.Data) > 0 {
		must(w.t, wire.Decode(last.Data, &bye))
	}
	return bye
}

// TestStopWaitsForSettled stops an executor whose results are acknowledged by the stream and not settled. It repeats them and
// keeps its heartbeat until they are settled, and only then says goodbye.
func TestStopWaitsForSettled(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.SettleTimeout = time.Hour
	i := w.start(c, succeed())
	wantVerdict(t, i.offer(newOffer("r1", "h")), wire.Accepted, "")
	wantVerdict(t, i.offer(newOffer("r2", "h")), wire.Accepted, "")
	w.result("r1")
	w.result("r2")
	i.settled("r2")
	i.stopping("r1")
	h, err := i.heartbeat()
	if err != nil || h.BootID != i.boot || !h.Draining {
		t.Errorf("while the executor waits, its heartbeat is %s, %v", asJSON(h), err)
	}
	if st := i.status("r1"); st.Status != wire.StatusDone || st.Result == nil {
		t.Errorf("while the executor waits, it answers %s", asJSON(st))
	}
	i.settled("r1")
	must(t, <-i.done)
	if _, err := i.heartbeat(); err == nil {
		t.Error("the executor ended without a goodbye")
	}
	if bye := w.goodbye(); bye.SettledBoot != i.boot {
		t.Errorf("the goodbye is %s, want boot %s", asJSON(bye), i.boot)
	}
	if n := i.e.Status().Unsettled; n != 0 {
		t.Errorf("%d results are left", n)
	}
}

// TestStopIsBounded: an executor whose results are not settled ends, says goodbye, and keeps the results in its spool.
func TestStopIsBounded(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.SettleTimeout = 300 * time.Millisecond
	var log lines
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	i := w.start(c, succeed())
	wantVerdict(t, i.offer(newOffer("r1", "h")), wire.Accepted, "")
	w.result("r1")
	must(t, i.end())
	if _, err := i.heartbeat(); err == nil {
		t.Error("the executor ended without a goodbye")
	}
	if bye := w.goodbye(); bye != (wire.Goodbye{}) {
		t.Errorf("the goodbye says %s, although a result is not settled", asJSON(bye))
	}
	if text := log.text(); !strings.Contains(text, "not all results are settled, they stay in the spool") || !strings.Contains(text, "results=1") {
		t.Errorf("the log is\n%s", text)
	}
	again := w.start(c, nil)
	w.await("the result of the process before", func() bool { return w.published("r1") > 1 })
	must(t, again.end())
}

// TestStopWithoutNATS: an executor that has lost NATS does not wait for settled results, even if its settle timeout is long.
func TestStopWithoutNATS(t *testing.T) {
	for name, during := range map[string]bool{"before the stop": false, "during the wait": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.config()
			c.SettleTimeout = time.Hour
			i := w.start(c, succeed())
			wantVerdict(t, i.offer(newOffer("r1", "h")), wire.Accepted, "")
			w.result("r1")
			if during {
				i.stopping("r1")
			}
			w.stopServer()
			must(t, i.end())
			w.startServer()
			i = w.start(c, nil)
			w.await("the result of the process before", func() bool { return w.published("r1") > 1 })
			i.stop()
			must(t, w.nc.Publish(wire.ControlSubject("g", i.name), wire.EncodeSettled([]wire.Ref{{RunID: "r1", Attempt: 1}})))
			must(t, <-i.done)
		})
	}
}

// TestStopWhileTheStreamRefuses: while the stream is full, a stopping executor keeps its results and publishes them again.
func TestStopWhileTheStreamRefuses(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.SettleTimeout = time.Hour
	full := jetstream.StreamConfig{Name: wire.StreamResults, Subjects: []string{"belfry.v1.result.*"}, Storage: jetstream.FileStorage,
		MaxMsgs: 1, Discard: jetstream.DiscardNew}
	_, err := w.js.UpdateStream(t.Context(), full)
	must(t, err)
	_, err = w.js.Publish(t.Context(), "belfry.v1.result.other", wire.Encode(wire.Results{V: wire.Version}))
	must(t, err)
	i := w.start(c, succeed())
	wantVerdict(t, i.offer(newOffer("r1", "h")), wire.Accepted, "")
	w.result("r1") // seen by the subscription, and refused by the stream
	for range 7 {  // one a second, so the last one is after flushTimeout
		i.stopping("r1")
	}
	full.MaxMsgs = -1
	_, err = w.js.UpdateStream(t.Context(), full)
	must(t, err)
	i.settled("r1")
	must(t, <-i.done)
}

// lines collects a log.
type lines struct {
	mu   sync.Mutex
	data []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, p...)
	return len(p), nil
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.data)
}
