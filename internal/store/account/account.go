package account

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/store/account/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Store keeps accounts in Postgres. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	q       *sqlcgen.Queries
	hashing chan struct{} // one slot for each hash in progress, because each takes hashMemoryKiB
	memory  uint32        // per hash, in KiB
	passes  uint32        // per hash
}

// New returns a Store on a pool whose connections have Belfry's schema on their search path.
func New(pool *pgxpool.Pool) *Store {
	return &Store{pool: pool, q: sqlcgen.New(pool), hashing: make(chan struct{}, maxHashing), memory: hashMemoryKiB, passes: hashPasses}
}

// The prefixes of tokens, by purpose.
const (
	SessionPrefix = "bfs_"
	TokenPrefix   = "bft_"
	GroupPrefix   = "bfg_"
)

// newToken generates a token and returns it with the digest to store.
func newToken(prefix string) (token string, digest []byte) {
	var b [32]byte
	rand.Read(b[:]) // never fails, by its contract
	token = prefix + base64.RawURLEncoding.EncodeToString(b[:])
	return token, tokenDigest(token)
}

func tokenDigest(token string) []byte {
	d := sha256.Sum256([]byte(token))
	return d[:]
}

// tokenLength is the length of every token. Tokens of another length are rejected without a query.
const tokenLength = len(SessionPrefix) + 43

func looksLike(token, prefix string) bool {
	return len(token) == tokenLength && strings.HasPrefix(token, prefix)
}

// Sweep deletes expired log-ins and idempotency keys, and returns the number of deleted rows. It is called
// periodically. Expired rows are ignored even before it runs.
func (s *Store) Sweep(ctx context.Context) (int64, error) {
	sessions, err := s.q.DeleteExpiredSessions(ctx)
	if err != nil {
		return 0, pgerr.Translate(err)
	}
	keys, err := s.q.DeleteOldIdempotent(ctx)
	return sessions + keys, pgerr.Translate(err)
}

// SweepEvery is the recommended period for Sweep.
const SweepEvery = 10 * time.Minute
