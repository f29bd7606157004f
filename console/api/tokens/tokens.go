// Package tokens is the REST API of API tokens.
package tokens

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/api/users"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// API serves API tokens. All fields must be set.
type API struct {
	Store  Store
	Groups users.Groups
	Audit  *rest.Audit
}

// Store keeps API tokens. User 0 stands for all users.
type Store interface {
	CreateToken(ctx context.Context, owner account.Principal, name string, role account.Role, groups []string, scope account.Scope, expiresAt *time.Time) (account.Token, string, error)
	Tokens(ctx context.Context, userID, after int64, limit int) ([]account.Token, error)
	DeleteToken(ctx context.Context, userID, id int64) (account.Token, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Users and tokens"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/tokens", Tag: tag, Summary: "List API tokens",
		Description: "The caller's own tokens; for an admin, all tokens.", Needs: account.Viewer}, a.list)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/tokens", Tag: tag, Summary: "Create an API token",
		Description: "The token acts for the caller, with the caller's rights or fewer. If the caller uses an API token, the new token is deleted with it.", Needs: account.Viewer,
		Status: 201, Body: rest.BodyOf[tokenBody]()}, a.create)
	rest.Register(r, rest.Operation{Method: "DELETE", Path: "/tokens/{id}", Tag: tag, Summary: "Delete an API token", Needs: account.Viewer,
		Description: "The token stops working at once. This also deletes the tokens that were made with it."}, a.remove)
}

type token struct {
	ID         int64           `json:"id"`
	User       string          `json:"user" doc:"The owner"`
	Name       string          `json:"name"`
	Role       account.Role    `json:"role" enum:"admin,operator,viewer"`
	Groups     []string        `json:"groups" nullable:"false"`
	Scope      account.Scope   `json:"scope" enum:",events"`
	CreatedAt  domain.Instant  `json:"created_at"`
	ExpiresAt  *domain.Instant `json:"expires_at"`
	LastUsedAt *domain.Instant `json:"last_used_at"`
}

type newToken struct {
	token
	Token string `json:"token" doc:"The token. It is shown only in this answer"`
}

type tokenBody struct {
	Name      string          `json:"name"`
	Role      account.Role    `json:"role,omitempty" enum:"admin,operator,viewer" doc:"Default: the caller's. An admin's token with groups has the role operator"`
	Groups    []string        `json:"groups,omitempty" doc:"Default: the caller's"`
	Scope     account.Scope   `json:"scope,omitempty" enum:",events" doc:"events: the token can only send events. With the role admin it can also log in to NATS and publish them there"`
	ExpiresAt *domain.Instant `json:"expires_at,omitempty" doc:"Default: never"`
}

func (a *API) list(ctx context.Context, id auth.Identity, in *struct{ rest.List }) (*rest.Output[rest.Page[token]], error) {
	after, err := rest.DecodeNumberCursor("token", in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := a.Store.Tokens(ctx, ownTokens(id), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return rest.Answer(rest.Cut(rest.Each(rows, toToken), in.Limit, func(t token) string { return rest.NumberCursor("token", t.ID) })), nil
}

func (a *API) create(ctx context.Context, id auth.Identity, in *struct{ rest.JSONBody }) (*rest.Output[newToken], error) {
	b := tokenBody{Groups: slices.Clone(id.Groups)} // decoding writes into the slice
	if id.Role == account.Admin {
		b.Groups = nil
	}
	shape := in.Decode(&b)
	if b.Role == "" {
		b.Role = id.Role
		if len(b.Groups) > 0 {
			b.Role = account.Lesser(b.Role, account.Operator)
		}
	}
	if err := strict.AlsoFaulty(shape, check(id, b)); err != nil {
		return nil, err
	}
	if err := users.CheckGroupsExist(ctx, a.Groups, b.Groups, id.Groups); err != nil {
		return nil, err
	}
	var expires *time.Time
	if b.ExpiresAt != nil {
		expires = &b.ExpiresAt.Time
	}
	t, secret, err := a.Store.CreateToken(ctx, id.Principal, b.Name, b.Role, b.Groups, b.Scope, expires)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "token.create", object(t.ID), nil, toToken(t))
	return rest.Answer(newToken{toToken(t), secret}), nil
}

func (a *API) remove(ctx context.Context, id auth.Identity, in *rest.IDPath) (*struct{}, error) {
	if err := a.mayDelete(ctx, id, in.ID); err != nil {
		return nil, err
	}
	t, err := a.Store.DeleteToken(ctx, ownTokens(id), in.ID)
	if domain.CodeOf(err) == domain.NotFound && err != nil {
		return nil, domain.NewError(domain.NotFound, "there is no such token")
	}
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "token.delete", object(t.ID), toToken(t), nil)
	return nil, nil
}

// mayDelete returns Forbidden if an API token would delete a token with more rights than its own. A read-only token must not be
// able to delete a token that may make changes.
func (a *API) mayDelete(ctx context.Context, id auth.Identity, token int64) error {
	if id.Interactive() {
		return nil
	}
	rows, err := a.Store.Tokens(ctx, ownTokens(id), token-1, 1)
	if err != nil || len(rows) == 0 || rows[0].ID != token {
		return err // DeleteToken reports a missing token
	}
	unseen := slices.ContainsFunc(rows[0].Groups, func(g string) bool { return !id.Sees(g) })
	if unseen || !id.Role.AtLeast(rows[0].Role) {
		return domain.NewError(domain.Forbidden, "an API token cannot delete a token with more rights than its own; log in to delete it")
	}
	return nil
}

// check refuses a token with more rights than the caller's own.
func check(id auth.Identity, b tokenBody) error {
	var f domain.Faults
	if n := len([]rune(b.Name)); n < 1 || n > 64 {
		f.Add("name", "must be 1 to 64 characters")
	} else if strings.ContainsRune(b.Name, 0) {
		f.Add("name", strict.NotText)
	}
	switch {
	case !b.Role.AtLeast(account.Viewer):
		f.Add("role", "must be one of admin, operator, viewer")
	case !id.Role.AtLeast(b.Role):
		f.Add("role", "has more rights than your role, which is "+string(id.Role))
	}
	switch {
	case b.Scope != account.ScopeAll && b.Scope != account.ScopeEvents:
		f.Add("scope", "must be events, or left out")
	case b.Scope == account.ScopeEvents && b.Role == account.Viewer:
		f.Add("role", "must be operator or admin to send events")
	}
	if b.Role == account.Admin && id.Role == account.Admin && len(b.Groups) > 0 {
		f.Add("groups", "have no effect on an admin's token; leave them out, or use the role operator")
	}
	users.CheckGroups(&f, b.Groups)
	for i, g := range b.Groups {
		if !id.Sees(g) {
			f.Add(fmt.Sprintf("groups[%d]", i), "is not one of your groups")
		}
	}
	if b.ExpiresAt != nil && !b.ExpiresAt.After(time.Now()) {
		f.Add("expires_at", "must be in the future")
	}
	if !id.ExpiresAt.IsZero() && id.TokenID != 0 && (b.ExpiresAt == nil || b.ExpiresAt.After(id.ExpiresAt)) {
		f.Add("expires_at", "must not be later than the expiry of the token that you use")
	}
	return f.Err("the token is not valid")
}

// ownTokens returns the user whose tokens the caller may read and delete: the caller, or 0 (all users) for an admin.
func ownTokens(id auth.Identity) int64 {
	if id.Role == account.Admin {
		return 0
	}
	return id.UserID
}

func toToken(t account.Token) token {
	out := token{ID: t.ID, User: t.User, Name: t.Name, Role: t.Role, Groups: append([]string{}, t.Groups...), Scope: t.Scope,
		CreatedAt: domain.At(t.CreatedAt)}
	if t.ExpiresAt != nil {
		out.ExpiresAt = domain.AtPtr(*t.ExpiresAt)
	}
	if t.LastUsedAt != nil {
		out.LastUsedAt = domain.AtPtr(*t.LastUsedAt)
	}
	return out
}

func object(id int64) string { return "token/" + strconv.FormatInt(id, 10) }
