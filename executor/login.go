package executor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// foreignTokenError means that NATS accepted the token, but permits it only another group's subjects.
type foreignTokenError struct {
	group string
	err   error
}

func (e *foreignTokenError) Error() string {
	return fmt.Sprintf("this token is not group %s's: %v", e.group, e.err)
}
func (e *foreignTokenError) Unwrap() error { return e.err }

// complain logs why there is no connection, and counts refused log-ins.
func (l *link) complain(err error) {
	var foreign *foreignTokenError
	switch {
	case errors.As(err, &foreign):
		if l.refused.Add(1) == 1 {
			l.log.Error("the token is another group's: give the one that was shown when this group was made, or the name of its group",
				"error", err)
		} else {
			l.log.Warn("the token is still another group's; trying again", "within", l.slowest(), "error", err)
		}
	case isRefusal(err):
		n := l.refused.Add(1)
		switch {
		case !l.noToken():
			l.log.Error("NATS refuses the token of this group; trying again, as it may be issued anew", "within", l.slowest(), "error", err)
		case n == 1:
			l.log.Error("no token was given, and NATS refuses the log-in: set BELFRY_TOKEN or --token of belfry executor, "+
				"or Config.Token, to the token that was shown when the group was made", "error", err)
		default:
			l.log.Warn("NATS still refuses the log-in without a token; trying again", "within", l.slowest(), "error", err)
		}
	default:
		l.refused.Store(0)
		l.log.Warn("NATS cannot be reached; trying again", "within", l.slowest(), "error", err)
	}
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
		l.log.Info("the log-in has run out, as each does after a while; logging in again")
	case isRefusal(err):
		l.complain(err)
	case errors.Is(err, nats.ErrPermissionViolation) && l.connection() == nil:
		l.log.Debug("NATS permits a subject not", "error", err) // connect reports the cause
	default:
		subject := ""
		if sub != nil {
			subject = sub.Subject
		}
		l.log.Error("NATS reports an error", "subject", subject, "error", err)
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
