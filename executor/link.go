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
	// The number of messages that may wait to be handled. Messages beyond it are dropped, and their sender gets no
	// answer.
	offersWaiting   = 128
	controlsWaiting = 1024
	// The delay between connection attempts doubles from reconnectFirst to reconnectLast. Up to half of it is jitter.
	reconnectFirst = 50 * time.Millisecond
	reconnectLast  = 2 * time.Second
	// The longest delay after refused log-ins, which only an operator can fix.
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
	first    chan struct{} // closed when the first heartbeat is confirmed
	once     sync.Once
	hold     hold
	reported string      // Unfit.Reason of the last heartbeat; used only by the goroutine that sends heartbeats
	store    storeFunc   // publish; tests replace it
	silent   atomic.Bool // another boot holds the name, and requests under it are meant for that boot

	overwrite atomic.Pointer[instant] // when a dispatcher last allowed to overwrite the key (wire.OpOverwrite)

	conn     atomic.Pointer[nats.Conn] // set by connect
	subs     []*nats.Subscription      // set by connect
	offers   chan *nats.Msg
	controls chan *nats.Msg
	taken    atomic.Int64 // messages received from offers
	message  wire.Offers  // the last message, kept to reuse its memory
	refused  atomic.Int64 // refused log-ins in a row
	unleased *unleased
}

func newLink(c Config, x *engine, names, languages []string, first chan struct{}) *link {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	l := &link{
		config: c, engine: x, log: x.log, names: names, scripts: languages, host: host, started: time.Now(), first: first,
		beatSoon: make(chan struct{}, 1), unleased: &x.unleased,
		offers: make(chan *nats.Msg, offersWaiting), controls: make(chan *nats.Msg, controlsWaiting),
	}
	l.store = l.publish
	set(&l.unleased.connection, notConnected)
	return l
}

// connect connects and subscribes. It retries until ctx is done, and then returns false.
func (l *link) connect(ctx context.Context) bool {
	for try := 0; ctx.Err() == nil; try++ {
		conn, err := nats.Connect(l.config.NATSURL, l.options()...)
		if err == nil {
			if err = l.subscribe(conn); err == nil {
				l.conn.Store(conn)
				l.connected()
				if !conn.IsConnected() { // it was lost before it was stored
					set(&l.unleased.connection, notConnected)
				}
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
		nats.Name(l.config.Group+"."+l.engine.instance),
		nats.CustomInboxPrefix("_INBOX_"+l.config.Group),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(l.delay),
		// Without a connection, answers and heartbeats are not buffered, because they would be outdated when sent.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingEvery),
		nats.DisconnectErrHandler(func(c *nats.Conn, err error) {
			// connect closes connections that it cannot use, and keeps why. This call can come after that.
			if l.conn.Load() == c {
				set(&l.unleased.connection, notConnected)
			}
			if err != nil {
				l.log.Warn("the connection to NATS is lost, reconnecting", "err", err)
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			l.connected()
			l.log.Info("connected to NATS again", "server", c.ConnectedUrlRedacted())
			l.beatNow()
			l.engine.reports.resend()
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { l.complain(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { l.natsError(sub, err) }),
	)
}

// connected forgets why there was no connection.
func (l *link) connected() {
	l.refused.Store(0)
	set(&l.unleased.connection, "")
}

// subscribe returns after the server has processed both subscriptions. Dispatchers send offers as soon as they receive the
// first heartbeat, and these offers must not be lost.
func (l *link) subscribe(conn *nats.Conn) error {
	group, instance := l.config.Group, l.engine.instance
	offers, err := conn.ChanSubscribe(wire.TriggerSubject(group, instance), l.offers)
	if err != nil {
		return fmt.Errorf("subscribe to offers: %w", err)
	}
	controls, err := conn.ChanSubscribe(wire.ControlSubject(group, instance), l.controls)
	if err != nil {
		return fmt.Errorf("subscribe to control requests: %w", err)
	}
	l.subs = []*nats.Subscription{offers, controls}
	if err := conn.FlushTimeout(5 * time.Second); err != nil {
		return fmt.Errorf("await the subscriptions: %w", err)
	}
	// A violation can only concern the group's own subjects, because the connection has used no other subjects yet.
	if err := conn.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return &foreignTokenError{group, err}
	}
	return nil
}

// serve handles offers and control requests until ctx is done. Each kind is handled in order.
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

// lastAnswers ends the subscriptions and answers the requests that have arrived. An offer without an answer would count as
// possibly accepted, and its attempt would be declared lost. Later offers reach no one, which their sender learns at once. It
// is called after serve has ended.
func (l *link) lastAnswers() {
	connected, _ := l.ready()
	if !connected {
		return
	}
	conn := l.connection()
	for _, sub := range l.subs {
		_ = sub.Drain() // fails only if the connection is closed
	}
	// Requests that the server sent before it ended the subscriptions arrive before its answer to the flush.
	_ = conn.FlushTimeout(goodbyeTimeout)
	for {
		select {
		case msg := <-l.offers:
			l.takeOffers(msg, l.taken.Add(1))
		case msg := <-l.controls:
			l.takeControl(msg)
		default:
			return
		}
	}
}

// takeOffers handles one message of offers. Only one goroutine calls it.
func (l *link) takeOffers(msg *nats.Msg, nth int64) {
	arrived := l.engine.now()
	m := wire.Offers{Offers: l.message.Offers[:0]} // attempts copy what they need from offers, so this memory is reused
	err := wire.Decode(msg.Data, &m)
	if cap(m.Offers) <= 2*wire.MaxOffers { // an oversized message's memory is not kept
		l.message = m
	}
	if err == nil {
		err = validOffers(&m)
	}
	if err != nil { // without an answer, the sender asks for the attempts' status
		l.log.Warn("received malformed offers, the dispatcher gets no answer", "err", err)
		return
	}
	ans := l.engine.answerOffers(&m, nth, arrived)
	if m.BootID != l.engine.boot {
		if l.silent.Load() {
			return
		}
		l.beatNow() // another process may have taken the name; the next heartbeat shows it
	}
	l.respond(msg, wire.EncodeAnswer(&ans))
}

func validOffers(m *wire.Offers) error {
	if len(m.Offers) > wire.MaxOffers {
		return fmt.Errorf("%d offers in one message; at most %d are allowed", len(m.Offers), wire.MaxOffers)
	}
	for i := range m.Offers {
		o := &m.Offers[i]
		if o.RunID == "" || len(o.RunID) > 64 || o.Attempt < 1 || o.TimeoutMS < 0 || o.TimeoutMS > int64(1<<62/time.Millisecond) {
			return fmt.Errorf("an offer has an invalid run_id, attempt or timeout_ms: %.80q, %d, %d", o.RunID, o.Attempt, o.TimeoutMS)
		}
	}
	return nil
}

func (l *link) takeControl(msg *nats.Msg) {
	var m wire.Control
	if err := wire.Decode(msg.Data, &m); err != nil {
		l.log.Warn("a control request is malformed, the sender gets the error", "err", err)
		l.respond(msg, wire.Encode(wire.ControlReply{V: wire.Version, Instance: l.engine.instance, BootID: l.engine.boot,
			Load: l.engine.load(), Error: err.Error()}))
		return
	}
	if m.Op == wire.OpOverwrite {
		if m.BootID == l.engine.boot {
			now := l.engine.now()
			l.overwrite.Store(&now)
			l.beatNow()
		}
		return // the sender expects no answer
	}
	if l.silent.Load() {
		if m.Op == wire.OpKill || m.Op == wire.OpSettled { // the request may be about runs of this boot, but the other boot answers
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
		l.log.Warn("cannot send an answer, the sender asks again", "subject", msg.Subject, "err", err)
	}
}

// ready reports whether there is a connection, and the maximum size of a message on it.
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

// storeFunc stores a message in a stream, as link.publish does.
type storeFunc func(ctx context.Context, subject string, header nats.Header, data []byte) (seq uint64, err error)

// publish publishes to a stream and returns the message's sequence number after the stream's acknowledgement. If the
// stream refuses the message, the error is a *streamError. publish uses no other JetStream request, so an executor
// needs no permission beyond its subjects.
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
		return 0, fmt.Errorf("publish on %s: the answer is not the acknowledgement of a stream", subject)
	}
	return ack.Seq, nil
}
