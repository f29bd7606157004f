package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

type user struct {
	ID                 int64          `json:"id"`
	Username           string         `json:"username"`
	Kind               account.Kind   `json:"kind" enum:"local,oidc" doc:"oidc: known by the identity provider, from which role and groups come; there is no password here"`
	Role               account.Role   `json:"role" enum:"admin,operator,viewer"`
	Groups             []string       `json:"groups" nullable:"false"`
	Disabled           bool           `json:"disabled"`
	MustChangePassword bool           `json:"must_change_password" doc:"A log-in may do nothing else until then"`
	CreatedAt          domain.Instant `json:"created_at"`
}

type userBody struct {
	Username           string       `json:"username"`
	Password           string       `json:"password" format:"password" doc:"At least 10 characters"`
	Role               account.Role `json:"role" enum:"admin,operator,viewer"`
	Groups             []string     `json:"groups,omitempty" doc:"Of operators and viewers"`
	MustChangePassword bool         `json:"must_change_password,omitempty" doc:"Make the user change the password at the first log-in"`
}

type token struct {
	ID         int64           `json:"id"`
	User       string          `json:"user" doc:"Its owner"`
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
	Token string `json:"token" doc:"The token itself, shown this once"`
}

type tokenBody struct {
	Name      string          `json:"name"`
	Role      account.Role    `json:"role,omitempty" enum:"admin,operator,viewer" doc:"Default: the caller's"`
	Groups    []string        `json:"groups,omitempty" doc:"Default: the caller's"`
	Scope     account.Scope   `json:"scope,omitempty" enum:",events" doc:"events: the token sends events and does nothing else; of role admin, it also logs in to NATS to publish them"`
	ExpiresAt *domain.Instant `json:"expires_at,omitempty" doc:"Default: never"`
}

type change struct {
	ID     int64           `json:"id"`
	At     domain.Instant  `json:"at"`
	Actor  string          `json:"actor"`
	Remote string          `json:"remote" doc:"The client's address"`
	Action string          `json:"action" example:"job.update"`
	Object string          `json:"object" example:"job/7"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

func (a *API) registerUsers() {
	const tag = "Users and tokens"
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/users", Tag: tag, Summary: "List users", Needs: account.Admin}, a.users)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/users", Tag: tag, Summary: "Create a user", Needs: account.Admin,
		Status: 201, Body: rest.BodyOf[userBody]()}, a.createUser)
	a.registerUserChanges()
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/tokens", Tag: tag, Summary: "List API tokens",
		Description: "One's own; an admin sees all.", Needs: account.Viewer}, a.tokens)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/tokens", Tag: tag, Summary: "Create an API token",
		Description: "It acts for the caller, with the caller's rights or less.", Needs: account.Viewer,
		Status: 201, Body: rest.BodyOf[tokenBody]()}, a.createToken)
	rest.Register(a.rest, rest.Operation{Method: "DELETE", Path: "/tokens/{id}", Tag: tag, Summary: "Delete an API token", Needs: account.Viewer,
		Description: "It stops working at once."}, a.deleteToken)
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/audit", Tag: tag, Summary: "List changes, newest first", Needs: account.Admin}, a.changes)
}

func (a *API) users(ctx context.Context, _ auth.Identity, in *struct{ rest.List }) (*rest.Output[rest.Page[user]], error) {
	after, err := rest.DecodeNumberCursor("user", in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := a.Accounts.Users(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return rest.Answer(rest.Cut(rest.Each(rows, toUser), in.Limit, func(u user) string { return rest.NumberCursor("user", u.ID) })), nil
}

func toUser(u account.User) user {
	return user{ID: u.ID, Username: u.Name, Kind: u.Kind, Role: u.Role, Groups: append([]string{}, u.Groups...), Disabled: u.Disabled,
		MustChangePassword: u.MustChangePassword, CreatedAt: domain.At(u.CreatedAt)}
}

func (a *API) createUser(ctx context.Context, id auth.Identity, in *struct{ rest.JSONBody }) (*rest.Output[user], error) {
	var b userBody
	shape := in.Decode(&b)
	var f domain.Faults
	if !domain.ValidGroupName(b.Username) {
		f.Add("username", "must be 1 to 63 characters, a-z, 0-9, _ or -, and start with a letter or digit")
	}
	f.AddAll("password", account.CheckPassword("password", b.Password))
	if !b.Role.AtLeast(account.Viewer) {
		f.Add("role", "must be one of admin, operator, viewer")
	}
	checkGroups(&f, b.Groups)
	if err := strict.AlsoFaulty(shape, f.Err("the user is not valid")); err != nil {
		return nil, err
	}
	if err := a.checkGroupsExist(ctx, b.Groups, nil); err != nil {
		return nil, err
	}
	u, err := a.Accounts.CreateUser(ctx, account.NewUser{Name: b.Username, Password: b.Password, Role: b.Role, Groups: b.Groups,
		MustChangePassword: b.MustChangePassword})
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "user.create", "user/"+u.Name, nil, toUser(u))
	return rest.Answer(toUser(u)), nil
}

func checkGroups(f *domain.Faults, groups []string) {
	for i, g := range groups {
		if !domain.ValidGroupName(g) {
			f.Add(fmt.Sprintf("groups[%d]", i), domain.GroupNameRule)
		}
	}
	if len(groups) > 100 {
		f.Add("groups", "at most 100 are allowed")
	}
}

// checkGroupsExist refuses groups that are not there, save those that the caller has already: they were there once.
func (a *API) checkGroupsExist(ctx context.Context, groups, has []string) error {
	asked := slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return slices.Contains(has, g) })
	if len(asked) == 0 {
		return nil
	}
	found, err := a.Accounts.Groups(ctx, asked, "", len(asked))
	if err != nil {
		return err
	}
	var f domain.Faults
	for i, g := range groups {
		known := slices.ContainsFunc(found, func(k domain.Group) bool { return k.Name == g })
		if !known && !slices.Contains(has, g) {
			f.Add(fmt.Sprintf("groups[%d]", i), fmt.Sprintf("there is no group %q", g))
		}
	}
	return f.Err("there are unknown groups")
}

// ownTokens returns the user whose tokens the caller deals with: himself, or everybody (0) for an admin.
func ownTokens(id auth.Identity) int64 {
	if id.Role == account.Admin {
		return 0
	}
	return id.UserID
}

func (a *API) tokens(ctx context.Context, id auth.Identity, in *struct{ rest.List }) (*rest.Output[rest.Page[token]], error) {
	after, err := rest.DecodeNumberCursor("token", in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := a.Accounts.Tokens(ctx, ownTokens(id), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return rest.Answer(rest.Cut(rest.Each(rows, toToken), in.Limit, func(t token) string { return rest.NumberCursor("token", t.ID) })), nil
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

func (a *API) createToken(ctx context.Context, id auth.Identity, in *struct{ rest.JSONBody }) (*rest.Output[newToken], error) {
	b := tokenBody{Role: id.Role, Groups: slices.Clone(id.Groups)} // decoding writes into what it is given
	shape := in.Decode(&b)
	if err := strict.AlsoFaulty(shape, checkToken(id, b)); err != nil {
		return nil, err
	}
	if err := a.checkGroupsExist(ctx, b.Groups, id.Groups); err != nil {
		return nil, err
	}
	var expires *time.Time
	if b.ExpiresAt != nil {
		expires = &b.ExpiresAt.Time
	}
	t, secret, err := a.Accounts.CreateToken(ctx, id.Principal, b.Name, b.Role, b.Groups, b.Scope, expires)
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "token.create", tokenObject(t.ID), nil, toToken(t))
	return rest.Answer(newToken{toToken(t), secret}), nil
}

// checkToken refuses a token with more rights than the caller's own.
func checkToken(id auth.Identity, b tokenBody) error {
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
		f.Add("role", "is more than yours, which is "+string(id.Role))
	}
	switch {
	case b.Scope != account.ScopeAll && b.Scope != account.ScopeEvents:
		f.Add("scope", "must be events, or left out")
	case b.Scope == account.ScopeEvents && b.Role == account.Viewer:
		f.Add("role", "must be operator or admin to send events")
	}
	checkGroups(&f, b.Groups)
	for i, g := range b.Groups {
		if !id.Sees(g) {
			f.Add(fmt.Sprintf("groups[%d]", i), "is not one of your groups")
		}
	}
	if b.ExpiresAt != nil && !b.ExpiresAt.After(time.Now()) {
		f.Add("expires_at", "is past")
	}
	if !id.ExpiresAt.IsZero() && id.TokenID != 0 && (b.ExpiresAt == nil || b.ExpiresAt.After(id.ExpiresAt)) {
		f.Add("expires_at", "must not be later than the end of the token that you show")
	}
	return f.Err("the token is not valid")
}

func tokenObject(id int64) string { return "token/" + strconv.FormatInt(id, 10) }

func (a *API) deleteToken(ctx context.Context, id auth.Identity, in *rest.IDPath) (*struct{}, error) {
	if err := a.mayEndToken(ctx, id, in.ID); err != nil {
		return nil, err
	}
	t, err := a.Accounts.DeleteToken(ctx, ownTokens(id), in.ID)
	if domain.CodeOf(err) == domain.NotFound && err != nil {
		return nil, domain.NewError(domain.NotFound, "there is no such token")
	}
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "token.delete", tokenObject(t.ID), toToken(t), nil)
	return nil, nil
}

// mayEndToken refuses a program whose own token has fewer rights than the one that it would end: what was given to read
// must not stop what was given to act.
func (a *API) mayEndToken(ctx context.Context, id auth.Identity, token int64) error {
	if id.Interactive() {
		return nil
	}
	rows, err := a.Accounts.Tokens(ctx, ownTokens(id), token-1, 1)
	if err != nil || len(rows) == 0 || rows[0].ID != token {
		return err // that there is none is said by who deletes
	}
	unseen := slices.ContainsFunc(rows[0].Groups, func(g string) bool { return !id.Sees(g) })
	if unseen || !id.Role.AtLeast(rows[0].Role) {
		return domain.NewError(domain.Forbidden, "an API token ends no token with more rights than its own; this needs a log-in")
	}
	return nil
}

type auditInput struct {
	rest.List
	Object string `query:"object" doc:"Such as job/7"`
	Actor  string `query:"actor"`
	Action string `query:"action" doc:"Such as job.update"`
}

func (a *API) changes(ctx context.Context, _ auth.Identity, in *auditInput) (*rest.Output[rest.Page[change]], error) {
	before, err := rest.DecodeNumberCursor("audit", in.Cursor)
	if err != nil {
		return nil, err
	}
	f := account.AuditFilter{Object: in.Object, Actor: in.Actor, Action: in.Action, Before: before}
	rows, err := a.Accounts.Audit(ctx, f, in.Limit+1)
	if err != nil {
		return nil, err
	}
	items := rest.Each(rows, func(c account.Change) change {
		return change{c.ID, domain.At(c.At), c.Actor, c.Remote, c.Action, c.Object, orNull(c.Before), orNull(c.After)}
	})
	return rest.Answer(rest.Cut(items, in.Limit, func(c change) string { return rest.NumberCursor("audit", c.ID) })), nil
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}
