// Package auth says for whom an HTTP request acts, and slows down those who guess passwords.
//
// A request shows a token, either as a bearer token or in the session cookie. The two are alike but for one thing:
// a browser sends a cookie by itself, so unsafe requests that a browser says come from another site are refused
// (http.CrossOriginProtection); the cookie is also HttpOnly and SameSite=Strict.
package auth

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/store/account"
)

// CookieName is the session cookie.
const CookieName = "belfry_session"

// Identity is who a request acts for, and how they showed it.
type Identity struct {
	account.Principal
	Token  string // what was shown; a secret
	Remote string // the client's address
}

// Interactive reports whether a person acts through a log-in, not a program through an API token.
func (i Identity) Interactive() bool { return i.TokenID == 0 }

// Accounts knows tokens. An error is account.ErrCredentials, or says that Postgres is away.
type Accounts interface {
	Authenticate(ctx context.Context, token string) (account.Principal, error)
}

// Identify says for whom the request acts. A bearer token that is not valid is not made good by a cookie.
func Identify(r *http.Request, accounts Accounts) (Identity, error) {
	token := ShownToken(r)
	if token == "" {
		return Identity{}, account.ErrCredentials
	}
	p, err := accounts.Authenticate(r.Context(), token)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Principal: p, Token: token, Remote: Remote(r)}, nil
}

// ShownToken returns the token that a request shows, "" for none. It is not verified.
func ShownToken(r *http.Request) string {
	if h := r.Header.Get("Authorization"); h != "" {
		scheme, token, _ := strings.Cut(h, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return ""
		}
		return strings.TrimSpace(token)
	}
	if c, err := r.Cookie(CookieName); err == nil {
		return c.Value
	}
	return ""
}

// Remote returns the address of the client, without its port. Headers that a client can set are not believed.
func Remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// network returns what one client is likely to own: an IPv4 address, or an IPv6 network of 64 bits.
func network(remote string) string {
	addr, err := netip.ParseAddr(remote)
	if err != nil || addr.Unmap().Is4() {
		return remote
	}
	prefix, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return remote
	}
	return prefix.String()
}

// SessionCookie makes the cookie of a session; an empty token makes the one that deletes it.
func SessionCookie(token string, expires time.Time, secure bool) http.Cookie {
	c := http.Cookie{
		Name: CookieName, Value: token, Path: "/", Expires: expires,
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
	if token == "" {
		c.MaxAge = -1
	}
	return c
}

type contextKey struct{}

// NewContext returns a context that carries the identity.
func NewContext(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// FromContext returns the identity that NewContext put in; the zero Identity may do nothing.
func FromContext(ctx context.Context) Identity {
	id, _ := ctx.Value(contextKey{}).(Identity)
	return id
}
