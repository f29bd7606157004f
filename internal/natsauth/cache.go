package natsauth

import (
	"crypto/sha256"

	lru "github.com/hashicorp/golang-lru/v2"
)

type tokenHash [sha256.Size]byte

// verified caches the group that each token was last verified for. It is safe for concurrent use.
type verified struct {
	groups *lru.Cache[tokenHash, string]
}

func newVerified(size int) (*verified, error) {
	groups, err := lru.New[tokenHash, string](size)
	if err != nil {
		return nil, err
	}
	return &verified{groups: groups}, nil
}

func (v *verified) group(token string) (string, bool) {
	return v.groups.Get(sha256.Sum256([]byte(token)))
}

func (v *verified) remove(token string) { v.groups.Remove(sha256.Sum256([]byte(token))) }

// add records that the Verifier accepted token for group. A group has one token at a time, so any other cached token of
// the group has been replaced and must not be accepted in the next outage.
func (v *verified) add(token, group string) {
	hash := sha256.Sum256([]byte(token))
	if known, ok := v.groups.Get(hash); ok && known == group {
		return
	}
	v.removeGroup(group)
	v.groups.Add(hash, group)
}

func (v *verified) removeGroup(group string) {
	for _, hash := range v.groups.Keys() {
		if known, ok := v.groups.Peek(hash); ok && known == group {
			v.groups.Remove(hash)
		}
	}
}
