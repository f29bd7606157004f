package natsauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	authSubject  = "$SYS.REQ.USER.AUTH"
	authAudience = "nats-authorization-request"
	queueGroup   = "belfry_auth"

	// Clients wait 2 s for a log-in, so the Verifier gets less.
	verifyTimeout = time.Second

	maxRequestBytes = 64 << 10
	maxTokenBytes   = 256
	maxWaiting      = 4096 // requests beyond this are dropped: their clients are refused and retry
	workers         = 16
	logInterval     = 10 * time.Second
	flushTimeout    = 2 * time.Second
)

var errConnectionClosed = domain.NewError(domain.Unavailable, "the NATS connection that answers log-ins was closed")

// Defaults of Config.
const (
	DefaultAccount   = "BELFRY"
	DefaultLifetime  = 12 * time.Hour
	DefaultCacheSize = 10_000
)

// Verifier maps tokens to groups.
type Verifier interface {
	// GroupOfToken returns the name of the group that a token belongs to. An error of code domain.Unavailable means
	// that this is currently unknown; any other error refuses the token.
	GroupOfToken(ctx context.Context, token string) (group string, err error)
}

// Senders verifies API tokens for sending events.
type Senders interface {
	// SenderOfToken returns the id of the token. Its errors are like those of Verifier.
	SenderOfToken(ctx context.Context, token string) (id int64, err error)
}

// Config holds the settings of a Responder. Only Verifier and Issuer are required.
type Config struct {
	Verifier Verifier
	// Senders are admitted in addition to executors; nil: none are.
	Senders Senders
	// Issuer is the account key that the server's auth_callout specifies as its issuer, with its seed.
	Issuer nkeys.KeyPair
	// Account is the NATS account of the executors.
	Account string
	// Lifetime is how long a connection may live before it must log in again. A tenth of it is varied at random, so
	// that many clients do not reconnect at once. At least 2 s; zero means DefaultLifetime.
	Lifetime time.Duration
	// CacheSize is the number of verified tokens that are kept for an outage of the Verifier.
	CacheSize int
	Log       *slog.Logger
}

// Stats counts the answers of a Responder since its start.
type Stats struct {
	Allowed     int64 // by the Verifier
	FromCache   int64 // allowed from the cache while the Verifier was unavailable
	Refused     int64 // unknown token
	Unavailable int64 // refused because the Verifier was unavailable and the token not in the cache
	Malformed   int64 // requests that were not a client's log-in
}

// Responder answers the log-ins that NATS servers forward by auth callout.
type Responder struct {
	cfg   Config
	known *verified
	ready chan struct{}
	once  sync.Once

	logLimit                                            *rate.Sometimes
	allowed, fromCache, refused, unavailable, malformed atomic.Int64
}

// New returns a Responder that answers nothing until Run is called. The error has code invalid if Config is incomplete
// or Issuer is not an account key with its seed.
func New(cfg Config) (*Responder, error) {
	if cfg.Account == "" {
		cfg.Account = DefaultAccount
	}
	if cfg.Lifetime == 0 {
		cfg.Lifetime = DefaultLifetime
	}
	if cfg.CacheSize == 0 {
		cfg.CacheSize = DefaultCacheSize
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	var faults domain.Faults
	if cfg.Verifier == nil {
		faults.Add("verifier", "is required")
	}
	if cfg.Lifetime < 2*time.Second {
		faults.Add("lifetime", "must be at least 2s")
	}
	if err := checkIssuer(cfg.Issuer); err != nil {
		faults.Add("issuer", err.Error())
	}
	known, err := newVerified(cfg.CacheSize)
	if err != nil {
		faults.Add("cache_size", err.Error())
	}
	if err := faults.Err("NATS log-ins"); err != nil {
		return nil, err
	}
	return &Responder{
		cfg:      cfg,
		known:    known,
		ready:    make(chan struct{}),
		logLimit: &rate.Sometimes{Interval: logInterval},
	}, nil
}

// Run answers log-ins that arrive on nc, a connection of the system side, until ctx is cancelled. Before it returns, it
// answers the log-ins in progress. It continues after reconnects, and fails only if nc is closed.
func (r *Responder) Run(ctx context.Context, nc *nats.Conn) error {
	requests := make(chan *nats.Msg, maxWaiting)
	sub, err := nc.ChanQueueSubscribe(authSubject, queueGroup, requests)
	if err != nil {
		return domain.WrapError(domain.Unavailable, "subscribe to NATS log-ins", err)
	}
	defer func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			r.cfg.Log.Warn("cannot unsubscribe from NATS log-ins, the subscription ends with the connection", "err", err)
		}
	}()
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-closed:
			cancel(errConnectionClosed)
		case <-ctx.Done():
		}
	})
	wg.Go(func() { r.announce(ctx, nc) })
	for range workers {
		wg.Go(func() { r.work(ctx, requests) })
	}
	wg.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, errConnectionClosed) {
		return cause
	}
	return nil
}

// announce closes ready when the server has confirmed the subscription, however long it is unreachable.
func (r *Responder) announce(ctx context.Context, nc *nats.Conn) {
	for ctx.Err() == nil && !nc.IsClosed() {
		flushCtx, cancel := context.WithTimeout(ctx, flushTimeout)
		err := nc.FlushWithContext(flushCtx)
		if err == nil {
			cancel()
			r.once.Do(func() { close(r.ready) })
			return
		}
		<-flushCtx.Done() // a flush that failed at once must not be retried before its time
		cancel()
	}
}

// Ready is closed when the first Run has subscribed, so that executors in the same process need not retry.
func (r *Responder) Ready() <-chan struct{} { return r.ready }

// Forget removes the group's tokens from the cache. Call it when a token is replaced or a group deleted, so that the
// old token is not accepted in a later outage.
func (r *Responder) Forget(group string) { r.known.removeGroup(group) }

// Stats returns the current counters.
func (r *Responder) Stats() Stats {
	return Stats{
		Allowed:     r.allowed.Load(),
		FromCache:   r.fromCache.Load(),
		Refused:     r.refused.Load(),
		Unavailable: r.unavailable.Load(),
		Malformed:   r.malformed.Load(),
	}
}

func (r *Responder) work(ctx context.Context, requests <-chan *nats.Msg) {
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-requests:
			answer, err := r.answer(context.WithoutCancel(ctx), msg.Data, time.Now())
			if err != nil {
				r.malformed.Add(1)
				r.warn("a NATS log-in request is malformed, it gets no answer", err)
				continue
			}
			if err := msg.Respond(answer); err != nil {
				r.warn("cannot answer a NATS log-in, the client retries", err)
			}
		}
	}
}

// answer returns the encoded response to a server's request. An error means that the message is not a request and gets
// no answer.
func (r *Responder) answer(ctx context.Context, data []byte, now time.Time) ([]byte, error) {
	req, err := r.decode(data)
	if err != nil {
		return nil, err
	}
	response := jwt.NewAuthorizationResponseClaims(req.UserNkey)
	response.Audience = req.Server.ID
	group, err := r.group(ctx, req)
	if err == nil {
		response.Jwt, err = r.userJWT(group, req.UserNkey, now)
	}
	if err != nil {
		// The server logs this message; the client only receives an authorization violation.
		response.Error = reason(err)
		r.warn("refused a NATS log-in, its client may retry", err, "client", req.ClientInformation.Host, "name", shorten(req.ConnectOptions.Name))
	}
	encoded, err := response.Encode(r.cfg.Issuer)
	if err != nil {
		return nil, fmt.Errorf("sign the answer: %w", err)
	}
	return []byte(encoded), nil
}

func (r *Responder) decode(data []byte) (*jwt.AuthorizationRequestClaims, error) {
	if len(data) > maxRequestBytes {
		return nil, fmt.Errorf("%d bytes are more than %d", len(data), maxRequestBytes)
	}
	req, err := jwt.DecodeAuthorizationRequestClaims(string(data))
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	results := jwt.CreateValidationResults()
	req.Validate(results)
	if len(results.Issues) > 0 {
		return nil, fmt.Errorf("validate: %s", results.Issues[0].Description)
	}
	if req.Audience != authAudience || req.Server.ID == "" {
		return nil, errors.New("not addressed to an authorization service")
	}
	return req, nil
}

// group returns the name of the group or sender whose log-in it is.
func (r *Responder) group(ctx context.Context, req *jwt.AuthorizationRequestClaims) (string, error) {
	token := req.ConnectOptions.Token
	if len(token) == 0 || len(token) > maxTokenBytes {
		r.refused.Add(1)
		return "", domain.NewError(domain.Forbidden, "no group token")
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	group, err := r.verify(ctx, token)
	switch {
	case err == nil:
		r.known.add(token, group)
		r.allowed.Add(1)
		return group, nil
	case away(err):
		if group, ok := r.known.group(token); ok {
			r.fromCache.Add(1)
			return group, nil
		}
		r.unavailable.Add(1)
		return "", domain.WrapError(domain.Unavailable, "tokens cannot be verified at the moment", err)
	default:
		// Only a verdict on the token itself removes it from the cache; a bug or a damaged row does not.
		if code := domain.CodeOf(err); code != domain.Internal {
			r.known.remove(token)
		}
		r.refused.Add(1)
		return "", domain.WrapError(domain.Forbidden, "token refused", err)
	}
}

// verify returns the group or sender that a token belongs to.
func (r *Responder) verify(ctx context.Context, token string) (string, error) {
	group, err := r.cfg.Verifier.GroupOfToken(ctx, token)
	if err == nil || r.cfg.Senders == nil || away(err) {
		return group, err
	}
	id, senderErr := r.cfg.Senders.SenderOfToken(ctx, token)
	switch {
	case senderErr == nil:
		return SenderName(id), nil
	case away(senderErr):
		return "", senderErr
	}
	return "", err
}

// away reports whether the Verifier is unavailable.
func away(err error) bool {
	return domain.CodeOf(err) == domain.Unavailable || errors.Is(err, context.DeadlineExceeded)
}

func (r *Responder) userJWT(group, userKey string, now time.Time) (string, error) {
	var permissions jwt.Permissions
	if strings.HasPrefix(group, senderPrefix) {
		permissions = SenderPermissions(group)
	} else {
		var err error
		if permissions, err = Permissions(group); err != nil {
			return "", err
		}
	}
	user := jwt.NewUserClaims(userKey)
	user.Name = group // shown by the server as the connection's user
	user.Audience = r.cfg.Account
	user.Permissions = permissions
	// Leaf nodes are not allowed, because one would carry all clients of another server. MQTT is not allowed either.
	user.AllowedConnectionTypes = jwt.StringList{
		jwt.ConnectionTypeStandard, jwt.ConnectionTypeWebsocket, jwt.ConnectionTypeInProcess,
	}
	spread := time.Duration(rand.Int64N(int64(r.cfg.Lifetime)/10 + 1))
	user.Expires = now.Add(r.cfg.Lifetime - spread).Unix()
	return user.Encode(r.cfg.Issuer)
}

func (r *Responder) warn(failure string, err error, args ...any) {
	// Anyone who can reach the port can cause these warnings, so only a sample is logged; the counters count all.
	r.logLimit.Do(func() { r.cfg.Log.Warn(failure, append(args, "err", err)...) })
}

// reason returns the error text for the server: the message of a domain.Error without its cause.
func reason(err error) string {
	var e *domain.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return "internal error"
}

func shorten(s string) string {
	if len(s) > 64 {
		return s[:64]
	}
	return s
}

func checkIssuer(key nkeys.KeyPair) error {
	if key == nil {
		return errors.New("is required")
	}
	public, err := key.PublicKey()
	if err != nil {
		return err
	}
	if !nkeys.IsValidPublicAccountKey(public) {
		return errors.New("is not an account key")
	}
	if _, err := key.Sign([]byte("belfry")); err != nil {
		return fmt.Errorf("cannot sign: %w", err)
	}
	return nil
}
