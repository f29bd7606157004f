package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/belfryhq/belfry/internal/store/account"
)

// OIDCConfig configures an identity provider (OpenID Connect), and maps its claims to roles and groups.
type OIDCConfig struct {
	Issuer, ClientID, ClientSecret string
	RedirectURL                    string // of the callback, as it is registered with the provider
	Name                           string // on the button of the log-in page
	Scopes                         []string
	// The claims that hold the user's name, role values and group values. A nested claim is named by its path with dots.
	UsernameClaim, RoleClaim, GroupsClaim string
	Roles                                 map[string]account.Role // by value of the claim; the highest role counts
	DefaultRole                           account.Role            // of users without such a value; "": no access
	Groups                                map[string][]string     // by value of the claim
	SessionLifetime                       time.Duration
	Client                                *http.Client     // nil: a client with a timeout of ten seconds
	Now                                   func() time.Time // nil: time.Now
}

// The errors of a refused log-in. Any other error means that the provider is unreachable or its answer is malformed.
var (
	ErrOIDCDenied = errors.New("the identity provider refused the log-in")
	ErrOIDCState  = errors.New("the answer does not belong to a log-in that this browser started")
	ErrOIDCToken  = errors.New("the identity provider's token is not valid")
	ErrOIDCName   = errors.New("the user's name cannot be used in Belfry")
)

// Provider is an identity provider. It uses the authorization code flow with PKCE, state and nonce. It reads the provider's
// endpoints and keys at the first log-in, so that a console can start while the provider is unreachable.
type Provider struct {
	config OIDCConfig

	mu    sync.Mutex
	known *oidc.Provider // nil until it has answered
}

// NewProvider makes a Provider. The configuration must have been checked.
func NewProvider(c OIDCConfig) *Provider {
	if c.Client == nil {
		c.Client = &http.Client{Timeout: 10 * time.Second}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Provider{config: c}
}

// Name is the name of the provider on the log-in page.
func (p *Provider) Name() string { return p.config.Name }

// SessionLifetime is how long a session lasts. Changes of roles at the provider take effect at the next log-in.
func (p *Provider) SessionLifetime() time.Duration { return p.config.SessionLifetime }

// OIDCCookieName is the cookie in which a browser keeps the state of a started log-in.
const OIDCCookieName = "belfry_oidc"

// begun is the state of a started log-in. Finish compares the provider's answer with it. The cookie is not encrypted, because
// the browser's own user may know the state.
type begun struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	ReturnTo string `json:"r"`
}

// OIDCCookie makes the cookie of a started log-in for requests to path. With an empty value, the cookie deletes the one that
// the browser has. It is SameSite=Lax, because the provider's site sends the browser back.
func OIDCCookie(value, path string, secure bool) http.Cookie {
	c := http.Cookie{Name: OIDCCookieName, Value: value, Path: path, MaxAge: int(10 * time.Minute / time.Second),
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// Begin starts a log-in. It returns the provider's address for the browser and the value of the cookie. After the log-in
// the browser goes to the page returnTo.
func (p *Provider) Begin(ctx context.Context, returnTo string) (redirect, kept string, err error) {
	o, _, err := p.discover(ctx)
	if err != nil {
		return "", "", err
	}
	b := begun{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), ReturnTo: LocalPath(returnTo)}
	encoded, err := json.Marshal(b)
	if err != nil {
		return "", "", err
	}
	return o.AuthCodeURL(b.State, oidc.Nonce(b.Nonce), oauth2.S256ChallengeOption(b.Verifier)), base64.RawURLEncoding.EncodeToString(encoded), nil
}

// Finish returns the user whom the provider's answer names. It returns one of the errors above if the log-in is refused. Any
// other error means that the provider could not be reached.
func (p *Provider) Finish(ctx context.Context, kept string, answer url.Values) (who account.Claimed, returnTo string, err error) {
	var b begun
	decoded, err := base64.RawURLEncoding.DecodeString(kept)
	if err != nil || json.Unmarshal(decoded, &b) != nil || b.State == "" || b.Nonce == "" || b.Verifier == "" ||
		subtle.ConstantTimeCompare([]byte(b.State), []byte(answer.Get("state"))) != 1 {
		return who, "", ErrOIDCState
	}
	if iss := answer.Get("iss"); iss != "" && iss != p.config.Issuer { // another provider's answer (RFC 9207)
		return who, "", ErrOIDCState
	}
	if answer.Get("error") != "" {
		return who, "", ErrOIDCDenied
	}
	o, provider, err := p.discover(ctx)
	if err != nil {
		return who, "", err
	}
	ctx = oidc.ClientContext(ctx, p.config.Client)
	tokens, err := o.Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(b.Verifier))
	if refusal := new(oauth2.RetrieveError); errors.As(err, &refusal) && refusal.Response != nil && refusal.Response.StatusCode < 500 {
		return who, "", fmt.Errorf("%w: the provider refuses the code: %s", ErrOIDCToken, refusal.ErrorCode)
	}
	if err != nil {
		return who, "", fmt.Errorf("request a token from the identity provider: %w", withoutBody(err))
	}
	id, err := p.verify(ctx, provider, tokens, b.Nonce)
	if err != nil {
		return who, "", err
	}
	claims, err := p.claims(ctx, provider, tokens, id)
	if err != nil {
		return who, "", err
	}
	who, err = p.read(claims, id)
	return who, LocalPath(b.ReturnTo), err
}

// withoutBody drops the body of the provider's answer from an error, because it may contain a token.
func withoutBody(err error) error {
	if refusal := new(oauth2.RetrieveError); errors.As(err, &refusal) && refusal.Response != nil {
		return errors.New(refusal.Response.Status)
	}
	return err
}

// discover reads the provider's endpoints. It keeps them after the first success.
func (p *Provider) discover(ctx context.Context) (*oauth2.Config, *oidc.Provider, error) {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if known == nil {
		var err error
		if known, err = oidc.NewProvider(oidc.ClientContext(ctx, p.config.Client), p.config.Issuer); err != nil {
			return nil, nil, fmt.Errorf("read the identity provider's endpoints: %w", err)
		}
		p.mu.Lock()
		p.known = known
		p.mu.Unlock()
	}
	return &oauth2.Config{ClientID: p.config.ClientID, ClientSecret: p.config.ClientSecret, Endpoint: known.Endpoint(),
		RedirectURL: p.config.RedirectURL, Scopes: p.config.Scopes}, known, nil
}

// verify checks the ID token: signature, issuer, audience and expiry, and that its nonce belongs to this log-in.
func (p *Provider) verify(ctx context.Context, provider *oidc.Provider, tokens *oauth2.Token, nonce string) (*oidc.IDToken, error) {
	raw, _ := tokens.Extra("id_token").(string)
	id, err := provider.Verifier(&oidc.Config{ClientID: p.config.ClientID, Now: p.config.Now}).Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOIDCToken, err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(nonce)) != 1 {
		return nil, fmt.Errorf("%w: its nonce belongs to another log-in", ErrOIDCToken)
	}
	if id.Subject == "" {
		return nil, fmt.Errorf("%w: it has no subject", ErrOIDCToken)
	}
	var c struct {
		AuthorizedParty string `json:"azp"`
	}
	if err := id.Claims(&c); err != nil || len(id.Audience) > 1 && c.AuthorizedParty != p.config.ClientID {
		return nil, fmt.Errorf("%w: it was issued to another client", ErrOIDCToken)
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(tokens.AccessToken); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOIDCToken, err)
		}
	}
	return id, nil
}

// claims returns the claims of the ID token. If it lacks a configured claim, claims adds those of the userinfo endpoint,
// because some providers send names and groups only there.
func (p *Provider) claims(ctx context.Context, provider *oidc.Provider, tokens *oauth2.Token, id *oidc.IDToken) (map[string]any, error) {
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOIDCToken, err)
	}
	all := true
	for _, name := range []string{p.config.UsernameClaim, p.config.RoleClaim, p.config.GroupsClaim} {
		all = all && len(values(claims, name)) > 0
	}
	if all || provider.UserInfoEndpoint() == "" {
		return claims, nil
	}
	info, err := provider.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	if err != nil {
		return nil, fmt.Errorf("read the user from the identity provider: %w", err)
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil || info.Subject != id.Subject {
		return nil, fmt.Errorf("%w: the userinfo endpoint names another user", ErrOIDCToken)
	}
	for name, value := range more {
		if _, there := claims[name]; !there {
			claims[name] = value
		}
	}
	return claims, nil
}

// usableName matches the names that users of the provider may have. They cannot be confused with other text in the audit log
// or in addresses.
var usableName = regexp.MustCompile(`^[a-z0-9][a-z0-9._@+-]{0,126}$`)

func (p *Provider) read(claims map[string]any, id *oidc.IDToken) (account.Claimed, error) {
	who := account.Claimed{Issuer: id.Issuer, Subject: id.Subject, Role: p.config.DefaultRole, Groups: []string{}}
	names := values(claims, p.config.UsernameClaim)
	if len(names) != 1 || !usableName.MatchString(strings.ToLower(names[0])) {
		return who, ErrOIDCName
	}
	if verified, said := claims["email_verified"].(bool); p.config.UsernameClaim == "email" && said && !verified {
		return who, ErrOIDCName // the user may have entered someone else's address
	}
	who.Name = strings.ToLower(names[0])
	for _, value := range values(claims, p.config.RoleClaim) {
		if role, ok := p.config.Roles[value]; ok && (who.Role == "" || role.AtLeast(who.Role)) {
			who.Role = role
		}
	}
	for _, value := range values(claims, p.config.GroupsClaim) {
		who.Groups = append(who.Groups, p.config.Groups[value]...)
	}
	slices.Sort(who.Groups)
	who.Groups = slices.Compact(who.Groups)
	return who, nil
}

// values returns the texts of a claim, which is one text or a list. The name is tried as it is, and then as a path.
func values(claims map[string]any, name string) []string {
	v, ok := claims[name]
	for rest := name; !ok; {
		first, more, found := strings.Cut(rest, ".")
		inner, isObject := claims[first].(map[string]any)
		if !found || !isObject {
			return nil
		}
		claims, rest = inner, more
		v, ok = claims[rest]
	}
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var texts []string
		for _, one := range v {
			if text, isText := one.(string); isText {
				texts = append(texts, text)
			}
		}
		return texts
	}
	return nil
}

// LocalPath returns the path and its query if it certainly names a page of this console, else "/". Otherwise a link to the
// log-in page could redirect the user to another site.
func LocalPath(path string) string {
	u, err := url.Parse(path)
	if err != nil || len(path) > 2048 || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || u.Host != "" || u.Scheme != "" ||
		strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) ||
		strings.HasPrefix(u.Path, "//") || strings.ContainsRune(u.Path, '\\') || u.Path == "/api" || strings.HasPrefix(u.Path, "/api/") || u.Path == "/login" {
		return "/"
	}
	return path
}
