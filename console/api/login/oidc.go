package login

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/users"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

const (
	oidcPath = rest.Prefix + "/auth/oidc"
	// OIDCLogin is the path at which a log-in through the identity provider begins.
	OIDCLogin = oidcPath + "/login"
	// OIDCCallback is the path to which the identity provider sends the browser back.
	OIDCCallback = oidcPath + "/callback"
)

type methods struct {
	Password bool        `json:"password" doc:"Whether POST /auth/login accepts a user name and a password"`
	OIDC     *oidcMethod `json:"oidc,omitempty" doc:"The identity provider, if one is configured"`
}

type oidcMethod struct {
	Name  string `json:"name" doc:"The name to show to users"`
	Login string `json:"login" doc:"The path at which a browser starts the log-in. Its parameter return_to is the path of the console to open after the log-in"`
}

func (a *API) methods(context.Context, auth.Identity, *struct{}) (*rest.Output[methods], error) {
	m := methods{Password: true}
	if a.OIDC != nil {
		m.OIDC = &oidcMethod{Name: a.OIDC.Name(), Login: OIDCLogin}
	}
	return rest.Answer(m), nil
}

func (a *API) oidcBegin(w http.ResponseWriter, r *http.Request) {
	if a.OIDC == nil {
		problem.Write(w, problem.New(http.StatusNotFound, "no identity provider is configured"))
		return
	}
	redirect, kept, err := a.OIDC.Begin(r.Context(), r.URL.Query().Get("return_to"))
	if err != nil {
		a.oidcFailed(w, r, err)
		return
	}
	a.oidcCookie(w, r, kept)
	http.Redirect(w, r, redirect, http.StatusSeeOther) //nolint:gosec // the address of the configured provider
}

func (a *API) oidcCookie(w http.ResponseWriter, r *http.Request, value string) {
	c := auth.OIDCCookie(value, oidcPath, r.TLS != nil || a.SecureCookies)
	http.SetCookie(w, &c)
}

func (a *API) oidcFinish(w http.ResponseWriter, r *http.Request) {
	if a.OIDC == nil {
		problem.Write(w, problem.New(http.StatusNotFound, "no identity provider is configured"))
		return
	}
	var c Client
	c.read(r)
	kept := ""
	if cookie, err := r.Cookie(auth.OIDCCookieName); err == nil {
		kept = cookie.Value
	}
	a.oidcCookie(w, r, "") // an answer of the provider is valid once
	// A request without credentials makes this process call the provider, so the rate is limited.
	if wait := a.Guesses.TryNetwork(c.remote, time.Now()); wait > 0 {
		seconds := (wait + time.Second - 1) / time.Second
		a.oidcBack(w, r, url.Values{"error": {"too_many"}, "wait": {strconv.Itoa(int(seconds))}})
		return
	}
	who, returnTo, err := a.OIDC.Finish(r.Context(), kept, r.URL.Query())
	if err != nil {
		a.oidcFailed(w, r, err)
		return
	}
	in, err := a.Store.LogInOIDC(r.Context(), who, a.OIDC.SessionLifetime(), c.origin())
	a.auditOIDC(r.Context(), c.remote, in, err)
	if err != nil {
		a.oidcFailed(w, r, err)
		return
	}
	cookie := auth.SessionCookie(in.Token, in.ExpiresAt, c.secure || a.SecureCookies)
	http.SetCookie(w, &cookie)
	http.Redirect(w, r, returnTo, http.StatusSeeOther) //nolint:gosec // auth.LocalPath has checked it
}

// auditOIDC records the log-in, and the changes of the user that the provider's claims caused.
func (a *API) auditOIDC(ctx context.Context, remote string, in account.OIDCLogIn, err error) {
	name := in.After.Name
	if name == "" || err != nil && !errors.Is(err, account.ErrNoAccess) {
		return
	}
	who, object := auth.Identity{Principal: account.Principal{User: name}, Remote: remote}, "user/"+name
	before, after := in.Before, users.Of(in.After)
	switch {
	case before == nil:
		a.Audit.Record(ctx, who, "user.create", object, nil, after)
	case before.Role != in.After.Role || !slices.Equal(before.Groups, in.After.Groups):
		a.Audit.Record(ctx, who, "user.update", object, users.Of(*before), after)
	}
	if err == nil {
		a.Audit.Record(ctx, who, "auth.login", object, nil, nil)
	}
}

// oidcFailed sends the browser back to the log-in page with a code for the reason. The error is logged.
func (a *API) oidcFailed(w http.ResponseWriter, r *http.Request, err error) {
	why := "oidc_unavailable"
	for _, known := range []struct {
		err error
		why string
	}{
		{auth.ErrOIDCDenied, "oidc_denied"}, {auth.ErrOIDCState, "oidc_expired"}, {auth.ErrOIDCToken, "oidc_failed"}, {auth.ErrOIDCName, "oidc_name"},
		{account.ErrNoAccess, "oidc_no_access"}, {account.ErrCredentials, "oidc_no_access"},
	} {
		if errors.Is(err, known.err) {
			why = known.why
		}
	}
	if domain.CodeOf(err) == domain.Conflict {
		why = "oidc_name"
	}
	a.Log.WarnContext(r.Context(), "a log-in through the identity provider failed, sending the browser back to the log-in page", "reason", why, "err", err)
	a.oidcBack(w, r, url.Values{"error": {why}})
}

func (a *API) oidcBack(w http.ResponseWriter, r *http.Request, query url.Values) {
	http.Redirect(w, r, "/login?"+query.Encode(), http.StatusSeeOther)
}
