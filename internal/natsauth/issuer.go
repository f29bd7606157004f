package natsauth

import (
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/belfryhq/belfry/internal/domain"
)

// NewIssuer creates an issuer key. Its public key belongs in the server's auth_callout, its seed in the settings of
// every process that runs a Responder.
func NewIssuer() (nkeys.KeyPair, error) {
	key, err := nkeys.CreateAccount()
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "make an issuer key", err)
	}
	return key, nil
}

// ParseIssuer parses the seed of an issuer key, "SA…". The error never contains the seed.
func ParseIssuer(seed string) (nkeys.KeyPair, error) {
	key, err := nkeys.FromSeed([]byte(strings.TrimSpace(seed)))
	if err != nil {
		return nil, domain.WrapError(domain.Invalid, "the issuer seed is not an nkey seed", err)
	}
	if err := checkIssuer(key); err != nil {
		return nil, domain.WrapError(domain.Invalid, "the issuer seed", err)
	}
	return key, nil
}
