package natsauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/prometheus/client_golang/prometheus"
)

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
