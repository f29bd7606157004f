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

// Store keeps accounts in Postgres. Its methods may be called by many goroutines.
type Store struct {
	pool    *pgxpool.Pool
	q       *sqlcgen.Queries
	hashing chan struct{} // a slot for each hash under way, because each takes hashMemoryKiB
	memory  uint32        // of a hash, in KiB
	passes  uint32        // of a hash
}

// New makes a Store on a pool whose connections have Belfry's schema on their search path.
func New(pool *pgxpool.Pool) *Store {
	return &Store{pool: pool, q: sqlcgen.New(pool), hashing: make(chan struct{}, maxHashing), memory: hashMemoryKiB, passes: hashPasses}
}

// The prefixes of tokens, by what they are for.
const (
	SessionPrefix = "bfs_"
	TokenPrefix   = "bft_"
	GroupPrefix   = "bfg_"
)

// newToken draws a token and returns it with the digest that is stored.
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

// tokenLength is the length of every token; what is longer or shorter never reaches Postgres.
const tokenLength = len(SessionPrefix) + 43

func looksLike(token, prefix string) bool {
	return len(token) == tokenLength && strings.HasPrefix(token, prefix)
}

// Sweep deletes expired log-ins and idempotency keys, and says how many rows went. Somebody calls it now and then;
// nothing expired is honoured before it comes.
func (s *Store) Sweep(ctx context.Context) (int64, error) {
	sessions, err := s.q.DeleteExpiredSessions(ctx)
	if err != nil {
		return 0, pgerr.Translate(err)
	}
	keys, err := s.q.DeleteOldIdempotent(ctx)
	return sessions + keys, pgerr.Translate(err)
}

// SweepEvery is a good period for Sweep.
const SweepEvery = 10 * time.Minute
