package natsauth

import (
	"context"
	"encoding/json"
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
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/executor/wire"
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
	workers         = 16
	flushTimeout    = 2 * time.Second

	// The subjects on which Belfry's processes notify each other. No executor may use them.
	changedSubject = wire.Prefix + "login.changed" // the body is a group, or the name of a sender
	closedSubject  = wire.Prefix + "login.closed"  // the body is a closedGroup
)

// AnnounceChange tells all Responders that the tokens of a group or of a sender have changed. They forget what they
// know of its tokens, and end the connections whose token is no longer valid.
func AnnounceChange(nc *nats.Conn, owner string) error {
	if err := nc.Publish(changedSubject, []byte(owner)); err != nil {
		return domain.WrapError(domain.Unavailable, "announce changed tokens", err)
	}
	return nil
}

type closedGroup struct {
	Group     string   `json:"group"`
	Instances []string `json:"instances"`
}

// AnnounceClosed tells all Responders that a group has more instances than its limit. For a minute they refuse log-ins
// of the group's instances that are not known to be alive. They end the connections of the named instances.
func AnnounceClosed(nc *nats.Conn, group string, instances []string) error {
	body, err := json.Marshal(closedGroup{group, instances})
	if err == nil {
		err = nc.Publish(closedSubject, body)
	}
	if err != nil {
		return domain.WrapError(domain.Unavailable, "announce a group with too many instances", err)
	}
	return nil
}

var errConnectionClosed = domain.NewError(domain.Unavailable, "the NATS connection that answers log-ins was closed")

// Defaults of Config.
const (
	DefaultAccount   = "BELFRY"
	DefaultLifetime  = 12 * time.Hour
	DefaultCacheSize = 10_000
)

// Verifier maps tokens to groups.
type Verifier interface {
	// GroupOfToken returns the name of the group that a token belongs to, and how long the token stays valid: 0 means
	// until it is replaced. An error of code domain.Unavailable means that this is currently unknown, and one of code
	// domain.Internal says nothing about the token. Any other error is a verdict: the token is not valid.
	GroupOfToken(ctx context.Context, token string) (group string, left time.Duration, err error)
}

// Senders verifies API tokens for sending events.
type Senders interface {
	// SenderOfToken returns the id of the token, and how long it stays valid: 0 means until it is deleted. Its errors
	// are like those of Verifier.
	SenderOfToken(ctx context.Context, token string) (id int64, left time.Duration, err error)
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
	// Limits are the limits of groups; nil: the defaults apply to all.
	Limits Limits
	// Sessions count the connections of each group and end those whose token is no longer valid. If nil, Lifetime should
	// be ShortLifetime, and only the rate of log-ins is limited.
	Sessions *Sessions
	// Directory is asked again about the tokens in the cache; nil: it is not.
	Directory Directory
	// Alive reports whether an instance is known to be alive and within its group's limit. If a group has too many
	// instances, only these may log in. nil: none is known.
	Alive func(group, instance string) bool
	// Registry receives the metrics, unless Sessions have them; may be nil.
	Registry prometheus.Registerer
}

// Stats counts the answers of a Responder since its start.
type Stats struct {
	Allowed     int64 // by the Verifier
	FromCache   int64 // allowed from the cache while the Verifier was unavailable
	Refused     int64 // unknown token
	Unavailable int64 // refused because the Verifier was unavailable and the token not in the cache
	Limited     int64 // refused because of a limit of the group
	Dropped     int64 // not answered, because too many log-ins waited
	Malformed   int64 // requests that were not a client's log-in
}

// Responder answers the log-ins that NATS servers forward by auth callout.
type Responder struct {
	cfg     Config
	known   *verified
	gates   *gates
	waiting *queue[login]
	samples *samples
	ready   chan struct{}
	once    sync.Once
	*metrics

	allowed, fromCache, refused, unavailable, limited, droppedLogins, malformedLogins atomic.Int64
}

// login is a request that waits for its answer.
type login struct {
	msg *nats.Msg
	req *jwt.AuthorizationRequestClaims
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
	gates, err := newGates(cfg.Limits)
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "prepare the limits of log-ins", err)
	}
	r := &Responder{
		cfg: cfg, known: known, gates: gates, waiting: newQueue[login](), samples: newSamples(cfg.Log), ready: make(chan struct{}),
	}
	if cfg.Sessions != nil {
		r.metrics = cfg.Sessions.metrics
	} else {
		r.metrics = newMetrics(cfg.Registry)
	}
	return r, nil
}

// Run answers log-ins that arrive on nc, a connection of the system side, until ctx is cancelled. Before it returns, it
// answers the log-ins in progress. It continues after reconnects, and fails only if nc is closed.
func (r *Responder) Run(ctx context.Context, nc *nats.Conn) error {
	requests := make(chan *nats.Msg, maxWaiting)
	for _, subscribe := range []func() (*nats.Subscription, error){
		func() (*nats.Subscription, error) { return nc.ChanQueueSubscribe(authSubject, queueGroup, requests) },
		func() (*nats.Subscription, error) { return nc.Subscribe(changedSubject, r.changed) },
		func() (*nats.Subscription, error) { return nc.Subscribe(closedSubject, r.closed) },
	} {
		sub, err := subscribe()
		if err != nil {
			return domain.WrapError(domain.Unavailable, "subscribe to NATS log-ins", err)
		}
		defer func() {
			if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
				r.cfg.Log.Warn("cannot unsubscribe from NATS log-ins, the subscription ends with the connection", "err", err)
			}
		}()
	}
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
	wg.Go(func() { r.sort(ctx, requests) })
	wg.Go(func() { r.review(ctx) })
	for range workers {
		wg.Go(func() { r.work(ctx) })
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

// Recheck removes those tokens of a group or sender from the cache that are no longer valid, so that they are not accepted
// in a later outage. If this cannot be known now, it removes them all.
func (r *Responder) Recheck(owner string) {
	if r.cfg.Directory != nil {
		ctx, cancel := context.WithTimeout(context.Background(), verifyTimeout)
		defer cancel()
		if gone, err := invalid(ctx, r.cfg.Directory, r.known.users(owner)); err == nil {
			r.known.removeUsers(gone)
			return
		}
	}
	r.known.removeOwner(owner)
}

// changed handles the message of AnnounceChange.
func (r *Responder) changed(msg *nats.Msg) {
	r.Recheck(string(msg.Data))
	if r.cfg.Sessions != nil {
		r.cfg.Sessions.Check()
	}
}

// closed handles the message of AnnounceClosed.
func (r *Responder) closed(msg *nats.Msg) {
	var c closedGroup
	if err := json.Unmarshal(msg.Data, &c); err != nil || !groupName.MatchString(c.Group) {
		r.samples.warn("a message about a group with too many instances is malformed, it is ignored", "", err)
		return
	}
	r.gates.close(c.Group, time.Now())
	if r.cfg.Sessions != nil {
		r.cfg.Sessions.EndInstances(c.Group, c.Instances)
	}
}

// review asks periodically whether the tokens in the cache are still valid, so that one that ended shortly before an
// outage is not accepted in it.
func (r *Responder) review(ctx context.Context) {
	if r.cfg.Directory == nil {
		return
	}
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := r.reviewCache(ctx); err != nil && ctx.Err() == nil {
			r.samples.warn("cannot check the tokens in memory, retrying", "", err)
		}
	}
}

func (r *Responder) reviewCache(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	gone, err := invalid(ctx, r.cfg.Directory, r.known.users(""))
	if err == nil {
		r.known.removeUsers(gone)
	}
	return err
}

// Stats returns the current counters.
func (r *Responder) Stats() Stats {
	return Stats{
		Allowed:     r.allowed.Load(),
		FromCache:   r.fromCache.Load(),
		Refused:     r.refused.Load(),
		Unavailable: r.unavailable.Load(),
		Limited:     r.limited.Load(),
		Dropped:     r.droppedLogins.Load(),
		Malformed:   r.malformedLogins.Load(),
	}
}

// sort puts requests into the lane of their group, or that of their host if the token is not known.
func (r *Responder) sort(ctx context.Context, requests <-chan *nats.Msg) {
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-requests:
			req, err := r.decode(msg.Data)
			if err != nil {
				r.malformedLogins.Add(1)
				r.logins.WithLabelValues("", malformed).Inc()
				r.samples.warn("a NATS log-in request is malformed, it gets no answer", "", err)
				continue
			}
			name := r.known.owner(hashOf(req.ConnectOptions.Token))
			if name == "" {
				name = hostLane + req.ClientInformation.Host
			}
			if lane, full := r.waiting.push(name, login{msg, req}); full {
				r.drop(lane)
			}
		}
	}
}

// hostLane begins the lanes of unknown tokens. No group name begins with it.
const hostLane = "host "

func (r *Responder) drop(lane string) {
	r.droppedLogins.Add(1)
	if strings.HasPrefix(lane, hostLane) || strings.HasPrefix(lane, senderPrefix) {
		lane = ""
	}
	r.logins.WithLabelValues(lane, dropped).Inc()
	r.samples.warn("too many NATS log-ins wait, the newest ones get no answer and their clients retry", lane, nil)
}

func (r *Responder) work(ctx context.Context) {
	for {
		next, ok := r.waiting.pop(ctx)
		if !ok {
			return
		}
		now := time.Now()
		if now.Unix() > next.req.Expires { // the server has refused it already
			r.drop(r.known.owner(hashOf(next.req.ConnectOptions.Token)))
			continue
		}
		answer, err := r.decide(context.WithoutCancel(ctx), next.req, now)
		if err != nil {
			r.samples.warn("cannot answer a NATS log-in, the client retries", "", err)
			continue
		}
		if err := next.msg.Respond(answer); err != nil {
			r.samples.warn("cannot answer a NATS log-in, the client retries", "", err)
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
	return r.decide(ctx, req, now)
}

// decide returns the encoded response to a valid request.
func (r *Responder) decide(ctx context.Context, req *jwt.AuthorizationRequestClaims, now time.Time) ([]byte, error) {
	response := jwt.NewAuthorizationResponseClaims(req.UserNkey)
	response.Audience = req.Server.ID
	v := r.admit(ctx, req, now)
	if v.err == nil {
		response.Jwt, v.err = r.userJWT(v, req.UserNkey, now)
	}
	r.logins.WithLabelValues(groupLabel(v.owner), v.outcome).Inc()
	if v.err != nil {
		// The server logs this message; the client only receives an authorization violation.
		response.Error = reason(v.err)
		r.samples.warn("refused a NATS log-in, its client may retry", v.owner, v.err,
			"client", req.ClientInformation.Host, "name", shorten(req.ConnectOptions.Name))
	}
	encoded, err := response.Encode(r.cfg.Issuer)
	if err != nil {
		return nil, fmt.Errorf("sign the answer: %w", err)
	}
	return []byte(encoded), nil
}

// groupLabel returns the owner of a token if it is a group.
func groupLabel(owner string) string {
	if strings.HasPrefix(owner, senderPrefix) {
		return ""
	}
	return owner
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

// verdict is the decision about a log-in.
type verdict struct {
	grant
	hash     tokenHash
	instance string // empty for observers and senders
	outcome  string
	err      error // nil: accepted
}

// admit decides about a log-in.
func (r *Responder) admit(ctx context.Context, req *jwt.AuthorizationRequestClaims, now time.Time) (v verdict) {
	token := req.ConnectOptions.Token
	if len(token) == 0 || len(token) > maxTokenBytes {
		r.refused.Add(1)
		return verdict{outcome: refusedToken, err: domain.NewError(domain.Forbidden, "no group token")}
	}
	v.hash = hashOf(token)
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	// The limit comes before the question to Postgres, so that a storm of log-ins does not reach it.
	v.owner = r.known.owner(v.hash)
	limits, ok := r.take(ctx, v.owner, req.ClientInformation.Host, now)
	if !ok {
		r.limited.Add(1)
		v.outcome, v.err = refusedRate, errTooManyLogins
		return v
	}
	first := v.owner == ""
	if v = r.check(ctx, v, token, now); v.err != nil {
		return v
	}
	if first {
		if limits, ok = r.take(ctx, v.owner, "", now); !ok {
			r.limited.Add(1)
			v.outcome, v.err = refusedRate, errTooManyLogins
			return v
		}
	}
	return r.limit(v, limits, req, now)
}

// take takes a log-in from the budget of its group or sender, or from that of its host if the owner is not known.
func (r *Responder) take(ctx context.Context, owner, host string, now time.Time) (limits domain.GroupLimits, ok bool) {
	switch {
	case owner == "":
		return limits, r.gates.host(host, now)
	case strings.HasPrefix(owner, senderPrefix):
		return limits, r.gates.sender(owner, now)
	}
	return r.gates.group(ctx, owner, now)
}

// check asks the Verifier about a token, or the cache while the Verifier is unavailable.
func (r *Responder) check(ctx context.Context, v verdict, token string, now time.Time) verdict {
	owner, left, err := r.verify(ctx, token)
	switch {
	case err == nil:
		v.grant = grant{owner: owner}
		if left > 0 {
			v.until = now.Add(left)
		}
		r.known.add(v.hash, v.grant)
		r.allowed.Add(1)
		v.outcome = accepted
	case away(err):
		if g, ok := r.known.grant(v.hash, now); ok {
			r.fromCache.Add(1)
			v.grant, v.outcome = g, acceptedFromMemory
			return v
		}
		r.unavailable.Add(1)
		v.outcome, v.err = refusedUnavailable, domain.WrapError(domain.Unavailable, "tokens cannot be verified at the moment", err)
	default:
		// Only a verdict on the token itself removes it from the cache; a bug or a damaged row does not.
		if code := domain.CodeOf(err); code != domain.Internal {
			r.known.remove(v.hash)
		}
		r.refused.Add(1)
		v.outcome, v.err = refusedToken, domain.WrapError(domain.Forbidden, "token refused", err)
	}
	return v
}

// limit decides about a log-in with a valid token by the limits of its group, and finds the instance that it is for.
func (r *Responder) limit(v verdict, limits domain.GroupLimits, req *jwt.AuthorizationRequestClaims, now time.Time) verdict {
	if strings.HasPrefix(v.owner, senderPrefix) {
		return v
	}
	name := req.ConnectOptions.Name
	instance, meant, named := instanceOf(name, v.owner)
	switch {
	case named:
		v.instance = instance
	case meant:
		r.refused.Add(1)
		v.outcome, v.err = refusedName, domain.NewError(domain.Forbidden, "the client name is not <group>.<instance> with a valid instance name")
		return v
	case v.outcome == accepted:
		v.outcome = acceptedObserver
	}
	if r.gates.isClosed(v.owner, now) && (r.cfg.Alive == nil || !named || !r.cfg.Alive(v.owner, instance)) {
		r.limited.Add(1)
		v.outcome, v.err = refusedInstances, tooManyInstances(limits)
		return v
	}
	at := connection{req.Server.ID, req.ClientInformation.ID}
	if r.cfg.Sessions != nil && !r.cfg.Sessions.admit(at, v.hash.user(v.owner), v.owner, name, limits.MaxConnections) {
		r.limited.Add(1)
		v.outcome, v.err = refusedConnections, tooManyConnections(limits)
	}
	return v
}

// verify returns the group or sender that a token belongs to.
func (r *Responder) verify(ctx context.Context, token string) (owner string, left time.Duration, err error) {
	group, left, err := r.cfg.Verifier.GroupOfToken(ctx, token)
	if err == nil || r.cfg.Senders == nil || away(err) {
		return group, left, err
	}
	id, left, senderErr := r.cfg.Senders.SenderOfToken(ctx, token)
	switch {
	case senderErr == nil:
		return SenderName(id), left, nil
	case away(senderErr), domain.CodeOf(senderErr) == domain.Internal:
		return "", 0, senderErr
	}
	return "", 0, err
}

// away reports whether the Verifier is unavailable.
func away(err error) bool {
	return domain.CodeOf(err) == domain.Unavailable || errors.Is(err, context.DeadlineExceeded)
}

func (r *Responder) userJWT(v verdict, userKey string, now time.Time) (string, error) {
	var permissions jwt.Permissions
	var err error
	switch {
	case strings.HasPrefix(v.owner, senderPrefix):
		permissions = SenderPermissions(v.owner)
	case v.instance != "":
		permissions, err = Permissions(v.owner, v.instance)
	default:
		permissions, err = ObserverPermissions(v.owner)
	}
	if err != nil {
		return "", err
	}
	user := jwt.NewUserClaims(userKey)
	user.Name = v.hash.user(v.owner) // shown by the server as the connection's user
	user.Audience = r.cfg.Account
	user.Permissions = permissions
	// Leaf nodes are not allowed, because one would carry all clients of another server. MQTT is not allowed either.
	user.AllowedConnectionTypes = jwt.StringList{
		jwt.ConnectionTypeStandard, jwt.ConnectionTypeWebsocket, jwt.ConnectionTypeInProcess,
	}
	spread := time.Duration(rand.Int64N(int64(r.cfg.Lifetime)/10 + 1))
	expires := now.Add(r.cfg.Lifetime - spread)
	if !v.until.IsZero() && v.until.Before(expires) {
		expires = v.until
	}
	user.Expires = expires.Unix()
	return user.Encode(r.cfg.Issuer)
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
