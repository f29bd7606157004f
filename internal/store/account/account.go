package account

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/store/account/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/bearer"
)

// Stores are the stores of this package on one pool. They are safe for concurrent use.
type Stores struct {
	Users    *Users
	Sessions *Sessions
	Tokens   *Tokens
}

// New returns Stores on a pool whose connections have Belfry's schema on their search path. Users and Sessions share one
// limit of concurrent password hashes.
func New(pool *pgxpool.Pool) Stores {
	q, h := sqlcgen.New(pool), newHasher()
	return Stores{Users: &Users{pool, q, h}, Sessions: &Sessions{pool, q, h}, Tokens: &Tokens{q}}
}

// Authenticate returns the principal of a session token or an API token, or ErrCredentials.
func (s Stores) Authenticate(ctx context.Context, token string) (Principal, error) {
	switch {
	case bearer.Is(token, bearer.Session):
		return s.Sessions.principal(ctx, token)
	case bearer.Is(token, bearer.API):
		return s.Tokens.principal(ctx, token)
	}
	return Principal{}, ErrCredentials
}

// Weaken makes new hashes cheap, for tests of packages that use accounts. It must not be used for real passwords.
func (s Stores) Weaken() { s.Users.hasher.memory, s.Users.hasher.passes = 8, 1 }
