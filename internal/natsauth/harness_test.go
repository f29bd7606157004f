package natsauth_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/embednats"
	"github.com/belfryhq/belfry/internal/natsauth"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bound is the time limit of waits for an expected event.
const bound = 5 * time.Minute

// tokens is a Verifier that looks tokens up in a table.
type tokens struct {
	mu     sync.Mutex
	groups map[string]string
	sender string // the token of sender 7; empty: there is none
	err    error
	hang   bool
}

func (v *tokens) SenderOfToken(_ context.Context, token string) (int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err != nil {
		return 0, v.err
	}
	if token == "" || token != v.sender {
		return 0, domain.NewError(domain.NotFound, "no such token")
	}
	return 7, nil
}

func (v *tokens) GroupOfToken(ctx context.Context, token string) (string, error) {
	v.mu.Lock()
	group, ok, err, hang := v.groups[token], false, v.err, v.hang
	_, ok = v.groups[token]
	v.mu.Unlock()
	if hang {
		<-ctx.Done()
		return "", ctx.Err()
	}
	if err != nil {
		return "", err
	}
	if !ok {
		return "", domain.NewError(domain.NotFound, "no such token")
	}
	return group, nil
}

func (v *tokens) change(f func(*tokens)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f(v)
}

// world is a server with its rules, streams and a Responder.
type world struct {
	server    *embednats.Server
	tokens    *tokens
	responder *natsauth.Responder
	system    *nats.Conn
	js        jetstream.JetStream
}

func newWorld(t *testing.T, lifetime time.Duration) *world {
	t.Helper()
	ctx := context.Background()
	server, err := embednats.Start(ctx, embednats.Config{StoreDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	w := &world{server: server, tokens: &tokens{groups: map[string]string{"token-a": "a", "token-b": "b", "token-ab": "a_b"}}}
	w.system = w.connect(t, server.SystemOptions()...)
	w.js, err = jetstream.New(w.system)
	if err != nil {
		t.Fatal(err)
	}
	if err := natsinfra.Ensure(ctx, w.js, 1); err != nil {
		t.Fatal(err)
	}
	w.responder, err = natsauth.New(natsauth.Config{Verifier: w.tokens, Senders: w.tokens, Issuer: server.Issuer(), Lifetime: lifetime})
	if err != nil {
		t.Fatal(err)
	}
	run(t, w.responder, w.system)
	return w
}

func run(t *testing.T, r *natsauth.Responder, nc *nats.Conn) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, nc) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-r.Ready():
	case <-time.After(bound):
		t.Fatal("the responder does not listen")
	}
}

func (w *world) connect(t *testing.T, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(w.server.URL(), append([]nats.Option{nats.Timeout(bound)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// client is an executor's connection that records the permission violations that the server reports.
type client struct {
	*nats.Conn
	refusals chan error
}

func (w *world) executor(t *testing.T, token, group string, options ...nats.Option) *client {
	t.Helper()
	c := &client{refusals: make(chan error, 64)}
	c.Conn = w.connect(t, append([]nats.Option{
		nats.Token(token),
		nats.CustomInboxPrefix(natsauth.InboxPrefix(group)),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(10 * time.Millisecond),
		nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case c.refusals <- err:
			default:
			}
		}),
	}, options...)...)
	return c
}

// refused reports whether the server answered the last thing done with a permission violation. The server
// writes it ahead of the pong that the flush waits for.
func (c *client) refused(t *testing.T) bool {
	t.Helper()
	// Errors are handled in the order in which the server sent them, so that this refusal comes after the one in question.
	const surely = "no.group.may.say.this"
	if err := c.Publish(surely, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.FlushTimeout(bound); err != nil {
		t.Fatal(err)
	}
	for refused := false; ; refused = true {
		select {
		case err := <-c.refusals:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Fatalf("unexpected error %v", err)
			}
			if strings.Contains(err.Error(), surely) {
				return refused
			}
		case <-time.After(bound):
			t.Fatal("the server refuses nothing")
		}
	}
}

func receive(t *testing.T, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	msg, err := sub.NextMsg(bound)
	if err != nil {
		t.Fatalf("nothing on %s: %v", sub.Subject, err)
	}
	return msg
}
