package natsauth

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	// Clients wait 2 s for a log-in, so the Verifier gets less.
	verifyTimeout = time.Second
	maxTokenBytes = 256
)

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
