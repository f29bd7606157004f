package natsauth

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	authAudience    = "nats-authorization-request"
	maxRequestBytes = 64 << 10
)

// login is a request that waits for its answer.
type login struct {
	msg *nats.Msg
	req *jwt.AuthorizationRequestClaims
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

// groupLabel returns the owner of a token if it is a group.
func groupLabel(owner string) string {
	if strings.HasPrefix(owner, senderPrefix) {
		return ""
	}
	return owner
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
