package natsauth

import (
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/belfryhq/belfry/internal/domain"
)

// NewIssuer makes an issuer key. Its public key belongs into the server's auth_callout, its seed into the
// settings of every process that runs a Responder.
func NewIssuer() (nkeys.KeyPair, error) {
	key, err := nkeys.CreateAccount()
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "make an issuer key", err)
	}
	return key, nil
}

// ParseIssuer reads the seed of an issuer key, "SA…". The error never repeats the seed.
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
