package account

import (
	"encoding/base64"

	"golang.org/x/crypto/argon2"
)

// WeakKey is the key part of a hash of "correct horse" with parameters below the current ones.
func WeakKey() string {
	salt, _ := base64.RawStdEncoding.DecodeString("c29tZXNhbHRzb21lc2FsdA")
	return base64.RawStdEncoding.EncodeToString(argon2.IDKey([]byte("correct horse"), salt, 1, 8, 1, 32))
}
