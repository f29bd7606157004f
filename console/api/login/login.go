// Package login is the REST API of log-ins: passwords, sessions, and the log-in through an identity provider (OpenID
// Connect).
package login

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/users"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// API serves log-ins.
type API struct {
	Store   Store
	Guesses *auth.Limiter
	OIDC    *auth.Provider // nil: no identity provider
	Audit   *rest.Audit
	Log     *slog.Logger
	// SecureCookies marks session cookies as Secure even if the connection has no TLS. Set it for a console behind a TLS proxy.
	SecureCookies bool
}

// Store keeps sessions and checks passwords.
type Store interface {
	users.Sessions
	// LogIn checks a password. A wrong user or password is account.ErrCredentials.
	LogIn(ctx context.Context, name, password string, from account.Origin) (account.Ticket, error)
	LogInOIDC(ctx context.Context, c account.Claimed, lifetime time.Duration, from account.Origin) (account.OIDCLogIn, error)
	LogOut(ctx context.Context, token string) error
	ChangePassword(ctx context.Context, p account.Principal, current, next string, from account.Origin) (account.Ticket, error)
	Sessions(ctx context.Context, userID, after int64, limit int) ([]account.Session, error)
	EndSession(ctx context.Context, userID, id int64) error
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Log-in"
	rest.Register(r, rest.Operation{Method: "POST", Path: "/auth/login", Tag: tag, Summary: "Log in",
		Description: "Sets the session cookie, and ends the session that the request carries. After too many attempts the answer is 429 with Retry-After.",
		Body:        rest.BodyOf[loginBody]()}, a.logIn)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/auth/logout", Tag: tag, Summary: "Log out", Needs: account.Viewer}, a.logOut)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/auth/logout-everywhere", Tag: tag, Summary: "End all sessions of the caller", Needs: account.Viewer, LogIn: true,
		Description: "This includes the current session. API tokens stay valid."}, a.logOutEverywhere)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/auth/password", Tag: tag, Summary: "Change the caller's password", Needs: account.Viewer, LogIn: true,
		Description: "Ends all sessions of the caller, starts a new session and sets its cookie.",
		Body:        rest.BodyOf[passwordBody]()}, a.changePassword)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/auth/me", Tag: tag, Summary: "Show the caller", Needs: account.Viewer}, a.whoAmI)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/auth/sessions", Tag: tag, Summary: "List the caller's sessions", Needs: account.Viewer, LogIn: true}, a.sessions)
	rest.Register(r, rest.Operation{Method: "DELETE", Path: "/auth/sessions/{id}", Tag: tag, Summary: "End a session of the caller", Needs: account.Viewer, LogIn: true}, a.endSession)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/auth/methods", Tag: tag, Summary: "List the ways to log in"}, a.methods)
}

// Mount adds the two pages of the log-in through an identity provider. They are for browsers and are not in the contract.
func (a *API) Mount(m chi.Router) {
	m.Get(OIDCLogin, a.oidcBegin)
	m.Get(OIDCCallback, a.oidcFinish)
}

type loginBody struct {
	Username string `json:"username"`
	Password string `json:"password" format:"password"`
}

type loginInput struct {
	rest.JSONBody
	Client
}

// Client describes the connection. Operations that set a cookie embed it.
type Client struct {
	remote, agent string
	shown         string // the token of the client's session, if it has one
	secure        bool
}

// Resolve implements huma.Resolver.
func (c *Client) Resolve(ctx huma.Context) []error {
	r, _ := humachi.Unwrap(ctx)
	c.read(r)
	return nil
}

func (c *Client) read(r *http.Request) {
	c.remote, c.secure = auth.Remote(r), r.TLS != nil
	c.shown = auth.ShownToken(r)
	c.agent = strings.ToValidUTF8(r.UserAgent(), "")
	if len(c.agent) > maxAgentBytes {
		c.agent = strings.ToValidUTF8(c.agent[:maxAgentBytes], "")
	}
}

const maxAgentBytes = 256

func (c *Client) origin() account.Origin {
	return account.Origin{Remote: c.remote, Agent: c.agent, Replaces: c.shown}
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
	Username           string          `json:"username"`
	Kind               account.Kind    `json:"kind" enum:"local,oidc"`
	Role               account.Role    `json:"role" enum:"admin,operator,viewer"`
	Groups             []string        `json:"groups" nullable:"false" doc:"The groups that an operator or viewer may see. An admin may see all groups"`
	TokenName          string          `json:"token_name,omitempty" doc:"The name of the API token, if the request carries one"`
	ExpiresAt          *domain.Instant `json:"expires_at"`
	MustChangePassword bool            `json:"must_change_password" doc:"Whether other requests get 403 until POST /auth/password has changed the password"`
}

type session struct {
	ID         int64          `json:"id"`
	Current    bool           `json:"current" doc:"Whether the request belongs to this session"`
	CreatedAt  domain.Instant `json:"created_at"`
	ExpiresAt  domain.Instant `json:"expires_at"`
	LastUsedAt domain.Instant `json:"last_used_at" doc:"Exact to the minute"`
	Remote     string         `json:"remote" doc:"The address of the client that logged in"`
	UserAgent  string         `json:"user_agent"`
}

type passwordBody struct {
	CurrentPassword string `json:"current_password" format:"password"`
	NewPassword     string `json:"new_password" format:"password" doc:"At least 10 characters"`
}

type passwordInput struct {
	rest.JSONBody
	Client
}

// BeforePasswordChange lists the paths that a session may use while its password must be changed.
var BeforePasswordChange = []string{rest.Prefix + "/auth/me", rest.Prefix + "/auth/password", rest.Prefix + "/auth/logout", rest.Prefix + "/auth/logout-everywhere"}

// MustChange is the detail of the answer at every other path.
const MustChange = "the password must be changed first, by POST " + rest.Prefix + "/auth/password"

func (a *API) logIn(ctx context.Context, _ auth.Identity, in *loginInput) (*loginOutput, error) {
	var b loginBody
	if err := in.Decode(&b); err != nil {
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
	if err := a.slowDown(in.remote, b.Username); err != nil {
		return nil, err
	}
	t, err := a.Store.LogIn(ctx, b.Username, b.Password, in.origin())
	if err == account.ErrCredentials { //nolint:errorlint // LogIn documents that it returns this value
		return nil, problem.New(http.StatusUnauthorized, "the user or the password is wrong")
	}
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, auth.Identity{Principal: account.Principal{User: b.Username}, Remote: in.remote}, "auth.login", "user/"+b.Username, nil, nil)
	return a.ticket(t, &in.Client), nil
}

// slowDown refuses a client or user with too many attempts.
func (a *API) slowDown(remote, user string) error {
	wait := a.Guesses.Try(remote, user, time.Now())
	if wait == 0 {
		return nil
	}
	seconds := (wait + time.Second - 1) / time.Second // as in the header
	return problem.New(http.StatusTooManyRequests, fmt.Sprintf("too many log-in attempts; try again in %d s", seconds)).RetryAfter(wait)
}

// ticket returns the answer with a new session, in the body and as a cookie.
func (a *API) ticket(t account.Ticket, c *Client) *loginOutput {
	return &loginOutput{SetCookie: auth.SessionCookie(t.Token, t.ExpiresAt, c.secure || a.SecureCookies),
		Body: loginAnswer{t.Token, domain.At(t.ExpiresAt)}}
}

func (a *API) logOut(ctx context.Context, id auth.Identity, in *struct{ Client }) (*logoutOutput, error) {
	if err := a.Store.LogOut(ctx, id.Token); err != nil {
		return nil, err
	}
	return a.loggedOut(&in.Client), nil
}

func (a *API) loggedOut(c *Client) *logoutOutput {
	return &logoutOutput{SetCookie: auth.SessionCookie("", time.Unix(1, 0), c.secure || a.SecureCookies)}
}

func (a *API) logOutEverywhere(ctx context.Context, id auth.Identity, in *struct{ Client }) (*logoutOutput, error) {
	return a.loggedOut(&in.Client), users.EndSessions(ctx, a.Store, a.Audit, id, id.UserID, id.User)
}

func (a *API) changePassword(ctx context.Context, id auth.Identity, in *passwordInput) (*loginOutput, error) {
	var b passwordBody
	if err := in.Decode(&b); err != nil {
		return nil, err
	}
	if len(b.CurrentPassword) > 4*account.MaxPasswordChars {
		return nil, problem.Invalid("current_password", "is wrong")
	}
	// A stolen session must not help to guess the password.
	if err := a.slowDown(in.remote, id.User); err != nil {
		return nil, err
	}
	t, err := a.Store.ChangePassword(ctx, id.Principal, b.CurrentPassword, b.NewPassword, in.origin())
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "auth.password", "user/"+id.User, nil, nil)
	return a.ticket(t, &in.Client), nil
}

func (a *API) whoAmI(_ context.Context, id auth.Identity, _ *struct{}) (*rest.Output[me], error) {
	return rest.Answer(me{Username: id.User, Kind: id.Kind, Role: id.Role, Groups: append([]string{}, id.Groups...),
		TokenName: id.TokenName, ExpiresAt: domain.AtPtr(id.ExpiresAt), MustChangePassword: id.MustChangePassword}), nil
}

func (a *API) sessions(ctx context.Context, id auth.Identity, in *struct{ rest.List }) (*rest.Output[rest.Page[session]], error) {
	after, err := rest.DecodeNumberCursor("session", in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := a.Store.Sessions(ctx, id.UserID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	items := rest.Each(rows, func(s account.Session) session {
		return session{s.ID, s.ID == id.SessionID, domain.At(s.CreatedAt), domain.At(s.ExpiresAt), domain.At(s.LastUsedAt), s.Remote, s.Agent}
	})
	return rest.Answer(rest.Cut(items, in.Limit, func(s session) string { return rest.NumberCursor("session", s.ID) })), nil
}

func (a *API) endSession(ctx context.Context, id auth.Identity, in *rest.IDPath) (*struct{}, error) {
	if err := a.Store.EndSession(ctx, id.UserID, in.ID); err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "auth.logout", "user/"+id.User, map[string]int64{"session": in.ID}, nil)
	return nil, nil
}
