// Package seal encrypts secrets for storage in Postgres.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"

	"github.com/belfryhq/belfry/internal/domain"
)

// The first byte of stored secrets is their format.
const (
	formPlain  = 0
	formSealed = 1 // 12 bytes of nonce, then AES-256-GCM, bound to the name of what the secret belongs to
)

// Seal protects secrets from anyone who can read the database or a copy of it. The key is the SHA-256 of the
// setting, which must be random and not a chosen password. A Seal without a key stores secrets unencrypted.
type Seal struct {
	gcm  cipher.AEAD
	what string
}

// New returns a Seal. The texts of its errors begin with what, such as "the channel's secrets". An empty key means that there is none.
func New(key, what string) *Seal {
	if key == "" {
		return &Seal{what: what}
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
	return &Seal{gcm, what}
}

// Encrypts reports whether there is a key.
func (s *Seal) Encrypts() bool { return s.gcm != nil }

// Close returns the stored form of the secret of name.
func (s *Seal) Close(name string, secret []byte) []byte {
	if s.gcm == nil {
		return append([]byte{formPlain}, secret...)
	}
	nonce := make([]byte, s.gcm.NonceSize())
	rand.Read(nonce) // documented to never fail
	return s.gcm.Seal(append([]byte{formSealed}, nonce...), nonce, secret, []byte(name))
}

// Open decrypts the output of Close, including output written before there was a key. It returns nil for an empty input. Conflict means that
// the secret was sealed with another key.
func (s *Seal) Open(name string, stored []byte) ([]byte, error) {
	if len(stored) == 0 {
		return nil, nil
	}
	text := stored[1:]
	if stored[0] != formSealed {
		return text, nil
	}
	if s.gcm == nil {
		return nil, domain.NewError(domain.Conflict, s.what+" are sealed, and this server has no --secret-key")
	}
	n := s.gcm.NonceSize()
	if len(text) < n {
		return nil, domain.NewError(domain.Internal, s.what+" are damaged")
	}
	text, err := s.gcm.Open(nil, text[:n], text[n:], []byte(name))
	if err != nil {
		return nil, domain.NewError(domain.Conflict, s.what+" were sealed with another --secret-key")
	}
	return text, nil
}
