package natsauth_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/internal/natsauth"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

// The example configuration of an external server is valid, and gives executors the same permissions.
func TestExampleConfiguration(t *testing.T) {
	issuer, err := natsauth.NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	public, err := issuer.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("BELFRY_NATS_ISSUER", public)
	t.Setenv("BELFRY_NATS_PASSWORD", "system-side-password-of-a-test")
	t.Setenv("BELFRY_NATS_SYS_PASSWORD", "sys-password-of-a-test")
	t.Setenv("BELFRY_NATS_STORE", t.TempDir())
	opts, err := server.ProcessConfigFile(filepath.Join("..", "..", "deploy", "nats", "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	ns, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	go ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(bound) {
		t.Fatal("not ready")
	}

	dial := func(options ...nats.Option) (*nats.Conn, error) {
		nc, err := nats.Connect(ns.ClientURL(), append([]nats.Option{nats.Timeout(bound)}, options...)...)
		if err == nil {
			t.Cleanup(nc.Close)
		}
		return nc, err
	}
	system, err := dial(nats.UserInfo("belfry", "system-side-password-of-a-test"))
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(system)
	if err != nil {
		t.Fatal(err)
	}
	if err := natsinfra.Ensure(context.Background(), js, 1); err != nil {
		t.Fatal(err)
	}
	monitor, err := dial(nats.UserInfo("sys", "sys-password-of-a-test"))
	if err != nil {
		t.Fatalf("the system account's user: %v", err)
	}
	known := &tokens{groups: map[string]string{"token-a": "a"}}
	sessions := natsauth.NewSessions(natsauth.SessionsConfig{System: monitor, Directory: known})
	keep(t, sessions.Run)
	responder, err := natsauth.New(natsauth.Config{Verifier: known, Sessions: sessions, Directory: known, Issuer: issuer})
	if err != nil {
		t.Fatal(err)
	}
	run(t, responder, system)

	for name, option := range map[string]nats.Option{
		"wrong token":      nats.Token("token-x"),
		"wrong password":   nats.UserInfo("belfry", "token-a"),
		"no such user":     nats.UserInfo("a", "token-a"),
		"no credentials":   nats.Name("nobody"),
		"wrong sys's":      nats.UserInfo("sys", "x"),
		"issuer as a user": nats.Nkey(public, issuer.Sign),
	} {
		if _, err := dial(option); err == nil {
			t.Errorf("%s: let in", name)
		}
	}
	refusals := make(chan error, 8)
	executor, err := dial(nats.Token("token-a"), nats.Name("a.i1"), nats.CustomInboxPrefix(natsauth.InboxPrefix("a")),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refusals <- err }))
	if err != nil {
		t.Fatal(err)
	}
	ejs, err := jetstream.New(executor)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ejs.Publish(context.Background(), "belfry.v1.result.a", nil); err != nil {
		t.Error(err)
	}
	if err := executor.Publish("belfry.v1.result.b", nil); err != nil {
		t.Fatal(err)
	}
	if err := <-refusals; !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("got %v", err)
	}
	// The connection ends with its token.
	ended := executor.StatusChanged(nats.RECONNECTING)
	known.change(func(v *tokens) { delete(v.groups, "token-a") })
	if err := natsauth.AnnounceChange(system, "a"); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, "the connection of a replaced token", ended)
}
