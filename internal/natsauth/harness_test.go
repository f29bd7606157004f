package natsauth_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"slices"
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
	sender string                        // the token of sender 7; empty: there is none
	left   time.Duration                 // how long that token stays valid
	limits map[string]domain.GroupLimits // of groups with their own limits
	err    error
	hang   bool
}

func (v *tokens) SenderOfToken(_ context.Context, token string) (int64, time.Duration, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err != nil {
		return 0, 0, v.err
	}
	if token == "" || token != v.sender {
		return 0, 0, domain.NewError(domain.Forbidden, "no such token")
	}
	return 7, v.left, nil
}

// TokensOfGroups implements natsauth.Directory.
func (v *tokens) TokensOfGroups(_ context.Context, groups []string) (map[string][][]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	valid := make(map[string][][]byte)
	for token, group := range v.groups {
		if digest := sha256.Sum256([]byte(token)); slices.Contains(groups, group) {
			valid[group] = append(valid[group], digest[:])
		}
	}
	return valid, v.err
}

// LiveSenders implements natsauth.Directory.
func (v *tokens) LiveSenders(_ context.Context, ids []int64) ([]int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sender == "" || !slices.Contains(ids, 7) {
		return nil, v.err
	}
	return []int64{7}, v.err
}

// GroupLimits implements natsauth.Limits.
func (v *tokens) GroupLimits(_ context.Context, names []string) (map[string]domain.GroupLimits, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	limits := make(map[string]domain.GroupLimits)
	for _, name := range names {
		limits[name] = domain.DefaultGroupLimits()
		if own, ok := v.limits[name]; ok {
			limits[name] = own
		}
	}
	return limits, v.err
}

func (v *tokens) GroupOfToken(ctx context.Context, token string) (string, time.Duration, error) {
	v.mu.Lock()
	group, ok, err, hang := v.groups[token], false, v.err, v.hang
	_, ok = v.groups[token]
	v.mu.Unlock()
	if hang {
		<-ctx.Done()
		return "", 0, ctx.Err()
	}
	if err != nil {
		return "", 0, err
	}
	if !ok {
		return "", 0, domain.NewError(domain.Forbidden, "no such token")
	}
	return group, 0, nil
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
	sessions  *natsauth.Sessions
	system    *nats.Conn
	js        jetstream.JetStream
}

func newWorld(t *testing.T, lifetime time.Duration) *world {
	t.Helper()
	return newWorldWith(t, func(c *natsauth.Config) { c.Lifetime = lifetime })
}

// newWorldWith is newWorld with other settings of the Responder.
func newWorldWith(t *testing.T, change func(*natsauth.Config)) *world {
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
	w.sessions = natsauth.NewSessions(natsauth.SessionsConfig{System: w.connect(t, server.MonitorOptions()...), Directory: w.tokens})
	keep(t, w.sessions.Run)
	cfg := natsauth.Config{
		Verifier: w.tokens, Senders: w.tokens, Limits: w.tokens, Directory: w.tokens, Sessions: w.sessions, Issuer: server.Issuer(),
	}
	change(&cfg)
	if w.responder, err = natsauth.New(cfg); err != nil {
		t.Fatal(err)
	}
	run(t, w.responder, w.system)
	return w
}

// keep runs a component until the test ends.
func keep(t *testing.T, component func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- component(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// eventually polls until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(bound); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("not in time: " + what)
		}
	}
}

func run(t *testing.T, r *natsauth.Responder, nc *nats.Conn) {
	t.Helper()
	keep(t, func(ctx context.Context) error { return r.Run(ctx, nc) })
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
		nats.Name(natsauth.ClientName(group, "i1")),
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

// refused reports whether the client's last operation was a permission violation. The server reports it before the pong that
// the flush waits for.
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
