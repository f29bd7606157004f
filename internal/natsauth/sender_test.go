package natsauth_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/natsauth"
)

// A sender can publish events and receive the acknowledgement that they are stored. It can do nothing else.
func TestSender(t *testing.T) {
	w := newWorld(t, 0)
	w.tokens.change(func(v *tokens) { v.sender = "sesame" })
	name := natsauth.SenderName(7)
	s := w.executor(t, "sesame", name)
	js, err := jetstream.New(s.Conn)
	if err != nil {
		t.Fatal(err)
	}
	if ack, err := js.Publish(t.Context(), "belfry.v1.event.orders.created", []byte(`1`)); err != nil || ack.Stream != "BELFRY_EVENTS" {
		t.Fatalf("got %+v, %v", ack, err)
	}
	for _, subject := range append([]string{"belfry.v1.event.orders", "_INBOX_EVENTS_8.>", "_INBOX_EVENTS.>"}, foreign...) {
		s := w.executor(t, "sesame", name)
		if _, err := s.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if !s.refused(t) {
			t.Errorf("subscribed to %s", subject)
		}
	}
	for _, subject := range []string{"belfry.v1.event", "belfry.v1.result.a", "belfry.v1.log.a", "belfry.v1.dead.event", "belfry.v1.trigger.a.i1", "belfry.v1.run.a",
		"$KV.belfry_instances.a.i1", "$JS.API.STREAM.INFO.BELFRY_EVENTS", "$JS.API.STREAM.PURGE.BELFRY_EVENTS", "$JS.API.CONSUMER.MSG.NEXT.BELFRY_EVENTS.accept", "_INBOX_a.x"} {
		s := w.executor(t, "sesame", name)
		if err := s.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		if !s.refused(t) {
			t.Errorf("published to %s", subject)
		}
	}
	// While Postgres is unavailable, the cache accepts the token, as for groups. A deleted token is refused, and its connections
	// end.
	w.tokens.change(func(v *tokens) { v.err = domain.NewError(domain.Unavailable, "Postgres is away") })
	if !w.login(t, nats.Token("sesame")) {
		t.Error("a sender is not remembered")
	}
	w.responder.Recheck(name)
	if w.login(t, nats.Token("sesame")) {
		t.Error("a deleted token came back in an outage")
	}
	w.tokens.change(func(v *tokens) { v.err, v.sender = nil, "" })
	w.responder.Recheck(name)
	ended := s.StatusChanged(nats.RECONNECTING)
	w.sessions.Check()
	awaitEnd(t, "the connection of a deleted token", ended)
	if w.login(t, nats.Token("sesame")) {
		t.Error("a deleted token was let in")
	}
}
