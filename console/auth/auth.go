// Package auth identifies the caller of an HTTP request, and limits how fast clients can guess passwords.
//
// A request carries its token as a bearer token or in the session cookie. Both have the same rights. Because a browser sends
// cookies by itself, unsafe requests that a browser marks as coming from another site are refused
// (http.CrossOriginProtection). The cookie is also HttpOnly and SameSite=Strict.
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

// CookieName is the name of the session cookie.
const CookieName = "belfry_session"

// Identity is the caller of a request.
type Identity struct {
	account.Principal
	Token  string // the token of the request; a secret
	Remote string // the client's address
}

// Interactive reports whether the caller uses a session and not an API token.
func (i Identity) Interactive() bool { return i.TokenID == 0 }

// Accounts verifies tokens. An error is account.ErrCredentials, or means that Postgres is unavailable.
type Accounts interface {
	Authenticate(ctx context.Context, token string) (account.Principal, error)
}

// Identify returns the caller of the request. If the bearer token is not valid, Identify does not try the cookie.
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

// ShownToken returns the token that a request carries, "" for none. It does not verify the token.
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

// Remote returns the address of the client without its port. It ignores headers, because a client can set them.
func Remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// network returns the addresses that one client probably owns: an IPv4 address, or an IPv6 network with a prefix of 64 bits.
func network(remote string) string { return prefixOf(remote, 64) }

// widerNetwork returns the addresses that one site may own: an IPv4 address, or an IPv6 network with a prefix of 48 bits.
func widerNetwork(remote string) string { return prefixOf(remote, 48) }

func prefixOf(remote string, bits6 int) string {
	addr, err := netip.ParseAddr(remote)
	if err != nil {
		return remote
	}
	if addr = addr.WithZone("").Unmap(); addr.Is4() {
		return addr.String()
	}
	prefix, err := addr.Prefix(bits6)
	if err != nil {
		return remote
	}
	return prefix.String()
}

// SessionCookie makes the cookie of a session. With an empty token, the cookie deletes the one that the browser has.
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

// FromContext returns the identity that NewContext stored, or else the zero Identity, which has no rights.
func FromContext(ctx context.Context) Identity {
	id, _ := ctx.Value(contextKey{}).(Identity)
	return id
}
