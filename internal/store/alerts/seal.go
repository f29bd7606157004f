package alerts

import (
	"encoding/json"

	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/seal"
)

// sealed encrypts the secrets of channels as JSON, bound to the channel's name.
type sealed struct{ *seal.Seal }

func (s sealed) close(name string, secrets alert.Secrets) ([]byte, error) {
	text, err := json.Marshal(secrets) //nolint:gosec // sealed below
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "encode the secrets", err)
	}
	return s.Close(name, text), nil
}

// open decrypts the output of close, including output written before there was a key. Conflict means that it was sealed
// with another key.
func (s sealed) open(name string, stored []byte) (secrets alert.Secrets, err error) {
	text, err := s.Open(name, stored)
	if err != nil || text == nil {
		return secrets, err
	}
	if err := json.Unmarshal(text, &secrets); err != nil {
		return secrets, domain.WrapError(domain.Internal, "the channel's stored secrets are damaged", err)
	}
	return secrets, nil
}
