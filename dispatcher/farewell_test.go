package dispatcher

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

// goodbye ends the instance in order, as an executor whose attempts are all settled does. boot is the boot that the message names.
func (p *puppet) goodbye(boot string) {
	p.w.t.Helper()
	p.leave()
	msg := nats.NewMsg(wire.InstanceSubject(wire.InstanceKey(p.group, p.name)))
	msg.Header.Set("KV-Operation", "DEL")
	msg.Data = wire.Encode(wire.Goodbye{V: wire.Version, SettledBoot: boot})
	if _, err := p.w.js.PublishMsg(p.w.t.Context(), msg); err != nil {
		p.w.t.Fatal(err)
	}
}

// An instance stops in order. An attempt that was bound to it, and whose offer never arrived, is routed again as the same attempt. An
// attempt that is recorded as running, because the database has lost its end, is left to the verdict.
func TestGoodbyeRoutesAgain(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	running := w.trigger(w.job("running"))
	a.got(running, 1)
	w.becomes(running, "running")
	a.set(func() { a.mute, a.deaf = true, true })
	unstarted := w.trigger(w.job("unstarted"))
	a.got(unstarted, 1)
	a.goodbye(a.boot)
	b := w.join("b")
	o := b.got(unstarted, 1)
	b.report(o, wire.Succeeded)
	if r := w.becomes(unstarted, "succeeded"); r.Instance != "b" || r.Attempt != 1 {
		t.Errorf("run %+v", r)
	}
	w.becomes(running, "failed/lost")
	startedOnce(t, a, b)
}

// A goodbye that names another boot frees no attempts.
func TestGoodbyeOfAnotherBoot(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	a.set(func() { a.mute, a.deaf = true, true })
	id := w.trigger(w.job("j"))
	a.got(id, 1)
	a.goodbye("another-boot")
	w.join("b", auto)
	w.becomes(id, "failed/lost")
}
