package executor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// foreignTokenError means that NATS accepted the token, but permits it only another group's subjects.
type foreignTokenError struct {
	group string
	err   error
}

func (e *foreignTokenError) Error() string {
	return fmt.Sprintf("this token does not belong to group %s: %v", e.group, e.err)
}
func (e *foreignTokenError) Unwrap() error { return e.err }

// unleased is why an instance has no lease, as far as it knows. It is safe for concurrent use.
type unleased struct {
	connection, heartbeat atomic.Pointer[string] // nil: no trouble
}

// The reasons why an instance has no lease. They name servers as /readyz of the other roles does. Without a connection, the instance knows
// nothing about its heartbeats.
const (
	noTokenSet       = "no token is set"
	tokenRefused     = "token refused, or no dispatcher answers log-ins"
	foreignToken     = "token refused, it belongs to another group"
	notConnected     = "nats: not connected"
	nameTaken        = "another process uses the name of this instance"
	largeHeartbeat   = "the heartbeat is too large: there are too many handlers or labels"
	beatNotConfirmed = "jetstream: no heartbeat was confirmed for ten seconds"
)

// set keeps a reason. The empty reason means that there is no trouble.
func set(of *atomic.Pointer[string], reason string) {
	if reason == "" {
		of.Store(nil)
		return
	}
	of.Store(&reason)
}

func (u *unleased) reason() string {
	for _, of := range []*atomic.Pointer[string]{&u.connection, &u.heartbeat} {
		if r := of.Load(); r != nil {
			return *r
		}
	}
	return beatNotConfirmed
}

// complain logs why there is no connection, keeps the reason, and counts refused log-ins.
func (l *link) complain(err error) {
	set(&l.unleased.connection, l.why(err))
	var foreign *foreignTokenError
	switch {
	case errors.As(err, &foreign):
		if l.refused.Add(1) == 1 {
			l.log.Error("the token belongs to another group, no runs are taken: set the token of this group, or the name of the token's group",
				"err", err)
		} else {
			l.log.Warn("the token still belongs to another group, retrying", "within", l.slowest(), "err", err)
		}
	case isRefusal(err):
		n := l.refused.Add(1)
		switch {
		case !l.noToken():
			l.log.Error("NATS refuses the token of this group, retrying because the token may be issued again", "within", l.slowest(), "err", err)
		case n == 1:
			l.log.Error("NATS refuses a log-in without a token, no runs are taken: set BELFRY_TOKEN or --token of belfry executor, "+
				"or Config.Token, to the token that was shown when the group was created", "err", err)
		default:
			l.log.Warn("NATS still refuses a log-in without a token, retrying", "within", l.slowest(), "err", err)
		}
	default:
		l.refused.Store(0)
		l.log.Warn("cannot reach NATS, retrying", "within", l.slowest(), "err", err)
	}
}

// why names the reason why a connection failed.
func (l *link) why(err error) string {
	var foreign *foreignTokenError
	switch {
	case errors.As(err, &foreign):
		return foreignToken
	case isRefusal(err) && l.noToken():
		return noTokenSet
	case isRefusal(err):
		return tokenRefused
	}
	return notConnected
}

func isRefusal(err error) bool {
	for _, refusal := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// noToken reports whether the configuration seems to contain no credentials.
func (l *link) noToken() bool {
	if l.config.Token != "" || len(l.config.NATSOptions) > 0 {
		return false
	}
	for one := range strings.SplitSeq(l.config.NATSURL, ",") {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil && u.User != nil {
			return false
		}
	}
	return true
}

// natsError handles the asynchronous errors of nats.go, such as errors while it reconnects.
func (l *link) natsError(sub *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrAuthExpired) && l.refused.Load() == 0:
		l.log.Info("the log-in to NATS has expired, logging in again")
	case isRefusal(err):
		l.complain(err)
	case errors.Is(err, nats.ErrPermissionViolation) && l.connection() == nil:
		l.log.Debug("NATS does not permit a subject", "err", err) // connect reports the cause
	default:
		subject := ""
		if sub != nil {
			subject = sub.Subject
		}
		l.log.Error("NATS reports an error, the client continues", "subject", subject, "err", err)
	}
}

// delay returns the delay before the next connection attempt. It grows up to slowest.
func (l *link) delay(try int) time.Duration {
	if n := l.refused.Load(); n > 0 {
		return backoff(int(n-1), refusedLast)
	}
	return backoff(try, reconnectLast)
}

// slowest returns the current maximum of delay. It is a string because JSON logs would show a bare number.
func (l *link) slowest() string {
	if n := l.refused.Load(); n > 0 {
		return min(reconnectFirst<<min(n-1, 10), refusedLast).String()
	}
	return reconnectLast.String()
}

func backoff(try int, last time.Duration) time.Duration {
	d := min(reconnectFirst<<min(try, 10), last)
	return d/2 + rand.N(d/2+1)
}
