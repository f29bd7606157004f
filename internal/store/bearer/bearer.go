// Package bearer creates and recognizes the secret tokens of sessions, API tokens and executor groups.
//
// A token is 256 random bits behind a prefix for its purpose. The stores keep only its SHA-256; a random token needs no slow
// hash. The token itself is returned once, by the call that creates it.
package bearer

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Prefix is the start of a token. It tells the purpose of the token.
type Prefix string

// The prefixes. All have the same length.
const (
	Session Prefix = "bfs_" // a log-in
	API     Prefix = "bft_" // an API token
	Group   Prefix = "bfg_" // the executors of a group
)

// New generates a token and returns it with the digest to store.
func New(p Prefix) (token string, digest []byte) {
	var b [32]byte
	rand.Read(b[:]) // never fails, by its contract
	token = string(p) + base64.RawURLEncoding.EncodeToString(b[:])
	return token, Digest(token)
}

// Digest returns the SHA-256 of a token.
func Digest(token string) []byte {
	d := sha256.Sum256([]byte(token))
	return d[:]
}

// length is the length of every token.
const length = len(Session) + 43

// Is reports whether token has the form of a token with this prefix. The stores reject other tokens without a query.
func Is(token string, p Prefix) bool {
	return len(token) == length && strings.HasPrefix(token, string(p))
}
