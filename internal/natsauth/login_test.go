package natsauth_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/natsauth"
)

// login reports whether the server accepts a log-in with these options.
func (w *world) login(t *testing.T, options ...nats.Option) bool {
	t.Helper()
	nc, err := nats.Connect(w.server.URL(), append([]nats.Option{nats.Timeout(bound)}, options...)...)
	if err == nil {
		nc.Close()
		return true
	}
	if !errors.Is(err, nats.ErrAuthorization) {
		t.Fatalf("unexpected error %v", err)
	}
	return false
}

func TestLogin(t *testing.T) {
	w := newWorld(t, 0)
	tests := []struct {
		name    string
		options []nats.Option
		want    bool
	}{
		{"group token", []nats.Option{nats.Token("token-a")}, true},
		{"no credentials", nil, false},
		{"empty token", []nats.Option{nats.Token("")}, false},
		{"wrong token", []nats.Option{nats.Token("token-x")}, false},
		{"token as password", []nats.Option{nats.UserInfo("a", "token-a")}, false},
		{"the system's name", []nats.Option{nats.UserInfo("belfry", "belfry")}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := w.login(t, test.options...); got != test.want {
				t.Errorf("got in: %t", got)
			}
		})
	}
	t.Run("the token in the URL", func(t *testing.T) {
		nc, err := nats.Connect("nats://token-a@" + w.server.URL()[len("nats://"):])
		if err != nil {
			t.Fatal(err)
		}
		nc.Close()
	})
}

func TestLoginWhileVerifierIsAway(t *testing.T) {
	w := newWorld(t, 0)
	if !w.login(t, nats.Token("token-a")) {
		t.Fatal("refused at first")
	}
	away := map[string]func(*tokens){
		"unavailable": func(v *tokens) { v.err = domain.NewError(domain.Unavailable, "Postgres is away") },
		"hanging":     func(v *tokens) { v.hang = true },
	}
	for name, begin := range away {
		w.tokens.change(begin)
		if !w.login(t, nats.Token("token-a")) {
			t.Errorf("%s: a known token was refused", name)
		}
		if w.login(t, nats.Token("token-b")) {
			t.Errorf("%s: an unknown token was let in", name)
		}
		w.tokens.change(func(v *tokens) { v.err, v.hang = nil, false })
	}
	// An executor that is refused during an outage can log in after it, without a restart.
	w.tokens.change(away["unavailable"])
	connected := make(chan struct{}, 1)
	nc, err := nats.Connect(w.server.URL(), nats.Token("token-b"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ConnectHandler(func(*nats.Conn) { connected <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for deadline := time.Now().Add(bound); w.responder.Stats().Unavailable < 6; {
		if time.Now().After(deadline) {
			t.Fatal("it does not try again")
		}
		if err := w.system.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	w.tokens.change(func(v *tokens) { v.err = nil })
	select {
	case <-connected:
	case <-time.After(bound):
		t.Error("it did not get in after the outage")
	}
}

// A connection ends when its lifetime is over, and the client reconnects each time.
func TestLifetime(t *testing.T) {
	w := newWorld(t, 2*time.Second)
	back := make(chan struct{}, 8)
	a := w.executor(t, "token-a", "a", nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	if _, err := a.Subscribe("belfry.v1.trigger.a.i1", func(msg *nats.Msg) { _ = msg.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		select {
		case <-back:
		case <-time.After(bound):
			t.Fatal("the connection did not end and come back")
		}
		if err := a.Flush(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.system.Request("belfry.v1.trigger.a.i1", nil, bound); err != nil {
			t.Errorf("after coming back: %v", err)
		}
	}
}

func TestManyResponders(t *testing.T) {
	w := newWorld(t, 0)
	second, err := natsauth.New(natsauth.Config{Verifier: w.tokens, Issuer: w.server.Issuer()})
	if err != nil {
		t.Fatal(err)
	}
	run(t, second, w.connect(t, w.server.SystemOptions()...))
	const logins = 20
	for range logins {
		if !w.login(t, nats.Token("token-a")) {
			t.Fatal("refused")
		}
	}
	if got := w.responder.Stats().Allowed + second.Stats().Allowed; got != logins {
		t.Errorf("%d answers to %d log-ins", got, logins)
	}
}

func TestRunEndsWithItsConnection(t *testing.T) {
	w := newWorld(t, 0)
	r, err := natsauth.New(natsauth.Config{Verifier: w.tokens, Issuer: w.server.Issuer()})
	if err != nil {
		t.Fatal(err)
	}
	nc := w.connect(t, w.server.SystemOptions()...)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background(), nc) }()
	<-r.Ready()
	nc.Close()
	select {
	case err := <-ended:
		if domain.CodeOf(err) != domain.Unavailable {
			t.Errorf("got %v", err)
		}
	case <-time.After(bound):
		t.Error("still running")
	}
}
