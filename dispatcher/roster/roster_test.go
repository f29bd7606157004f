package roster_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/dispatcher/roster"
	"github.com/belfryhq/belfry/dispatcher/route"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/freeport"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a roster with its own NATS server. The server has no authentication and can be restarted under its clients.
type bench struct {
	*roster.Roster
	t      *testing.T
	dir    string
	server *server.Server
	js     jetstream.JetStream
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	b.serve(freeport.Take(t))
	t.Cleanup(func() { b.stopServer() })
	nc, err := nats.Connect(b.server.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectHandler(func(*nats.Conn) { b.Reconnected() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if b.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	b.ensure()
	b.Roster = roster.New(b.js, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-b.Known()
	return b
}

func (b *bench) serve(port int) {
	b.t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true, JetStreamMaxStore: natsinfra.StorageBytes,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		b.t.Fatal("NATS does not start")
	}
	b.server = s
}

func (b *bench) stopServer() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

func (b *bench) ensure() {
	b.t.Helper()
	b.eventually("the streams are there", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return natsinfra.Ensure(ctx, b.js, 1) == nil
	})
}

// eventually polls until the condition is true.
func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	b.within(patience, what, ok)
}

func (b *bench) within(bound time.Duration, what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(bound)
	for tick := time.NewTicker(5 * time.Millisecond); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			b.t.Fatalf("not within %s: %s", bound, what)
		}
	}
}

func beat(name, boot string, edit ...func(*wire.Heartbeat)) wire.Heartbeat {
	h := wire.Heartbeat{
		V: wire.Version, Instance: name, Group: "g", BootID: boot, Handlers: []string{"echo"}, Languages: []string{"bash"},
		Capacity: 4, Seq: 1, Version: "test", Host: "here", StartedAt: wire.Time{Time: time.Now()},
	}
	for _, e := range edit {
		e(&h)
	}
	return h
}

func (b *bench) put(key string, value []byte) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := b.js.Publish(ctx, "$KV."+wire.BucketInstances+"."+key, value); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) beat(h wire.Heartbeat) {
	b.t.Helper()
	b.put(wire.InstanceKey(h.Group, h.Instance), wire.Encode(h))
}

// room returns the free slots of an instance as a candidate for the handler echo, or -1 if it is not a candidate.
func (b *bench) room(name string) int {
	for _, c := range b.Candidates("g", "echo") {
		if c.Instance == name {
			return c.Room()
		}
	}
	return -1
}

func (b *bench) bootOf(name string) string {
	boot, _ := b.Boot("g", name)
	return boot
}

func (b *bench) woken(what string) {
	b.t.Helper()
	select {
	case <-b.Room():
	case <-time.After(5 * time.Second):
		b.t.Fatalf("%s did not wake anybody", what)
	}
}

func (b *bench) asleep(what string) {
	b.t.Helper()
	select {
	case <-b.Room():
		b.t.Errorf("%s woke somebody", what)
	default:
	}
}

func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if got := b.Instances(""); got == nil || len(got) != 0 {
		t.Errorf("an empty roster lists %#v", got)
	}
	b.beat(beat("b", "1"))
	b.beat(beat("a", "1", func(h *wire.Heartbeat) { h.Handlers = nil }))
	b.beat(beat("c", "1", func(h *wire.Heartbeat) { h.Draining, h.Handlers = true, append(h.Handlers, "only-c") }))
	b.beat(beat("a", "1", func(h *wire.Heartbeat) { h.Group = "other" }))
	b.woken("a join")
	b.eventually("four instances", func() bool { return len(b.Instances("")) == 4 })
	var order string
	for _, i := range b.Instances("") {
		order += i.Group + "." + i.ID + " "
	}
	if order != "g.a g.b g.c other.a " {
		t.Errorf("listed as %s", order)
	}
	if n := len(b.Instances("other")); n != 1 {
		t.Errorf("%d instances of a group of one", n)
	}
	for _, tt := range []struct {
		group, target string
		want          int
	}{{"g", "echo", 1}, {"g", "nope", 0}, {"g", domain.ScriptTarget("bash"), 2}, {"g", domain.ScriptTarget("go"), 0}, {"g", "bash", 0}, {"other", "echo", 1}, {"", "echo", 0}} {
		if got := b.Candidates(tt.group, tt.target); len(got) != tt.want {
			t.Errorf("%d candidates for %s in group %q, want %d", len(got), tt.target, tt.group, tt.want)
		}
	}
	for _, tt := range []struct {
		group, target string
		want          route.Absence
	}{{"g", "nope", route.NoOffer}, {"nope", "echo", route.NoInstance}, {"g", "only-c", route.AllDrain}} {
		if got := b.Absence(tt.group, tt.target); got != tt.want {
			t.Errorf("the absence for %s in group %q is %d, want %d", tt.target, tt.group, got, tt.want)
		}
	}
	// The instance deletes its key at shutdown.
	kv, err := b.js.KeyValue(t.Context(), wire.BucketInstances)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), wire.InstanceKey("g", "b")); err != nil {
		t.Fatal(err)
	}
	b.eventually("b is gone", func() bool { return b.bootOf("b") == "" })
	if _, alive := b.Boot("g", "c"); !alive {
		t.Error("a draining instance is not dead")
	}
}

func TestNewBoot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.beat(beat("a", "1", func(h *wire.Heartbeat) { h.Seq, h.Running = 900, 4 }))
	b.eventually("a is full", func() bool { return b.room("a") == 0 })
	b.woken("a join")
	b.Shun("g", "a", "1", "full", time.Hour)
	b.beat(beat("a", "2"))
	b.eventually("the new boot has room, although the old boot was full", func() bool { return b.bootOf("a") == "2" && b.room("a") == 4 })
	b.woken("a new boot")
	// A load of the old boot has no effect.
	b.Load("g", "a", "1", wire.Load{Capacity: 4, Running: 4, Seq: 1000})
	b.Offered("g", "a", "1", 3)
	b.Shun("g", "a", "1", "full", time.Hour)
	b.Drop("g", "a", "1")
	if n := b.room("a"); n != 4 {
		t.Errorf("the new boot has room %d", n)
	}
	b.Drop("g", "a", "2")
	if n := b.room("a"); n != -1 {
		t.Error("a dropped instance is a candidate")
	}
	b.beat(beat("a", "2"))
	b.eventually("its next heartbeat brings it back", func() bool { return b.room("a") == 4 })
}

func TestLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.beat(beat("a", "1"))
	b.eventually("a joins", func() bool { return b.room("a") == 4 })
	b.woken("a join")
	for _, tt := range []struct {
		name  string
		do    func()
		room  int
		wakes bool
	}{
		{"an offer takes slots", func() { b.Offered("g", "a", "1", 3) }, 1, false},
		{"what is newer counts", func() { b.Load("g", "a", "1", wire.Load{Capacity: 4, Running: 4, Seq: 5}) }, 0, false},
		{"what is older does not", func() { b.Load("g", "a", "1", wire.Load{Capacity: 4, Running: 0, Seq: 4}) }, 0, false},
		{"more room", func() { b.Load("g", "a", "1", wire.Load{Capacity: 4, Running: 2, Seq: 6}) }, 2, true},
		{"less room", func() { b.Load("g", "a", "1", wire.Load{Capacity: 4, Running: 3, Seq: 7}) }, 1, false},
		{"a refusal without a reason", func() { b.Shun("g", "a", "1", "full", time.Hour) }, -1, false},
		{"it is over", func() { b.Shun("g", "a", "1", "full", 0) }, 1, false},
		{"draining", func() { b.Load("g", "a", "1", wire.Load{Capacity: 4, Seq: 8, Draining: true}) }, -1, true},
		{"nobody", func() {
			b.Load("g", "z", "1", wire.Load{Capacity: 4, Seq: 8})
			b.Offered("g", "z", "1", 8)
			b.Shun("g", "z", "1", "full", time.Hour)
			b.Drop("g", "z", "1")
		}, -1, false},
	} {
		tt.do()
		if n := b.room("a"); n != tt.room {
			t.Errorf("%s: room %d, want %d", tt.name, n, tt.room)
		}
		if tt.wakes {
			b.woken(tt.name)
		} else {
			b.asleep(tt.name)
		}
	}
	// An older heartbeat of the same boot does not overwrite the load of a later result.
	b.beat(beat("a", "1", func(h *wire.Heartbeat) { h.Seq, h.Running = 7, 1 }))
	b.beat(beat("later", "1"))
	b.eventually("the one after it is read", func() bool { return b.room("later") == 4 })
	if n := b.room("a"); n != -1 {
		t.Errorf("room %d after an old heartbeat", n)
	}
}

// An instance that reports a problem gets no offers. When the trouble is over, waiting runs are routed again.
func TestUnfit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.beat(beat("a", "1"))
	b.eventually("a joins", func() bool { return b.room("a") == 4 })
	b.woken("a join")
	b.beat(beat("a", "1", func(h *wire.Heartbeat) {
		h.Unfit = &wire.Unfit{Reason: wire.UnfitOutOfFiles, Message: "60 of 64 file descriptors are open"}
	}))
	b.eventually("a is no candidate", func() bool { return b.room("a") == -1 })
	b.asleep("a trouble")
	if got := b.Absence("g", "echo"); got != route.AllUnfit {
		t.Errorf("the absence is %d", got)
	}
	if _, alive := b.Boot("g", "a"); !alive {
		t.Error("an unfit instance is not dead")
	}
	why := b.Instances("g")[0].NotOffered
	if why == nil || why.Code != explain.InstanceOutOfFiles || !strings.Contains(why.Text, "60 of 64") {
		t.Errorf("not offered because %+v", why)
	}
	b.beat(beat("a", "1"))
	b.eventually("a is a candidate again", func() bool { return b.room("a") == 4 })
	b.woken("the end of a trouble")
	if why := b.Instances("g")[0].NotOffered; why != nil {
		t.Errorf("a fit instance is not offered because %+v", why)
	}
}

// Impossible numbers are limited, so that sums over a group do not overflow.
func TestAbsurdLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.beat(beat("a", "1", func(h *wire.Heartbeat) { h.Capacity = math.MaxInt }))
	b.beat(beat("b", "1", func(h *wire.Heartbeat) { h.Capacity, h.Running = math.MaxInt, math.MinInt }))
	b.beat(beat("c", "1", func(h *wire.Heartbeat) { h.Capacity = -1 }))
	b.eventually("all have joined", func() bool { return len(b.Instances("g")) == 3 })
	check := func() {
		t.Helper()
		sum := 0
		for _, c := range b.Candidates("g", "echo") {
			if sum += c.Room(); c.Room() > 1<<30 || sum < 0 || c.Running < 0 || c.Capacity < 0 {
				t.Errorf("candidate %+v", c)
			}
		}
	}
	check()
	b.Load("g", "a", "1", wire.Load{Capacity: math.MaxInt, Running: math.MinInt, Seq: 9})
	check()
}

func TestValuesThatAreNoHeartbeats(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	good := beat("a", "1")
	b.beat(good)
	b.eventually("a joins", func() bool { return b.room("a") == 4 })
	malformed := []string{
		"", "garbage", "[]", "null", `{"v":1}`,
		`{"stream":"KV_belfry_instances","seq":12}`,     // JetStream's acknowledgement of a publish
		string(wire.Encode(beat("b", "9"))),             // another instance's
		string(wire.Encode(beat("a", "9", group("h")))), // another group's
		string(wire.Encode(beat("a", ""))),              // no boot
		string(wire.Encode(beat("a", "9\x00"))),         // Postgres refuses it
		string(wire.Encode(beat("a", "9", func(h *wire.Heartbeat) { h.V = 2 }))),
	}
	for _, value := range malformed {
		b.put("g.a", []byte(value))
	}
	b.put("g.x.y", wire.Encode(beat("x.y", "1")))
	b.put("g", wire.Encode(beat("", "1")))
	b.beat(beat("z", "1"))
	b.eventually("the one after them is read", func() bool { return b.room("z") == 4 })
	if boot := b.bootOf("a"); boot != "1" || len(b.Instances("")) != 2 {
		t.Errorf("boot %q, instances %+v", boot, b.Instances(""))
	}
	var reported []string
	for range len(b.Malformed()) {
		s := <-b.Malformed()
		// The bucket keeps only the newest value of a key, so the value of a that is seen first may vary.
		if s.Key == "g.a" && !slices.Contains(malformed, string(s.Value)) {
			t.Errorf("reported %q", s.Value)
		}
		reported = append(reported, s.Key)
		if s.Reason == nil {
			t.Errorf("%s: no reason", s.Key)
		}
	}
	if want := []string{"g.a", "g.x.y", "g"}; !slices.Equal(reported, want) {
		t.Errorf("reported the keys %q, want each once: %q", reported, want)
	}
}

func group(name string) func(*wire.Heartbeat) { return func(h *wire.Heartbeat) { h.Group = name } }

// An instance that sends no heartbeat for LeaseTTL is removed, although the bucket does not notify watchers of the expiry. An
// instance with heartbeats stays.
func TestTimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begin := time.Now()
	b.beat(beat("silent", "1"))
	b.beat(beat("alive", "1"))
	b.eventually("both join", func() bool { return b.room("silent") == 4 && b.room("alive") == 4 })
	next := time.Now().Add(wire.HeartbeatEvery)
	b.within(patience, "the silent one is gone", func() bool {
		if time.Now().After(next) {
			next = time.Now().Add(wire.HeartbeatEvery)
			b.beat(beat("alive", "1"))
		}
		return b.room("silent") == -1
	})
	if took := time.Since(begin); took < wire.LeaseTTL {
		t.Errorf("gone after %s", took)
	}
	if b.room("alive") != 4 || len(b.Instances("g")) != 1 || b.bootOf("silent") != "" {
		t.Errorf("left: %+v", b.Instances("g"))
	}
}

// The server returns with empty storage. The bucket is recreated, and the roster follows it.
func TestWipedServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 20 { // sequence numbers that the new bucket does not reach soon
		b.beat(beat("a", "1", func(h *wire.Heartbeat) { h.Seq = int64(i) }))
	}
	b.eventually("a joins", func() bool { return b.room("a") == 4 })
	port := b.server.Addr().(*net.TCPAddr).Port
	b.stopServer()
	wipe(t, b.dir)
	b.serve(port)
	b.ensure()
	b.beat(beat("b", fmt.Sprint(2)))
	b.eventually("b joins", func() bool { return b.room("b") == 4 })
}

func wipe(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, "jetstream")); err != nil {
		t.Fatal(err)
	}
}
