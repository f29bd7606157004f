package outbound

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

// beatTime bounds the publication of a heartbeat.
const beatTime = 2500 * time.Millisecond

// beat sends heartbeats, at once after a change, but not more than every beatGap.
func (t *tender) beat() {
	const beatGap = 200 * time.Millisecond
	tick := time.NewTicker(wire.HeartbeatEvery)
	defer tick.Stop()
	failing := false
	for {
		err := t.beatOnce()
		if err != nil && !failing && t.ctx.Err() == nil {
			t.log.WarnContext(t.ctx, "a heartbeat was not confirmed, retrying", "err", err)
		}
		failing = err != nil
		select {
		case <-t.ctx.Done():
			return
		case <-t.retired:
			return
		case <-time.After(beatGap):
		}
		select {
		case <-t.ctx.Done():
			return
		case <-t.retired:
			return
		case <-tick.C:
		case <-t.beatSoon:
		}
	}
}

func (t *tender) beatOnce() error {
	now := clock.Now()
	if !t.holds(now) {
		return nil // the fleet logs why
	}
	a := &t.address
	t.mu.Lock()
	load := t.machine.Load()
	h := wire.Heartbeat{
		V: wire.Version, Instance: a.Instance, Group: a.Group, BootID: a.BootID, Beat: t.machine.Beat(now), Handlers: []string{wire.AnyHandler}, Lacks: t.machine.Lacks(now),
		Languages: languagesOf(a.Kind), Capacity: load.Capacity, Running: load.Running, Seq: load.Seq, Draining: load.Draining, Unfit: t.machine.Unfit(),
		Labels: map[string]string{"xxl_job": a.Kind}, Version: protocol.Clip(a.Agent, 100), Host: a.URL, StartedAt: wire.Time{Time: a.CreatedAt},
	}
	if t.presence.Shared(now) {
		h.Labels["shared"] = "true"
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.ctx, beatTime)
	defer cancel()
	return publish(ctx, t.f.Conn, &nats.Msg{Subject: wire.InstanceSubject(wire.InstanceKey(a.Group, a.Instance)), Data: wire.Encode(h)})
}

// goodbye removes the instance's heartbeat after its address was removed.
func (t *tender) goodbye(ctx context.Context) {
	msg := &nats.Msg{
		Subject: wire.InstanceSubject(wire.InstanceKey(t.address.Group, t.address.Instance)), Header: nats.Header{"KV-Operation": {"DEL"}},
		Data: wire.Encode(wire.Goodbye{V: wire.Version, SettledBoot: t.address.BootID}),
	}
	if err := publish(ctx, t.f.Conn, msg); err != nil && ctx.Err() == nil {
		t.log.WarnContext(ctx, "cannot delete the heartbeat, it expires after 10 s", "err", err)
	}
}

// troubled makes the instance take no runs until the executor answers again.
func (t *tender) troubled(reason, message string) {
	u := &wire.Unfit{Reason: reason, Message: protocol.Clip(message, wire.MaxUnfitMessage)}
	t.mu.Lock()
	changed := t.machine.Trouble(u)
	t.mu.Unlock()
	if changed {
		t.log.WarnContext(t.ctx, "an executor cannot be called, it gets no runs until it answers", "url", t.address.URL, "reason", reason, "err", message)
	}
	lifecycle.Signal(t.beatSoon)
}

// publish publishes a message to a stream, and returns after the stream has stored it.
func publish(ctx context.Context, nc *nats.Conn, msg *nats.Msg) error {
	reply, err := nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return fmt.Errorf("publish on %s: %w", msg.Subject, err)
	}
	return acknowledged(reply.Data)
}
