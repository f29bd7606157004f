package account

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Users keeps users in Postgres. It is safe for concurrent use.
type Users struct {
	pool   *pgxpool.Pool
	q      *sqlcgen.Queries
	hasher *hasher
}

// ErrCredentials means that a password or token is wrong, expired or unknown. It does not reveal which.
var ErrCredentials = errors.New("the credentials are not valid")

// Role determines what a user may do.
type Role string

// The roles. Operators and viewers are confined to their groups.
const (
	Viewer   Role = "viewer"   // reads
	Operator Role = "operator" // also changes jobs, triggers and kills runs
	Admin    Role = "admin"    // everything
)

// Roles lists all roles, the one with the fewest rights first.
var Roles = []Role{Viewer, Operator, Admin}

// AtLeast reports whether r may do all that other may. An unknown role may do nothing.
func (r Role) AtLeast(other Role) bool {
	return slices.Contains(Roles, r) && slices.Index(Roles, r) >= slices.Index(Roles, other)
}

// Lesser returns the role with fewer rights.
func Lesser(a, b Role) Role {
	if a.AtLeast(b) {
		return b
	}
	return a
}

// Kind says where a user's credentials are kept.
type Kind string

// The kinds.
const (
	Local Kind = "local" // here, as a password
	OIDC  Kind = "oidc"  // at an identity provider; there is no password here
)

// User is an account that can log in.
type User struct {
	ID                 int64
	Name               string
	Kind               Kind
	Role               Role
	Groups             []string // of operators and viewers
	Disabled           bool     // may neither log in nor use tokens
	MustChangePassword bool     // a log-in may do nothing else until the password is changed
	CreatedAt          time.Time
}

// Principal is the user or token that a request acts for.
type Principal struct {
	UserID    int64
	User      string
	Kind      Kind
	Role      Role
	OwnerRole Role      // of the user; the role of an API token can be lower
	Groups    []string  // of operators and viewers
	TokenID   int64     // of the API token; 0 for a log-in
	TokenName string    //
	SessionID int64     // of the log-in; 0 for an API token
	Scope     Scope     // of the API token
	ExpiresAt time.Time // zero: never
	// MustChangePassword is set for log-ins only: resetting a password does not stop the programs that use tokens.
	MustChangePassword bool
}

// Actor names the principal in the audit log.
func (p Principal) Actor() string {
	if p.TokenID != 0 {
		return p.User + " (token " + p.TokenName + ")"
	}
	return p.User
}

// Sees reports whether the principal may see the group.
func (p Principal) Sees(group string) bool {
	return p.Role == Admin || slices.Contains(p.Groups, group)
}

// Only returns the groups that the principal is confined to; nil means all.
func (p Principal) Only() []string {
	if p.Role == Admin {
		return nil
	}
	return append([]string{}, p.Groups...) // never nil, which would mean all
}

// Measures returns the groups whose metrics the principal may read; nil means all. That includes tokens of an admin that see no
// group, with which programs collect metrics.
func (p Principal) Measures() []string {
	if p.OwnerRole == Admin && len(p.Groups) == 0 {
		return nil
	}
	return p.Only()
}

// EnsureAdmin creates the user admin if there is no user yet. If password is empty, it generates a password and returns it.
// Invalid means that the password is too weak.
func (s *Users) EnsureAdmin(ctx context.Context, password string) (created bool, generated string, err error) {
	has, err := s.q.HasUsers(ctx)
	if err != nil || has {
		return false, "", pgerr.Translate(err)
	}
	if password == "" {
		generated = generatePassword()
		password = generated
	}
	if err := CheckPassword("password", "admin", password); err != nil {
		return false, "", err
	}
	hash, err := s.hasher.hash(ctx, password)
	if err != nil {
		return false, "", err
	}
	n, err := s.q.InsertFirstUser(ctx, sqlcgen.InsertFirstUserParams{Name: "admin", PasswordHash: hash})
	if err != nil || n == 0 { // 0: another process created the user, and its password is valid
		return false, "", pgerr.Translate(err)
	}
	return true, generated, nil
}

// NewUser is the input of CreateUser.
type NewUser struct {
	Name, Password string
	Role           Role
	Groups         []string
	// MustChangePassword is for a password that someone other than the user knows.
	MustChangePassword bool
}

// CreateUser creates a local user. Conflict means that the name is taken.
func (s *Users) CreateUser(ctx context.Context, n NewUser) (User, error) {
	if err := CheckPassword("password", n.Name, n.Password); err != nil {
		return User{}, err
	}
	hash, err := s.hasher.hash(ctx, n.Password)
	if err != nil {
		return User{}, err
	}
	u, err := s.q.InsertUser(ctx, sqlcgen.InsertUserParams{
		Name: n.Name, PasswordHash: hash, Role: string(n.Role), Groups: append([]string{}, n.Groups...), MustChangePassword: n.MustChangePassword,
	})
	return toUser(u), pgerr.Translate(err)
}

// Users lists users by id, starting after the given id.
func (s *Users) Users(ctx context.Context, after int64, limit int) ([]User, error) {
	rows, err := s.q.Users(ctx, sqlcgen.UsersParams{After: after, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	users := make([]User, len(rows))
	for i, r := range rows {
		users[i] = toUser(r)
	}
	return users, nil
}

func toUser(u sqlcgen.User) User {
	return User{ID: u.ID, Name: u.Name, Kind: Kind(u.Kind), Role: Role(u.Role), Groups: u.Groups, Disabled: u.Disabled,
		MustChangePassword: u.MustChangePassword, CreatedAt: u.CreatedAt}
}

func credentialError(err error) error {
	if err = pgerr.Translate(err); domain.CodeOf(err) == domain.NotFound {
		return ErrCredentials
	}
	return err
}
