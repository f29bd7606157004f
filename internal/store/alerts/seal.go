package alerts

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"

	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
)

// The first byte of stored secrets is their format.
const (
	formPlain  = 0
	formSealed = 1 // 12 bytes of nonce, then AES-256-GCM of the JSON, bound to the channel's name
)

// seal protects the secrets from anyone who can read the database or a copy of it. The key is the SHA-256 of the
// setting, which must be random and not a chosen password.
type seal struct{ gcm cipher.AEAD }

func newSeal(key string) *seal {
	if key == "" {
		return &seal{}
	}
	sum := sha256.Sum256([]byte(key))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has the block size that GCM needs
	}
	return &seal{gcm}
}

func (s *seal) close(name string, secrets alert.Secrets) ([]byte, error) {
	text, err := json.Marshal(secrets) //nolint:gosec // sealed below
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "encode the secrets", err)
	}
	if s.gcm == nil {
		return append([]byte{formPlain}, text...), nil
	}
	nonce := make([]byte, s.gcm.NonceSize())
	rand.Read(nonce) // documented to never fail
	return s.gcm.Seal(append([]byte{formSealed}, nonce...), nonce, text, []byte(name)), nil
}

// open decrypts the output of close, including output written before there was a key. Conflict means that it was sealed
// with another key.
func (s *seal) open(name string, stored []byte) (secrets alert.Secrets, err error) {
	if len(stored) == 0 {
		return secrets, nil
	}
	text := stored[1:]
	if stored[0] == formSealed {
		if s.gcm == nil {
			return secrets, domain.NewError(domain.Conflict, "the channel's secrets are sealed, and this server has no --secret-key")
		}
		n := s.gcm.NonceSize()
		if len(text) < n {
			return secrets, domain.NewError(domain.Internal, "the channel's stored secrets are damaged")
		}
		if text, err = s.gcm.Open(nil, text[:n], text[n:], []byte(name)); err != nil {
			return secrets, domain.NewError(domain.Conflict, "the channel's secrets were sealed with another --secret-key")
		}
	}
	if err := json.Unmarshal(text, &secrets); err != nil {
		return secrets, domain.WrapError(domain.Internal, "the channel's stored secrets are damaged", err)
	}
	return secrets, nil
}
