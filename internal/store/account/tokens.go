package account

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/bearer"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Tokens keeps API tokens in Postgres. It is safe for concurrent use.
type Tokens struct{ q *sqlcgen.Queries }

// Token is an API token, without its secret.
type Token struct {
	ID         int64
	User       string // the owner's name
	Name       string
	Role       Role
	Groups     []string
	Scope      Scope
	CreatedAt  time.Time
	ExpiresAt  *time.Time // nil: never
	LastUsedAt *time.Time // exact to the minute
}

// Scope confines a token beyond its role.
type Scope string

// The scopes.
const (
	ScopeAll    Scope = ""       // everything that its role may do
	ScopeEvents Scope = "events" // may only send events, over REST and NATS
)

// CreateToken creates an API token of the owner and returns its secret, which cannot be read again. If the owner is itself
// an API token, the new one is deleted with it. The caller must check that role and groups are within the owner's. Conflict
// means that the owner has a token of this name.
func (s *Tokens) CreateToken(ctx context.Context, owner Principal, name string, role Role, groups []string, scope Scope, expiresAt *time.Time) (Token, string, error) {
	secret, digest := bearer.New(bearer.API)
	var madeWith *int64
	if owner.TokenID != 0 {
		madeWith = &owner.TokenID
	}
	t, err := s.q.InsertToken(ctx, sqlcgen.InsertTokenParams{
		UserID: owner.UserID, Name: name, TokenSha256: digest, Role: string(role),
		Groups: append([]string{}, groups...), ExpiresAt: expiresAt, Scope: string(scope), MadeWith: madeWith,
	})
	if err != nil {
		return Token{}, "", pgerr.Translate(err)
	}
	return fromRow(t, owner.User), secret, nil
}

// Tokens lists the tokens of a user, or of all users if userID is 0, by id, starting after the given id.
func (s *Tokens) Tokens(ctx context.Context, userID, after int64, limit int) ([]Token, error) {
	rows, err := s.q.Tokens(ctx, sqlcgen.TokensParams{UserID: userID, After: after, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	tokens := make([]Token, len(rows))
	for i, r := range rows {
		tokens[i] = Token{ID: r.ID, User: r.UserName, Name: r.Name, Role: confined(r.Role, r.Groups), Groups: r.Groups, Scope: Scope(r.Scope),
			CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, LastUsedAt: r.LastUsedAt}
	}
	return tokens, nil
}

// DeleteToken deletes a token of a user, or of any user if userID is 0, and all tokens that were made with it. All of them
// become invalid at once. The error is NotFound if there is none.
func (s *Tokens) DeleteToken(ctx context.Context, userID, id int64) (Token, error) {
	t, err := s.q.DeleteToken(ctx, sqlcgen.DeleteTokenParams{ID: id, UserID: userID})
	if err != nil {
		return Token{}, pgerr.Translate(err)
	}
	return fromRow(t, ""), nil
}

func fromRow(t sqlcgen.ApiToken, user string) Token {
	return Token{ID: t.ID, User: user, Name: t.Name, Role: confined(t.Role, t.Groups), Groups: t.Groups, Scope: Scope(t.Scope),
		CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, LastUsedAt: t.LastUsedAt}
}

// SenderOfToken returns the id of an API token of scope events that may send events for the jobs of all groups, because
// a message on NATS does not carry its sender. Otherwise it returns ErrCredentials, in an error of code Forbidden. left is
// how long the token stays valid, or 0 if it does not expire.
func (s *Tokens) SenderOfToken(ctx context.Context, token string) (id int64, left time.Duration, err error) {
	if !bearer.Is(token, bearer.API) {
		return 0, 0, notSender(ErrCredentials)
	}
	p, err := s.principal(ctx, token)
	if errors.Is(err, ErrCredentials) {
		return 0, 0, notSender(err)
	}
	if err != nil {
		return 0, 0, err
	}
	if !maySend(p.Scope, p.Role) {
		return 0, 0, notSender(ErrCredentials)
	}
	if !p.ExpiresAt.IsZero() {
		left = max(time.Until(p.ExpiresAt), time.Millisecond)
	}
	return p.TokenID, left, nil
}

func notSender(err error) error {
	return domain.WrapError(domain.Forbidden, "the API token may not send events over NATS", err)
}

func maySend(scope Scope, role Role) bool { return scope == ScopeEvents && role == Admin }

// LiveSenders returns those of the tokens for which SenderOfToken would return no error.
func (s *Tokens) LiveSenders(ctx context.Context, ids []int64) ([]int64, error) {
	rows, err := s.q.LiveTokens(ctx, ids)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	var live []int64
	for _, r := range rows {
		if maySend(Scope(r.Scope), Lesser(Role(r.Role), confined(r.TokenRole, r.TokenGroups))) {
			live = append(live, r.ID)
		}
	}
	return live, nil
}

func (s *Tokens) principal(ctx context.Context, token string) (Principal, error) {
	r, err := s.q.PrincipalOfToken(ctx, bearer.Digest(token))
	if err != nil {
		return Principal{}, credentialError(err)
	}
	p := Principal{UserID: r.ID, User: r.Name, Kind: Kind(r.Kind), Role: Lesser(Role(r.Role), confined(r.TokenRole, r.TokenGroups)),
		OwnerRole: Role(r.Role), Groups: commonGroups(r), TokenID: r.TokenID, TokenName: r.TokenName, Scope: Scope(r.Scope)}
	if r.ExpiresAt != nil {
		p.ExpiresAt = *r.ExpiresAt
	}
	if r.Touch { // at most one write per minute, however often the token is used
		if err := touched(s.q.TouchToken(ctx, r.TokenID)); err != nil {
			return Principal{}, err
		}
	}
	return p, nil
}

// touched returns the error of a statement that records the use of a token or session. The holder may still read while Postgres is read-only or
// the row is locked.
func touched(err error) error {
	if err = pgerr.Translate(err); domain.CodeOf(err) == domain.Unavailable {
		return nil
	}
	return err
}

// confined returns the role of a token. Groups would not confine an admin, so a token with groups is never an admin's.
// Earlier versions accepted such tokens.
func confined(role string, groups []string) Role {
	if len(groups) > 0 {
		return Lesser(Role(role), Operator)
	}
	return Role(role)
}

// commonGroups returns the groups of both owner and token. An admin counts as a member of all groups.
func commonGroups(r sqlcgen.PrincipalOfTokenRow) []string {
	switch {
	case Role(r.Role) == Admin:
		return r.TokenGroups
	case confined(r.TokenRole, r.TokenGroups) == Admin:
		return r.Groups
	}
	return slices.DeleteFunc(r.TokenGroups, func(g string) bool { return !slices.Contains(r.Groups, g) })
}

// Rights returns what a user may do now: with one of the user's API tokens, or, if token is 0, with a log-in. The error is
// ErrCredentials if the user or the token is gone, disabled or expired.
func (s *Tokens) Rights(ctx context.Context, user, token int64) (Principal, error) {
	r, err := s.q.RightsOf(ctx, sqlcgen.RightsOfParams{UserID: user, TokenID: token})
	if err != nil {
		return Principal{}, credentialError(err)
	}
	if token == 0 {
		return Principal{UserID: r.ID, User: r.Name, Kind: Kind(r.Kind), Role: Role(r.Role), OwnerRole: Role(r.Role), Groups: r.Groups}, nil
	}
	own := sqlcgen.PrincipalOfTokenRow{Role: r.Role, Groups: r.Groups, TokenRole: *r.TokenRole, TokenGroups: r.TokenGroups}
	return Principal{UserID: r.ID, User: r.Name, Kind: Kind(r.Kind), Role: Lesser(Role(r.Role), confined(own.TokenRole, own.TokenGroups)),
		OwnerRole: Role(r.Role), Groups: commonGroups(own), TokenID: token, TokenName: *r.TokenName, Scope: Scope(*r.Scope)}, nil
}
