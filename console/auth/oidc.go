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

// OIDCConfig is an identity provider (OpenID Connect), and what its claims mean here.
type OIDCConfig struct {
	Issuer, ClientID, ClientSecret string
	RedirectURL                    string // of the callback, as the provider knows it
	Name                           string // of the button
	Scopes                         []string
	// The claims that hold the user's name, and the values that mean roles and groups. A claim within others is named by
	// its path with dots.
	UsernameClaim, RoleClaim, GroupsClaim string
	Roles                                 map[string]account.Role // by value; the highest counts
	DefaultRole                           account.Role            // of who has none of these; "": no access
	Groups                                map[string][]string     // by value
	SessionLifetime                       time.Duration
	Client                                *http.Client     // nil: one that waits ten seconds
	Now                                   func() time.Time // nil: time.Now
}

// Why a log-in through the provider comes to nothing. Others say that the provider cannot be reached or answers nonsense.
var (
	ErrOIDCDenied = errors.New("the provider did not let the user in")
	ErrOIDCState  = errors.New("the answer belongs to no log-in that this browser has begun")
	ErrOIDCToken  = errors.New("the provider's word is not valid")
	ErrOIDCName   = errors.New("the user has no name that can be used here")
)

// Provider is an identity provider: authorization code flow with PKCE, state and nonce. It is asked for its addresses and
// keys when they are first needed, so that a console starts while it is away.
type Provider struct {
	config OIDCConfig

	mu    sync.Mutex
	known *oidc.Provider // nil until it has answered
}

// NewProvider makes a Provider of a configuration that was checked.
func NewProvider(c OIDCConfig) *Provider {
	if c.Client == nil {
		c.Client = &http.Client{Timeout: 10 * time.Second}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Provider{config: c}
}

// Name is what people call the provider.
func (p *Provider) Name() string { return p.config.Name }

// SessionLifetime is how long a log-in lasts: the provider is asked about roles no sooner.
func (p *Provider) SessionLifetime() time.Duration { return p.config.SessionLifetime }

// OIDCCookieName is the cookie in which a browser keeps the log-in that it has begun.
const OIDCCookieName = "belfry_oidc"

// begun is what has to come back, or fit what comes back. It is the browser's own, so that the cookie need not be sealed.
type begun struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	ReturnTo string `json:"r"`
}

// OIDCCookie makes the cookie of a log-in that has begun, for requests to path; an empty value makes the one that deletes
// it. It is SameSite=Lax, as the provider's answer comes from another site.
func OIDCCookie(value, path string, secure bool) http.Cookie {
	c := http.Cookie{Name: OIDCCookieName, Value: value, Path: path, MaxAge: int(10 * time.Minute / time.Second),
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// Begin returns where the browser is to go, and what it has to keep meanwhile. returnTo is the page that it wants.
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

// Finish turns the provider's answer into who the user is. Errors that are none of the above mean that the provider could
// not be asked.
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
		return who, "", fmt.Errorf("%w: it refuses the code: %s", ErrOIDCToken, refusal.ErrorCode)
	}
	if err != nil {
		return who, "", fmt.Errorf("ask the identity provider for a token: %w", withoutBody(err))
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

// withoutBody drops what the provider has answered, which may hold a token.
func withoutBody(err error) error {
	if refusal := new(oauth2.RetrieveError); errors.As(err, &refusal) && refusal.Response != nil {
		return errors.New(refusal.Response.Status)
	}
	return err
}

// discover asks the provider for its addresses, once it has answered never again.
func (p *Provider) discover(ctx context.Context) (*oauth2.Config, *oidc.Provider, error) {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if known == nil {
		var err error
		if known, err = oidc.NewProvider(oidc.ClientContext(ctx, p.config.Client), p.config.Issuer); err != nil {
			return nil, nil, fmt.Errorf("ask the identity provider for its addresses: %w", err)
		}
		p.mu.Lock()
		p.known = known
		p.mu.Unlock()
	}
	return &oauth2.Config{ClientID: p.config.ClientID, ClientSecret: p.config.ClientSecret, Endpoint: known.Endpoint(),
		RedirectURL: p.config.RedirectURL, Scopes: p.config.Scopes}, known, nil
}

// verify judges the ID token: signature, issuer, audience, expiry, and that it answers this very log-in.
func (p *Provider) verify(ctx context.Context, provider *oidc.Provider, tokens *oauth2.Token, nonce string) (*oidc.IDToken, error) {
	raw, _ := tokens.Extra("id_token").(string)
	id, err := provider.Verifier(&oidc.Config{ClientID: p.config.ClientID, Now: p.config.Now}).Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOIDCToken, err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(nonce)) != 1 {
		return nil, fmt.Errorf("%w: its nonce is another log-in's", ErrOIDCToken)
	}
	if id.Subject == "" {
		return nil, fmt.Errorf("%w: it names no subject", ErrOIDCToken)
	}
	var c struct {
		AuthorizedParty string `json:"azp"`
	}
	if err := id.Claims(&c); err != nil || len(id.Audience) > 1 && c.AuthorizedParty != p.config.ClientID {
		return nil, fmt.Errorf("%w: it was made for another party", ErrOIDCToken)
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(tokens.AccessToken); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOIDCToken, err)
		}
	}
	return id, nil
}

// claims returns those of the ID token and, where one is missing there that is wanted, those of the userinfo endpoint: some
// providers tell names and groups there alone.
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
		return nil, fmt.Errorf("ask the identity provider about the user: %w", err)
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil || info.Subject != id.Subject {
		return nil, fmt.Errorf("%w: it tells of another user", ErrOIDCToken)
	}
	for name, value := range more {
		if _, there := claims[name]; !there {
			claims[name] = value
		}
	}
	return claims, nil
}

// usableName is what names of the provider's users must be made of, so that they can be told from whatever stands beside
// them in the audit log and in addresses.
var usableName = regexp.MustCompile(`^[a-z0-9][a-z0-9._@+-]{0,126}$`)

func (p *Provider) read(claims map[string]any, id *oidc.IDToken) (account.Claimed, error) {
	who := account.Claimed{Issuer: id.Issuer, Subject: id.Subject, Role: p.config.DefaultRole, Groups: []string{}}
	names := values(claims, p.config.UsernameClaim)
	if len(names) != 1 || !usableName.MatchString(strings.ToLower(names[0])) {
		return who, ErrOIDCName
	}
	if verified, said := claims["email_verified"].(bool); p.config.UsernameClaim == "email" && said && !verified {
		return who, ErrOIDCName // anybody may have entered it
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

// values returns the texts of a claim, which is one or a list of them. Its name is looked for as it is, then as a path.
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

// LocalPath returns the path, with its query, if it surely names a page of this console, else "/": a link must not lead
// through a log-in to another site.
func LocalPath(path string) string {
	u, err := url.Parse(path)
	if err != nil || len(path) > 2048 || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || u.Host != "" || u.Scheme != "" ||
		strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) ||
		strings.HasPrefix(u.Path, "//") || strings.ContainsRune(u.Path, '\\') || u.Path == "/api" || strings.HasPrefix(u.Path, "/api/") || u.Path == "/login" {
		return "/"
	}
	return path
}
