//go:build unix

package e2e

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/natsauth"
)

// With nats.go and the token of group A, a program cannot reach anything of group B while B is working: offers, results, heartbeats,
// logs, inboxes, and the streams with them. NATS refuses A's attempts, A receives none of B's messages, and A's messages do not
// change B's runs.
func TestScenarioTokenReachesItsGroupAlone(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-group-b"
	c := newCluster(t) // its group is B
	made, err := c.api.CreateGroup(t.Context(), "intruder", "")
	if err != nil {
		t.Fatal(err)
	}
	c.dispatcher()
	c.scheduler()
	c.executor("i1")
	in := c.intrude(made.Name, made.Token)

	const prefix, kv = wire.Prefix, "$KV." + wire.BucketInstances
	for _, subject := range []string{
		">", "*.>", prefix + ">", prefix + "trigger.>", prefix + "trigger.*.>", wire.TriggerSubject(group, "i1"), prefix + "control.*.*",
		wire.ControlSubject(group, "i1"), prefix + "result.>", wire.ResultSubject(group), wire.LogSubject(group), wire.RunSubject(group),
		kv + ".>", kv + "." + group + ".*", "_INBOX.>", natsauth.InboxPrefix(group) + ".>", "$JS.API.>", "$JS.ACK.>", "$JS.EVENT.>", "$SYS.>",
	} {
		in.refuses("to subscribe to "+subject, func(nc *nats.Conn) error {
			_, err := nc.Subscribe(subject, in.overhear)
			return err
		})
	}
	// B runs a long handler while A tries to act for it.
	param := `["sh", "-c", "echo ` + secret + `; exec sleep 300"]`
	ids, err := c.api.TriggerJob(t.Context(), c.job("secret", handler("command", "")).ID, client.Trigger{Param: &param})
	if err != nil {
		t.Fatal(err)
	}
	run := c.reaches(ids[0], patience, "runs", func(r domain.Run) bool { return r.State == domain.Running })
	boot := queryOne[string](t, c.db, `SELECT boot_id FROM runs_live WHERE id = $1`, run.ID)
	now := wire.Time{Time: time.Now()}
	forged := wire.Encode(wire.Results{V: wire.Version, Results: []wire.Result{{
		Instance: "i1", BootID: boot, RunID: run.ID.String(), Attempt: 1, Bind: 1, Outcome: wire.Succeeded, StartedAt: now, FinishedAt: now,
	}}})
	beat := wire.Encode(wire.Heartbeat{V: wire.Version, Instance: "i1", Group: group, BootID: "forged", Handlers: []string{"command"}, Capacity: 1})
	lines := wire.Encode(wire.Logs{V: wire.Version, Instance: "i1", RunID: run.ID.String(), Attempt: 1, Lines: []wire.LogLine{{N: 1, At: now, Text: "forged"}}})
	kill := wire.Encode(wire.Control{V: wire.Version, Op: wire.OpKill, Runs: []wire.Ref{{RunID: run.ID.String(), Attempt: 1}}})
	offer := wire.Encode(wire.Offers{V: wire.Version, BootID: boot})
	const bucket, results = "KV_" + wire.BucketInstances, wire.StreamResults
	for subject, data := range map[string][]byte{
		wire.ResultSubject(group): forged, wire.LogSubject(group): lines, kv + "." + group + ".i1": beat,
		wire.TriggerSubject(group, "i1"): offer, wire.ControlSubject(group, "i1"): kill, wire.RunSubject(group): nil,
		natsauth.InboxPrefix(group) + ".x": nil, "_INBOX.x": nil,
		"$JS.API.STREAM.LIST": nil, "$JS.API.STREAM.INFO." + bucket: nil, "$JS.API.STREAM.PURGE." + results: nil,
		"$JS.API.STREAM.DELETE." + bucket: nil, "$JS.API.STREAM.MSG.GET." + results: []byte(`{"seq":1}`),
		"$JS.API.DIRECT.GET." + bucket + "." + kv + "." + group + ".i1": nil,
		"$JS.API.CONSUMER.CREATE." + results + ".c":                     []byte(`{}`),
		"$JS.API.CONSUMER.MSG.NEXT." + results + ".c":                   nil, "$JS.ACK." + results + ".c.1.1.1.1.1": nil,
	} {
		in.refuses("to publish on "+subject, func(nc *nats.Conn) error { return nc.Publish(subject, data) })
	}
	// A may publish results of its own group. Such a result settles no run of B and reveals nothing about it, for any
	// reply subject.
	nc := in.connect()
	if _, err := nc.Request(wire.ResultSubject("intruder"), forged, patience); err != nil {
		t.Errorf("publish a result of group A: %v", err)
	}
	eventually(t, patience, "the result is a dead letter", func() bool {
		js := c.jetStream()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s, err := js.Stream(ctx, wire.StreamDead)
		return err == nil && s.CachedInfo().State.Msgs > 0
	})
	if r := c.run(run.ID); r.State != domain.Running || r.Attempt != 1 || !c.listed("i1") {
		t.Errorf("after the attempts to interfere, the run is %s/%s at attempt %d", r.State, r.Reason, r.Attempt)
	}
	if err := c.api.KillRun(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	c.finishes(run.ID, patience)
	page, err := c.api.Log(t.Context(), run.ID, 1, 10)
	if err != nil || len(page.Lines) == 0 || page.Lines[0].Text != secret {
		t.Errorf("the log is %+v (%v)", page, err)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.received) > 0 {
		t.Errorf("the other group received %q", in.received)
	}
}

// intruder uses NATS directly, with a group's token.
type intruder struct {
	c     *cluster
	group string
	token string

	mu       sync.Mutex
	received []string // guarded by mu
}

func (c *cluster) intrude(name, token string) *intruder {
	return &intruder{c: c, group: name, token: token}
}

// connect opens a separate connection for each attempt, so that a refusal belongs to one attempt.
func (in *intruder) connect(more ...nats.Option) *nats.Conn {
	in.c.t.Helper()
	nc, err := nats.Connect(in.c.natsFor, append([]nats.Option{nats.Timeout(patience), nats.Token(in.token), nats.Name(natsauth.ClientName(in.group, "i1")), nats.CustomInboxPrefix(natsauth.InboxPrefix(in.group))}, more...)...)
	if err != nil {
		in.c.t.Fatal(err)
	}
	in.c.t.Cleanup(nc.Close)
	return nc
}

func (in *intruder) overhear(m *nats.Msg) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.received = append(in.received, m.Subject)
}

// refuses checks that the server answers try with a violation of permissions. The connection stays open, so that a wrongly granted
// subscription would receive later messages.
func (in *intruder) refuses(what string, try func(*nats.Conn) error) {
	t := in.c.t
	t.Helper()
	violated := make(chan error, 16)
	nc := in.connect(nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case violated <- err:
		default:
		}
	}))
	if err := try(nc); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	select {
	case err := <-violated:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(patience): // the refusal arrives before the answer to the flush; only its handler may be late
		t.Errorf("it was not refused %s", what)
	}
}
