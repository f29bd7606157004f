package roster_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/belfryhq/belfry/dispatcher/roster"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/embednats"
	"github.com/belfryhq/belfry/internal/natsauth"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

const patience = 5 * time.Minute

// maxInstances are the limits of groups.
type maxInstances map[string]int

func (m maxInstances) GroupLimits(_ context.Context, names []string) (map[string]domain.GroupLimits, error) {
	limits := make(map[string]domain.GroupLimits)
	for _, name := range names {
		l := domain.DefaultGroupLimits()
		if n, ok := m[name]; ok {
			l.MaxInstances, l.MaxConnections = n, 2*n
		}
		limits[name] = l
	}
	return limits, nil
}

// started runs a function until the test ends.
func started(t *testing.T, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// closures records the calls of GuardConfig.Closed.
type closures struct {
	mu    sync.Mutex
	names map[string]map[string]bool
}

func (c *closures) closed(group string, instances []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		c.names = make(map[string]map[string]bool)
	}
	if c.names[group] == nil {
		c.names[group] = make(map[string]bool)
	}
	for _, name := range instances {
		c.names[group][name] = true
	}
}

func (c *closures) of(group string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.names[group]))
}

// stored returns the sequence of a key's newest message, or 0.
func stored(t *testing.T, js jetstream.JetStream, key string) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := js.Stream(ctx, "KV_"+wire.BucketInstances)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetLastMsgForSubject(ctx, wire.InstanceSubject(key))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return msg.Sequence
}

func (b *bench) guard(limits roster.Limits, closed func(string, []string), log *slog.Logger) *prometheus.Registry {
	b.t.Helper()
	registry := prometheus.NewRegistry()
	started(b.t, func(ctx context.Context) { b.KeepLimits(ctx, limits) })
	g := roster.NewGuard(roster.GuardConfig{Roster: b.Roster, JetStream: b.js, Closed: closed, Log: log, Registry: registry})
	started(b.t, g.Run)
	return registry
}

// removals returns the counter of removed heartbeats.
func removals(t *testing.T, registry *prometheus.Registry, group, reason string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "belfry_heartbeats_removed_total" && labels["group"] == group && labels["reason"] == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// An executor of another group can direct acknowledgements to an instance's key, and the bucket then refuses the instance's
// heartbeats. The guard removes them at once, long before they expire.
func TestGuardRemovesAcknowledgements(t *testing.T) {
	b := newBench(t)
	const limit = 3
	var c closures
	registry := b.guard(maxInstances{"g": limit}, c.closed, slog.New(slog.DiscardHandler))
	direct := func(key string) {
		t.Helper()
		msg := &nats.Msg{Subject: wire.ResultSubject("other"), Reply: wire.InstanceSubject(key), Data: []byte("{}")}
		if err := b.js.Conn().PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	b.beat(beat("a", "boot"))
	b.within(patience, "the instance is there", func() bool { return b.Belongs("g", "a") })
	for n := range 3 {
		direct("g.a")
		// The instance's next heartbeat has the condition that its key does not exist.
		b.within(patience, "a heartbeat is stored", func() bool {
			if removals(t, registry, "g", "misdirected") <= float64(n) {
				return false
			}
			_, err := b.js.Publish(t.Context(), wire.InstanceSubject("g.a"), wire.Encode(beat("a", "boot")), jetstream.WithExpectLastSequencePerSubject(0))
			return err == nil
		})
	}
	// Acknowledgements do not count as instances of the group.
	for i := range 10 * limit {
		direct(fmt.Sprint("g.x", i))
	}
	b.beat(beat("z", "boot"))
	b.within(patience, "a new instance is there", func() bool { return b.Belongs("g", "z") })
	if names := c.of("g"); len(names) > 0 || !b.Belongs("g", "a") {
		t.Errorf("removed %q", names)
	}
}

// A group keeps its oldest instances. The newest ones beyond its limit are removed however often they send heartbeats, and
// they never get an offer. Other groups keep all their instances.
func TestGuardRemovesTheNewest(t *testing.T) {
	b := newBench(t)
	const limit, more = 10, 30
	var c closures
	registry := b.guard(maxInstances{"g": limit}, c.closed, slog.New(slog.DiscardHandler))
	all := func(group, prefix string, n int) {
		for i := range n {
			h := beat(fmt.Sprint(prefix, i), "boot")
			h.Group = group
			b.beat(h)
		}
	}
	all("g", "old", limit)
	all("other", "i", limit+more)
	b.eventually("the first instances are there", func() bool { return len(b.Instances("g")) == limit && len(b.Instances("other")) == limit+more })
	b.within(patience, "all new instances were removed", func() bool {
		all("g", "new", more)
		for i := range limit {
			name := fmt.Sprint("old", i)
			b.beat(beat(name, "boot"))
			if stored(t, b.js, "g."+name) == 0 {
				t.Fatalf("the heartbeat of %s was removed", name)
			}
		}
		all("other", "i", limit+more)
		return len(c.of("g")) == more
	})
	for _, name := range c.of("g") {
		if !strings.HasPrefix(name, "new") {
			t.Errorf("%s was removed", name)
		}
	}
	if got := removals(t, registry, "g", "max_instances"); got < more {
		t.Errorf("the metric counts %v removals", got)
	}
	if got := c.of("other"); len(got) > 0 {
		t.Errorf("of another group, %v were removed", got)
	}
	all("g", "old", limit)
	b.eventually("the roster has the first instances alone", func() bool {
		var names []string
		for _, i := range b.Instances("g") {
			if strings.HasPrefix(i.ID, "new") {
				t.Fatalf("the roster has %s", i.ID)
			}
			names = append(names, i.ID)
		}
		return len(names) == limit
	})
}

// A heartbeat of over 16 KiB is removed. The warning names its group and instance.
func TestGuardRemovesLargeHeartbeats(t *testing.T) {
	b := newBench(t)
	var log lockedBuffer
	registry := b.guard(maxInstances{}, nil, slog.New(slog.NewJSONHandler(&log, nil)))
	large := beat("large", "boot")
	large.Labels = map[string]string{"x": strings.Repeat("x", wire.MaxHeartbeat)}
	full := beat("full", "boot")
	full.Labels = map[string]string{"x": strings.Repeat("x", wire.MaxHeartbeat-1000)}
	b.within(patience, "the large heartbeat is removed", func() bool {
		b.beat(full)
		if stored(t, b.js, "g.full") == 0 {
			t.Fatal("a heartbeat within the limit was removed")
		}
		b.beat(large)
		return removals(t, registry, "g", "too_large") > 0
	})
	b.eventually("the key is gone", func() bool { return stored(t, b.js, "g.large") == 0 })
	if _, alive := b.Boot("g", "large"); alive {
		t.Error("the instance is alive")
	}
	if text := log.String(); !strings.Contains(text, `"group":"g"`) || !strings.Contains(text, `"instance":"large"`) {
		t.Errorf("the log has %s", text)
	}
	if n := testutil.CollectAndCount(registry); n != 1 {
		t.Errorf("%d series, want that of the group", n)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// twoGroups knows the tokens of groups a and b.
type twoGroups struct{ maxInstances }

func (twoGroups) GroupOfToken(_ context.Context, token string) (string, time.Duration, error) {
	if token != "token-a" && token != "token-b" {
		return "", 0, domain.NewError(domain.Forbidden, "no such token")
	}
	return token[len("token-"):], 0, nil
}

func (twoGroups) TokensOfGroups(_ context.Context, groups []string) (map[string][][]byte, error) {
	tokens := make(map[string][][]byte)
	for _, group := range groups {
		digest := sha256.Sum256([]byte("token-" + group))
		tokens[group] = [][]byte{digest[:]}
	}
	return tokens, nil
}

func (twoGroups) LiveSenders(context.Context, []int64) ([]int64, error) { return nil, nil }

// A hostile client with the token of group a logs in under 3,000 names and sends heartbeats of up to 64 KiB. The executor
// of group b is not affected: each of its heartbeats is stored, and its instance stays in the roster.
func TestHostileToken(t *testing.T) {
	ctx := context.Background()
	srv, err := embednats.Start(ctx, embednats.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	connect := func(options ...nats.Option) *nats.Conn {
		nc, err := nats.Connect(srv.URL(), append(options, nats.Timeout(patience))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	system := connect(srv.SystemOptions()...)
	b := &bench{t: t}
	if b.js, err = jetstream.New(system); err != nil {
		t.Fatal(err)
	}
	b.ensure()
	b.Roster = roster.New(b.js, slog.New(slog.DiscardHandler))
	started(t, func(ctx context.Context) { _ = b.Run(ctx) })
	<-b.Known()

	const limit = 50
	known := twoGroups{maxInstances{"a": limit}}
	sessions := natsauth.NewSessions(natsauth.SessionsConfig{System: connect(srv.MonitorOptions()...), Directory: known})
	started(t, func(ctx context.Context) { _ = sessions.Run(ctx) })
	responder, err := natsauth.New(natsauth.Config{
		Verifier: known, Limits: known, Directory: known, Sessions: sessions, Alive: b.Belongs, Issuer: srv.Issuer(),
	})
	if err != nil {
		t.Fatal(err)
	}
	started(t, func(ctx context.Context) { _ = responder.Run(ctx, system) })
	<-responder.Ready()
	var c closures
	registry := b.guard(known, func(group string, names []string) {
		c.closed(group, names)
		if err := natsauth.AnnounceClosed(system, group, names); err != nil {
			t.Error(err)
		}
	}, slog.New(slog.DiscardHandler))

	// The executor of group b, and one of group a that was there before.
	executor := func(group string) func() {
		nc := connect(nats.Token("token-"+group), nats.Name(natsauth.ClientName(group, "i1")), nats.CustomInboxPrefix(natsauth.InboxPrefix(group)))
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		h := beat("i1", "boot", func(h *wire.Heartbeat) { h.Group = group })
		return func() {
			t.Helper()
			sent := time.Now()
			ack, err := js.Publish(ctx, wire.InstanceSubject(group+".i1"), wire.Encode(h))
			if err != nil {
				t.Fatalf("the heartbeat of group %s is not stored: %v", group, err)
			}
			// On a machine that is frozen for 10 s, it can also expire.
			if got := stored(t, b.js, group+".i1"); got != ack.Sequence && time.Since(sent) < natsinfra.InstanceTTL-time.Second {
				t.Fatalf("the heartbeat of group %s is message %d, the bucket has %d", group, ack.Sequence, got)
			}
			if boot, alive := b.Boot(group, "i1"); b.CaughtUp(ack.Sequence) && (!alive || boot != "boot") && time.Since(sent) < natsinfra.InstanceTTL-time.Second {
				t.Fatalf("the instance of group %s is not in the roster", group)
			}
		}
	}
	beatA, beatB := executor("a"), executor("b")
	beatA()
	beatB()
	b.within(patience, "the instances are there", func() bool { return b.Belongs("a", "i1") && b.Belongs("b", "i1") })

	const names, clients = 3000, 8
	var next atomic.Int64
	var flood sync.WaitGroup
	for range clients {
		flood.Go(func() {
			var open []*nats.Conn
			for n := next.Add(1); n <= names; n = next.Add(1) {
				name := fmt.Sprint("hostile-", n)
				nc, err := nats.Connect(srv.URL(), nats.Token("token-a"), nats.Name(natsauth.ClientName("a", name)), nats.NoReconnect(), nats.Timeout(patience))
				if err != nil {
					continue // refused
				}
				h := beat(name, "boot", func(h *wire.Heartbeat) { h.Group = "a" })
				if n%2 == 0 {
					h.Labels = map[string]string{"x": strings.Repeat("x", int(16+n%48)<<10)}
				}
				for range 3 {
					_ = nc.Publish(wire.InstanceSubject("a."+name), wire.Encode(h))
				}
				_ = nc.Flush()
				open = append(open, nc)
			}
			for _, nc := range open {
				nc.Close()
			}
		})
	}
	ended := make(chan struct{})
	go func() { flood.Wait(); close(ended) }()
	b.within(patience, "the flood has ended, and the newest instances were removed", func() bool {
		beatA()
		beatB()
		select {
		case <-ended:
			return len(c.of("a")) > 0 && removals(t, registry, "a", "too_large") > 0
		default:
			return false
		}
	})
	if slices.Contains(c.of("a"), "i1") || len(c.of("b")) > 0 {
		t.Errorf("removed: %v of group a, %v of group b", c.of("a"), c.of("b"))
	}
	if got := responder.Stats(); got.Limited == 0 {
		t.Errorf("no log-in was refused by a limit: %+v", got)
	}
	// The bucket has room for more groups like this one.
	stream, err := b.js.Stream(ctx, "KV_"+wire.BucketInstances)
	if err != nil {
		t.Fatal(err)
	}
	if info := stream.CachedInfo(); int64(info.State.Bytes) > info.Config.MaxBytes/4 {
		t.Errorf("the bucket holds %d of %d bytes", info.State.Bytes, info.Config.MaxBytes)
	}
}
