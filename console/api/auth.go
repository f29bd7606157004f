package api

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

type loginBody struct {
	Username string `json:"username"`
	Password string `json:"password" format:"password"`
}

type loginInput struct {
	JSONBody
	Client
}

// Client is what the operations that set a cookie know of the connection.
type Client struct {
	remote string
	secure bool
}

// Resolve implements huma.Resolver.
func (c *Client) Resolve(ctx huma.Context) []error {
	host := http.Request{RemoteAddr: ctx.RemoteAddr()}
	c.remote, c.secure = auth.Remote(&host), ctx.TLS() != nil
	return nil
}

type loginAnswer struct {
	Token     string         `json:"token" doc:"Also works as a bearer token"`
	ExpiresAt domain.Instant `json:"expires_at"`
}

type loginOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      loginAnswer
}

type logoutOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
}

type me struct {
	Username  string          `json:"username"`
	Role      account.Role    `json:"role" enum:"admin,operator,viewer"`
	Groups    []string        `json:"groups" nullable:"false" doc:"The groups that operators and viewers are confined to"`
	TokenName string          `json:"token_name,omitempty" doc:"Of the API token, if one was shown"`
	ExpiresAt *domain.Instant `json:"expires_at"`
}

func (a *API) registerAuth() {
	register(a, operation{method: "POST", path: "/auth/login", tag: "Log-in", summary: "Log in",
		description: "Sets the session cookie. Tried too often it answers 429 with Retry-After.",
		body:        reflect.TypeFor[loginBody]()}, a.logIn)
	register(a, operation{method: "POST", path: "/auth/logout", tag: "Log-in", summary: "Log out", needs: account.Viewer}, a.logOut)
	register(a, operation{method: "GET", path: "/auth/me", tag: "Log-in", summary: "Who am I", needs: account.Viewer}, a.whoAmI)
}

func (a *API) logIn(ctx context.Context, _ auth.Identity, in *loginInput) (*loginOutput, error) {
	var b loginBody
	if err := in.decode(&b); err != nil {
		return nil, err
	}
	var f domain.Faults
	if b.Username == "" {
		f.Add("username", "is required")
	}
	if b.Password == "" {
		f.Add("password", "is required")
	}
	if len(b.Username) > 256 || len(b.Password) > 4*account.MaxPasswordChars {
		f.Add("password", "no user has such a name or password")
	}
	if err := f.Err("the log-in is not valid"); err != nil {
		return nil, err
	}
	if wait := a.guesses.Try(in.remote, b.Username, time.Now()); wait > 0 {
		p := newProblem(http.StatusTooManyRequests, "too many log-ins; try again later")
		p.retryAfter = wait
		return nil, p
	}
	token, expires, err := a.Accounts.LogIn(ctx, b.Username, b.Password, in.remote)
	if err == account.ErrCredentials { //nolint:errorlint // documented as it is
		return nil, newProblem(http.StatusUnauthorized, "the user or the password is wrong")
	}
	if err != nil {
		return nil, err
	}
	a.audit(ctx, auth.Identity{Principal: account.Principal{User: b.Username}, Remote: in.remote}, "auth.login", "user/"+b.Username, nil, nil)
	return &loginOutput{
		SetCookie: auth.SessionCookie(token, expires, in.secure || a.SecureCookies),
		Body:      loginAnswer{token, domain.At(expires)},
	}, nil
}

func (a *API) logOut(ctx context.Context, id auth.Identity, in *struct{ Client }) (*logoutOutput, error) {
	if err := a.Accounts.LogOut(ctx, id.Token); err != nil {
		return nil, err
	}
	return &logoutOutput{SetCookie: auth.SessionCookie("", time.Unix(1, 0), in.secure || a.SecureCookies)}, nil
}

func (a *API) whoAmI(_ context.Context, id auth.Identity, _ *struct{}) (*output[me], error) {
	return &output[me]{me{Username: id.User, Role: id.Role, Groups: append([]string{}, id.Groups...),
		TokenName: id.TokenName, ExpiresAt: domain.AtPtr(id.ExpiresAt)}}, nil
}
