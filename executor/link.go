package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

const (
	// Messages that wait to be taken up; beyond it they are dropped, which their sender takes as no answer.
	offersWaiting   = 128
	controlsWaiting = 1024
	// The pace of reconnecting: doubling from the first to the last, with up to half of it as jitter.
	reconnectFirst = 50 * time.Millisecond
	reconnectLast  = 2 * time.Second
	// The last pace after refused log-ins: what is wrong then is mended by a person.
	refusedLast = 30 * time.Second
	pingEvery   = 2 * time.Second
	beatTimeout = 2500 * time.Millisecond
)

// link is the engine's connection to NATS.
type link struct {
	config   Config
	engine   *engine
	log      *slog.Logger
	names    []string // of handlers
	scripts  []string // languages
	host     string
	started  time.Time
	beatSoon chan struct{}
	first    chan struct{} // closed when the first heartbeat was confirmed
	once     sync.Once
	hold     hold
	store    storeFunc   // publish, except in tests
	silent   atomic.Bool // another boot holds the name, and what is asked under it is asked of that one

	conn     atomic.Pointer[nats.Conn] // set by connect
	offers   chan *nats.Msg
	controls chan *nats.Msg
	taken    atomic.Int64 // messages taken from offers
	message  wire.Offers  // taken last
	refused  atomic.Int64 // log-ins in a row
}

func newLink(c Config, x *engine, names, languages []string, first chan struct{}) *link {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	l := &link{
		config: c, engine: x, log: x.log, names: names, scripts: languages, host: host, started: time.Now(), first: first,
		beatSoon: make(chan struct{}, 1),
		offers:   make(chan *nats.Msg, offersWaiting), controls: make(chan *nats.Msg, controlsWaiting),
	}
	l.store = l.publish
	return l
}

// connect connects and subscribes; it tries until ctx is done, and is false then.
func (l *link) connect(ctx context.Context) bool {
	for try := 0; ctx.Err() == nil; try++ {
		conn, err := nats.Connect(l.config.NATSURL, l.options()...)
		if err == nil {
			if err = l.subscribe(conn); err == nil {
				l.conn.Store(conn)
				l.refused.Store(0)
				l.log.Info("connected to NATS", "server", conn.ConnectedUrlRedacted())
				return true
			}
			conn.Close()
		}
		l.complain(err)
		wait := l.delay(try)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	return false
}

func (l *link) options() []nats.Option {
	opts := append([]nats.Option{nats.Token(l.config.Token)}, l.config.NATSOptions...)
	return append(opts,
		nats.Name("belfry executor "+l.config.Group+"."+l.engine.instance),
		nats.CustomInboxPrefix("_INBOX_"+l.config.Group),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(l.delay),
		// What cannot be sent now is not sent: an answer or heartbeat that waited would lie.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingEvery),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				l.log.Warn("the connection to NATS is lost; reconnecting", "error", err)
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			l.refused.Store(0)
			l.log.Info("connected to NATS again", "server", c.ConnectedUrlRedacted())
			l.beatNow()
			l.engine.reports.resend()
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { l.complain(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { l.natsError(sub, err) }),
	)
}

// subscribe returns when the server knows both subscriptions, so that a heartbeat that follows promises no more
// than there is.
func (l *link) subscribe(conn *nats.Conn) error {
	group, instance := l.config.Group, l.engine.instance
	if _, err := conn.ChanSubscribe(wire.TriggerSubject(group, instance), l.offers); err != nil {
		return fmt.Errorf("subscribe to offers: %w", err)
	}
	if _, err := conn.ChanSubscribe(wire.ControlSubject(group, instance), l.controls); err != nil {
		return fmt.Errorf("subscribe to control requests: %w", err)
	}
	if err := conn.FlushTimeout(5 * time.Second); err != nil {
		return fmt.Errorf("await the subscriptions: %w", err)
	}
	// Both subjects are the group's own, and nothing else was asked for yet.
	if err := conn.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return &foreignTokenError{group, err}
	}
	return nil
}

// serve takes offers and control requests, each kind one after the other, until ctx is done.
func (l *link) serve(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case msg := <-l.offers:
				l.takeOffers(msg, l.taken.Add(1))
			case <-ctx.Done():
				return
			}
		}
	})
	wg.Go(func() {
		for {
			select {
			case msg := <-l.controls:
				l.takeControl(msg)
			case <-ctx.Done():
				return
			}
		}
	})
	wg.Wait()
}

// takeOffers is called by one goroutine.
func (l *link) takeOffers(msg *nats.Msg, nth int64) {
	arrived := l.engine.now()
	m := wire.Offers{Offers: l.message.Offers[:0]} // what attempts need of offers is copied, so that these serve again
	err := wire.Decode(msg.Data, &m)
	if cap(m.Offers) <= 2*wire.MaxOffers { // else somebody sent more than are taken
		l.message = m
	}
	if err == nil {
		err = validOffers(&m)
	}
	if err != nil { // no answer: the sender asks for the attempts' status
		l.log.Warn("offers that cannot be understood were left unanswered", "error", err)
		return
	}
	ans := l.engine.answerOffers(&m, nth, arrived)
	if m.BootID != l.engine.boot {
		if l.silent.Load() {
			return
		}
		l.beatNow() // perhaps the name was taken: the next heartbeat tells
	}
	l.respond(msg, wire.EncodeAnswer(&ans))
}

func validOffers(m *wire.Offers) error {
	if len(m.Offers) > wire.MaxOffers {
		return fmt.Errorf("%d offers in one message; at most %d are taken", len(m.Offers), wire.MaxOffers)
	}
	for i := range m.Offers {
		o := &m.Offers[i]
		if o.RunID == "" || len(o.RunID) > 64 || o.Attempt < 1 || o.TimeoutMS < 0 || o.TimeoutMS > int64(1<<62/time.Millisecond) {
			return fmt.Errorf("an offer without a sound run_id, attempt or timeout_ms: %.80q, %d, %d", o.RunID, o.Attempt, o.TimeoutMS)
		}
	}
	return nil
}

func (l *link) takeControl(msg *nats.Msg) {
	var m wire.Control
	if err := wire.Decode(msg.Data, &m); err != nil {
		l.log.Warn("a control request cannot be understood", "error", err)
		l.respond(msg, wire.Encode(wire.ControlReply{V: wire.Version, Instance: l.engine.instance, BootID: l.engine.boot,
			Load: l.engine.load(), Error: err.Error()}))
		return
	}
	if l.silent.Load() {
		if m.Op == wire.OpKill || m.Op == wire.OpSettled { // they may be about runs that go on here; the other boot answers
			l.engine.answerControl(&m)
		}
		return
	}
	l.respond(msg, wire.Encode(l.engine.answerControl(&m)))
}

func (l *link) respond(msg *nats.Msg, answer []byte) {
	if msg.Reply == "" {
		return
	}
	if err := msg.Respond(answer); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		l.log.Warn("an answer could not be sent", "subject", msg.Subject, "error", err)
	}
}

// ready reports whether there is a connection, and the most bytes that a message may have on it.
func (l *link) ready() (connected bool, maxPayload int64) {
	conn := l.connection()
	if conn == nil || !conn.IsConnected() {
		return false, 0
	}
	return true, conn.MaxPayload()
}

func (l *link) publishResults(ctx context.Context, results [][]byte) error {
	_, err := l.store(ctx, wire.ResultSubject(l.config.Group), nil, wire.EncodeResults(l.engine.load(), results))
	return err
}

func (l *link) publishLogs(ctx context.Context, key attemptKey, lines []wire.LogLine) error {
	_, err := l.store(ctx, wire.LogSubject(l.config.Group), nil,
		wire.Encode(wire.Logs{V: wire.Version, Instance: l.engine.instance, RunID: key.run, Attempt: key.attempt, Lines: lines}))
	return err
}

// streamError is a stream's refusal of a message.
type streamError struct {
	code        int
	description string
}

func (e *streamError) Error() string {
	return fmt.Sprintf("the stream refused it: %s (%d)", e.description, e.code)
}

// storeFunc brings a message into a stream, as link.publish does.
type storeFunc func(ctx context.Context, subject string, header nats.Header, data []byte) (seq uint64, err error)

// publish publishes into a stream and returns the message's sequence number when the stream has acknowledged it; its
// refusal is a *streamError. It asks nothing else of JetStream, so an executor needs no permission beyond its subjects.
func (l *link) publish(ctx context.Context, subject string, header nats.Header, data []byte) (seq uint64, err error) {
	conn := l.connection()
	if conn == nil {
		return 0, nats.ErrConnectionClosed
	}
	reply, err := conn.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Header: header, Data: data})
	if err != nil {
		return 0, fmt.Errorf("publish on %s: %w", subject, err)
	}
	var ack struct {
		Stream string `json:"stream"`
		Seq    uint64 `json:"seq"`
		Error  *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return 0, fmt.Errorf("read the acknowledgement on %s: %w", subject, err)
	}
	if ack.Error != nil {
		return 0, fmt.Errorf("publish on %s: %w", subject, &streamError{ack.Error.Code, ack.Error.Description})
	}
	if ack.Stream == "" {
		return 0, fmt.Errorf("publish on %s: the answer is no acknowledgement of a stream", subject)
	}
	return ack.Seq, nil
}
