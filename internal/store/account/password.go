package account

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/trustelem/zxcvbn/frequency"
	"golang.org/x/crypto/argon2"

	"github.com/belfryhq/belfry/internal/domain"
)

// The cost of a hash is the second recommendation of RFC 9106 with less memory and more passes. It keeps a log-in under
// about 50 ms and the memory of a burst of log-ins within maxHashing times hashMemoryKiB.
const (
	hashMemoryKiB = 32 << 10
	hashPasses    = 3
	hashLanes     = 1
	hashBytes     = 32
	saltBytes     = 16
	maxHashing    = 4
)

// The bounds of a password, in characters. The upper bound only limits the hash's work.
const (
	MinPasswordChars = 10
	MaxPasswordChars = 256
)

// CheckPassword validates a new password of the user. The error is a domain error at the given location.
func CheckPassword(location, user, password string) error {
	var f domain.Faults
	switch n := utf8.RuneCountInString(password); {
	case !utf8.ValidString(password):
		f.Add(location, "must be text in UTF-8")
	case n < MinPasswordChars:
		f.Add(location, fmt.Sprintf("has %d characters; at least %d are needed", n, MinPasswordChars))
	case n > MaxPasswordChars:
		f.Add(location, fmt.Sprintf("has %d characters; at most %d are allowed", n, MaxPasswordChars))
	case fewKinds(password):
		f.Add(location, "repeats very few characters")
	case common(password):
		f.Add(location, "is one of the most common passwords, or one with a few characters added; attackers try these first")
	case isName(user, password):
		f.Add(location, "is little more than the user's name; attackers try this first")
	}
	return f.Err("the password is not accepted")
}

// maxAdded is the number of characters around a common password that do not make it a good one.
const maxAdded = 4

// common reports whether a password is in a list of common ones, regardless of case and of a few digits and other signs
// around it.
func common(password string) bool {
	lower := strings.ToLower(password)
	bare := strings.TrimFunc(lower, func(r rune) bool { return !unicode.IsLetter(r) })
	if utf8.RuneCountInString(bare)+maxAdded < utf8.RuneCountInString(lower) {
		bare = lower
	}
	return slices.ContainsFunc(frequency.FrequencyLists["passwords"], func(known string) bool { return known == lower || known == bare })
}

// fewKinds reports whether a password consists of fewer than four different characters.
func fewKinds(password string) bool {
	kinds := map[rune]bool{}
	for _, r := range strings.ToLower(password) {
		kinds[r] = true
	}
	return len(kinds) < 4
}

// isName reports whether a password has hardly any letters besides the user's name, forwards or backwards.
func isName(user, password string) bool {
	user, password = strings.ToLower(user), strings.ToLower(password)
	if user == "" {
		return false
	}
	backwards := []rune(user)
	slices.Reverse(backwards)
	for _, name := range []string{user, string(backwards)} {
		left := strings.ReplaceAll(password, name, "")
		letters := strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) {
				return r
			}
			return -1
		}, left)
		if left != password && utf8.RuneCountInString(letters) < 3 && utf8.RuneCountInString(left) < MinPasswordChars {
			return true
		}
	}
	return false
}

// generatePassword generates a password of 120 random bits without characters that are easily confused.
func generatePassword() string {
	const alphabet = "abcdefghijkmnpqrstuvwxyz23456789" // 32 of them: 5 bits each
	b := make([]byte, 24)
	rand.Read(b)
	for i := range b {
		b[i] = alphabet[b[i]%32]
	}
	return string(b)
}

// hasher hashes passwords with argon2id.
type hasher struct {
	slots  chan struct{} // one slot for each hash in progress, because each takes hashMemoryKiB
	memory uint32        // per hash, in KiB
	passes uint32        // per hash
}

func newHasher() *hasher {
	return &hasher{slots: make(chan struct{}, maxHashing), memory: hashMemoryKiB, passes: hashPasses}
}

// hash returns the PHC string of a password. It waits for a free slot; the only error is that of ctx.
func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	if err := h.takeSlot(ctx); err != nil {
		return "", err
	}
	defer h.freeSlot()
	salt := make([]byte, saltBytes)
	rand.Read(salt)
	key := argon2.IDKey([]byte(password), salt, h.passes, h.memory, hashLanes, hashBytes)
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.passes, hashLanes,
		base64.RawStdEncoding.EncodeToString(salt), base64.RawStdEncoding.EncodeToString(key)), nil
}

// verify reports whether password matches the PHC string, and whether the hash should be recomputed with the current
// parameters. For an empty string it does the same work and returns false, so that the duration does not reveal whether
// a user exists.
func (h *hasher) verify(ctx context.Context, phc, password string) (ok, stale bool, err error) {
	if err := h.takeSlot(ctx); err != nil {
		return false, false, err
	}
	defer h.freeSlot()
	if phc == "" {
		argon2.IDKey([]byte(password), make([]byte, saltBytes), h.passes, h.memory, hashLanes, hashBytes)
		return false, false, nil
	}
	stored, err := parsePHC(phc)
	if err != nil {
		return false, false, err
	}
	key := argon2.IDKey([]byte(password), stored.salt, stored.passes, stored.memory, stored.lanes, uint32(len(stored.key)))
	ok = subtle.ConstantTimeCompare(key, stored.key) == 1
	return ok, stored.memory != h.memory || stored.passes != h.passes || stored.lanes != hashLanes, nil
}

func (h *hasher) takeSlot(ctx context.Context) error {
	select {
	case h.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return domain.WrapError(domain.Unavailable, "too many log-ins at once", ctx.Err())
	}
}

func (h *hasher) freeSlot() { <-h.slots }

type parsedHash struct {
	memory, passes uint32
	lanes          uint8
	salt, key      []byte
}

func parsePHC(phc string) (h parsedHash, err error) {
	bad := domain.NewError(domain.Internal, "a stored password hash is damaged")
	parts := strings.Split(phc, "$")
	if len(parts) != 6 || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return h, bad
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.passes, &h.lanes); err != nil {
		return h, bad
	}
	if h.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
		return h, bad
	}
	if h.key, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil {
		return h, bad
	}
	if h.passes == 0 || h.lanes == 0 || h.memory == 0 || h.memory > 1<<20 || len(h.key) < 16 {
		return h, bad
	}
	return h, nil
}
