package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/embednats"
	"github.com/belfryhq/belfry/internal/natsauth"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

// world is a NATS server with Belfry's streams, bucket and permissions. It has one group for each process or pair of
// processes of a case, and records the messages of each group.
type world struct {
	dir string

	mu      sync.Mutex
	port    int // of the first start; 0 before it
	tokens  map[string]string
	records map[string]*record // by group

	server *embednats.Server
	system *nats.Conn
	js     jetstream.JetStream
	stop   func()
}

func newWorld(ctx context.Context, dir string) (*world, error) {
	w := &world{dir: dir, tokens: make(map[string]string), records: make(map[string]*record)}
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// open starts the server. After close, it starts the server again with the same address and streams.
func (w *world) open(ctx context.Context) (err error) {
	w.server, err = embednats.Start(ctx, embednats.Config{
		StoreDir: filepath.Join(w.dir, "nats"), Port: w.port, Log: slog.New(&refusals{world: w}),
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.server.Stop(context.WithoutCancel(ctx)))
		}
	}()
	address, err := url.Parse(w.server.URL())
	if err != nil {
		return domain.WrapError(domain.Internal, "read the NATS server's address", err)
	}
	if w.port, err = strconv.Atoi(address.Port()); err != nil {
		return domain.WrapError(domain.Internal, "read the NATS server's port", err)
	}
	if w.system, err = nats.Connect(w.server.InProcessURL(), w.server.SystemOptions()...); err != nil {
		return domain.WrapError(domain.Internal, "connect to the NATS server", err)
	}
	if w.js, err = jetstream.New(w.system); err != nil {
		return domain.WrapError(domain.Internal, "use JetStream", err)
	}
	if err = natsinfra.Ensure(ctx, w.js, 1); err != nil {
		return err
	}
	if err = w.listen(); err != nil {
		return domain.WrapError(domain.Internal, "subscribe to the messages of executors", err)
	}
	return w.admit(ctx)
}

// admit runs the auth callout that every Belfry server uses, so that executors can log in.
func (w *world) admit(ctx context.Context) error {
	responder, err := natsauth.New(natsauth.Config{Verifier: w, Issuer: w.server.Issuer()})
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		defer close(ended) // so that close may be called twice
		ended <- responder.Run(running, w.system)
	}()
	w.stop = func() {
		cancel()
		<-ended //nolint:errcheck // Run fails only if the connection is closed first, which close does not do
	}
	select {
	case <-responder.Ready():
		return nil
	case err := <-ended:
		cancel()
		return domain.WrapError(domain.Internal, "answer log-ins", err)
	case <-ctx.Done():
		w.stop()
		return ctx.Err()
	}
}

// GroupOfToken implements natsauth.Verifier.
func (w *world) GroupOfToken(_ context.Context, token string) (string, time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if group, ok := w.tokens[token]; ok {
		return group, 0, nil
	}
	return "", 0, domain.NewError(domain.Forbidden, "no such token")
}

// close stops the server and keeps its files.
func (w *world) close(ctx context.Context) error {
	w.stop()
	w.system.Close()
	return w.server.Stop(ctx)
}

func (w *world) group(name string) (token string, r *record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	token, r = randomHex(), newRecord(name)
	w.tokens[token], w.records[name] = name, r
	return token, r
}

func (w *world) recordOf(group string) *record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.records[group]
}

func (w *world) allRecords() (out []*record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.records {
		out = append(out, r)
	}
	return out
}

// waiting bounds the messages that wait to be recorded. The cases publish far fewer within a second.
const waiting = 1 << 16

// listen subscribes to the messages of executors, independently of the streams. One goroutine receives all messages from
// one channel, so that the record has them in the order in which the server received them.
func (w *world) listen() error {
	messages := make(chan *nats.Msg, waiting)
	for _, subject := range []string{wire.InstanceSubject(">"), wire.ResultSubject("*"), wire.LogSubject("*")} {
		if _, err := w.system.ChanSubscribe(subject, messages); err != nil {
			return err
		}
	}
	closed := w.system.StatusChanged(nats.CLOSED)
	conn := w.system
	go func() {
		for {
			select {
			case msg := <-messages:
				w.take(conn, msg)
			case <-closed:
				return
			}
		}
	}()
	return conn.Flush()
}

// take records a message.
func (w *world) take(conn *nats.Conn, msg *nats.Msg) {
	at := time.Now()
	switch {
	case strings.HasPrefix(msg.Subject, "$KV."):
		group, _, _ := wire.SplitInstanceKey(strings.TrimPrefix(msg.Subject, wire.InstanceSubject("")))
		if r := w.recordOf(group); r != nil {
			if instance, first := r.heartbeat(msg, at); first {
				w.probe(conn, r, instance)
			}
		}
	case strings.HasPrefix(msg.Subject, wire.ResultSubject("")):
		if r := w.recordOf(wire.GroupOfSubject(msg.Subject)); r != nil {
			for _, res := range r.result(msg, at) {
				w.settle(conn, r.group, res.Instance, wire.Ref{RunID: res.RunID, Attempt: res.Attempt, BootID: res.BootID})
			}
		}
	default:
		if r := w.recordOf(wire.GroupOfSubject(msg.Subject)); r != nil {
			r.log(msg)
		}
	}
}

// probe sends a request on both subjects of an instance right after the first heartbeat of its boot. If a subject has no
// receiver, the server reports that.
func (w *world) probe(conn *nats.Conn, r *record, instance string) {
	for subject, data := range map[string][]byte{
		wire.ControlSubject(r.group, instance): wire.Encode(wire.Control{V: wire.Version, Op: wire.OpPing}),
		wire.TriggerSubject(r.group, instance): wire.Encode(wire.Offers{V: wire.Version, BootID: "none", Offers: []wire.Offer{}}),
	} {
		inbox := conn.NewInbox()
		sub, err := conn.Subscribe(inbox, func(msg *nats.Msg) {
			if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.fault("subscribed", "%s had no receiver when the first heartbeat came", subject)
			}
		})
		if err != nil {
			continue // the connection is being closed
		}
		if sub.AutoUnsubscribe(1) == nil {
			_ = conn.PublishRequest(subject, inbox, data) // if the connection is closed, the case fails elsewhere
		}
	}
}

// settle notifies an executor that results are in the database. As in the dispatcher, the message has no reply subject.
func (w *world) settle(conn *nats.Conn, group, instance string, refs ...wire.Ref) {
	_ = conn.Publish(wire.ControlSubject(group, instance), wire.EncodeSettled(refs)) // sent again when the executor repeats the result
}

// refusals reads permission violations from the server's log, because the server reports them nowhere else.
type refusals struct {
	slog.Handler
	world *world
}

func (*refusals) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (h *refusals) WithAttrs([]slog.Attr) slog.Handler             { return h }
func (h *refusals) WithGroup(string) slog.Handler                  { return h }

func (h *refusals) Handle(_ context.Context, rec slog.Record) error {
	rec.Attrs(func(a slog.Attr) bool {
		text := a.Value.String()
		if !strings.Contains(text, " Violation - ") {
			return true
		}
		for _, r := range h.world.allRecords() { // the user of a connection is the group and a fingerprint of its token
			if strings.Contains(text, ":"+r.group+".") {
				r.mu.Lock()
				r.fault("subjects", "the server refused: %s", text)
				r.mu.Unlock()
			}
		}
		return true
	})
	return nil
}

func randomHex() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
