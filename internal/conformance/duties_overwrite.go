package conformance

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
)

func overwriteDuties() []duty {
	return []duty{
		{id: "overwrite", title: "a value that is no heartbeat is overwritten only after op overwrite for this boot, for 10 s", section: secHeartbeat,
			optional: true, clock: true, run: caseOverwrite},
	}
}

// spoiledKey is the key of an instance, under which the case stores values that are no heartbeats, as a hostile client can.
type spoiledKey struct {
	s       *stage
	i       *instance
	stream  jetstream.Stream
	subject string
}

// put stores a value. The record ignores it because of its header.
func (k spoiledKey) put() {
	msg := &nats.Msg{Subject: k.subject, Header: nats.Header{foreignHeader: {"1"}}, Data: []byte("no heartbeat")}
	_, err := k.s.w.js.PublishMsg(k.s.ctx, msg)
	k.s.must(err)
}

// overwritten reports whether the newest value is a heartbeat. A value of put's expires after wire.LeaseTTL like any other.
func (k spoiledKey) overwritten() bool {
	msg, err := k.stream.GetLastMsgForSubject(k.s.ctx, k.subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false
	}
	k.s.must(err)
	return msg.Header.Get(foreignHeader) == ""
}

// refuses stores a value, waits until the executor has published two more heartbeats, and reports whether the value is still there.
func (k spoiledKey) refuses() bool {
	before := time.Now()
	k.put()
	k.s.await(func() bool { return len(k.i.rec.beatsOf(k.i.boot, before)) > 1 }, "heartbeats of an instance whose key another client has written")
	overwritten := k.overwritten()
	k.s.undisturbed(overwritten || time.Since(before) < wire.LeaseTTL, "two heartbeats took longer than a value is kept")
	return !overwritten
}

func caseOverwrite(s *stage) string {
	i := s.at
	stream, err := s.w.js.Stream(s.ctx, "KV_"+wire.BucketInstances)
	s.must(err)
	k := spoiledKey{s, i, stream, wire.InstanceSubject(wire.InstanceKey(i.config.group, i.name))}
	overwrite := func(boot string) {
		s.must(s.w.system.Publish(wire.ControlSubject(i.config.group, i.name), wire.Encode(wire.Control{V: wire.Version, Op: wire.OpOverwrite, BootID: boot})))
	}
	defer func() { // so that a repetition of the case finds an instance with its key
		s.must(stream.Purge(s.ctx, jetstream.WithPurgeSubject(k.subject)))
	}()
	i.beat(fresh)
	if !k.refuses() {
		s.notOffered("heartbeats have no condition")
	}
	overwrite("another-boot")
	s.check(k.refuses(), "after an overwrite for another boot, the bucket has a heartbeat of this one")
	k.put()
	sent := time.Now()
	overwrite(i.boot)
	const within = wire.LeaseTTL - 2*time.Second // before the value expires
	if !s.until(within, k.overwritten) {
		s.notOffered("no heartbeat without a condition came within %v of the request", within)
	}
	i.accept(i.sleeper(0))
	s.waitUntil(sent.Add(wire.LeaseTTL + 3*time.Second))
	s.check(k.refuses(), "more than %v after an overwrite, the bucket has a heartbeat that was sent without a condition", wire.LeaseTTL)
	return "refused, refused for another boot, overwritten, refused after 10 s"
}
