package natsauth

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

type tokenHash [sha256.Size]byte

func hashOf(token string) tokenHash { return sha256.Sum256([]byte(token)) }

// user returns the name under which the server knows a connection with this token. It tells the tokens of a group apart
// and reveals none of them.
func (h tokenHash) user(owner string) string {
	if strings.HasPrefix(owner, senderPrefix) {
		return owner
	}
	return owner + userSeparator + hex.EncodeToString(h[:fingerprintBytes])
}

// No group name contains the separator.
const (
	userSeparator    = "."
	fingerprintBytes = 8
)

// userOf is a parsed user name of a connection: that of a group's token, or of an API token for events.
type userOf struct {
	group       string
	fingerprint string
	sender      int64
}

// parseUser is the inverse of tokenHash.user. ok is false for users of the system side.
func parseUser(user string) (u userOf, ok bool) {
	if id, found := strings.CutPrefix(user, senderPrefix); found {
		n, err := strconv.ParseInt(id, 10, 64)
		return userOf{sender: n}, err == nil
	}
	group, fingerprint, found := strings.Cut(user, userSeparator)
	if !found || len(fingerprint) != 2*fingerprintBytes || !groupName.MatchString(group) {
		return userOf{}, false
	}
	return userOf{group: group, fingerprint: fingerprint}, true
}

// verified caches the tokens that the Verifier has accepted. It is safe for concurrent use.
type verified struct {
	mu     sync.Mutex // makes add atomic
	tokens *lru.Cache[tokenHash, grant]
}

// grant is the access that a token gives.
type grant struct {
	owner string    // a group, or the name of a sender
	until time.Time // monotonic; zero: no end is known
}

func (g grant) over(now time.Time) bool { return !g.until.IsZero() && !now.Before(g.until) }

func newVerified(size int) (*verified, error) {
	tokens, err := lru.New[tokenHash, grant](size)
	if err != nil {
		return nil, err
	}
	return &verified{tokens: tokens}, nil
}

// grant returns the access that a token was last verified for, unless it has ended.
func (v *verified) grant(hash tokenHash, now time.Time) (grant, bool) {
	g, ok := v.tokens.Get(hash)
	return g, ok && !g.over(now)
}

// owner returns the group or sender that a token was last verified for, even if that has ended.
func (v *verified) owner(hash tokenHash) string {
	g, _ := v.tokens.Peek(hash)
	return g.owner
}

func (v *verified) remove(hash tokenHash) { v.tokens.Remove(hash) }

// add records that the Verifier accepted a token. A group has at most two tokens at a time: the current one, whose end
// is not known, and the previous one until its end. Any other cached token of the group has been replaced, and must
// not be accepted in the next outage.
func (v *verified) add(hash tokenHash, g grant) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, ok := v.tokens.Get(hash); !ok || known.owner != g.owner || known.until.IsZero() != g.until.IsZero() {
		for _, other := range v.tokens.Keys() {
			if o, ok := v.tokens.Peek(other); ok && o.owner == g.owner && o.until.IsZero() == g.until.IsZero() {
				v.tokens.Remove(other)
			}
		}
	}
	v.tokens.Add(hash, g)
}

// removeOwner removes the tokens of a group or sender.
func (v *verified) removeOwner(owner string) {
	for _, hash := range v.tokens.Keys() {
		if known, ok := v.tokens.Peek(hash); ok && known.owner == owner {
			v.tokens.Remove(hash)
		}
	}
}

// users returns the user names of the cached tokens of an owner, or of all if owner is empty, sorted.
func (v *verified) users(owner string) []string {
	var users []string
	for _, hash := range v.tokens.Keys() {
		if g, ok := v.tokens.Peek(hash); ok && (owner == "" || owner == g.owner) {
			users = append(users, hash.user(g.owner))
		}
	}
	slices.Sort(users)
	return users
}

// removeUsers removes the tokens with these user names.
func (v *verified) removeUsers(gone map[string]bool) {
	for _, hash := range v.tokens.Keys() {
		if g, ok := v.tokens.Peek(hash); ok && gone[hash.user(g.owner)] {
			v.tokens.Remove(hash)
		}
	}
}
