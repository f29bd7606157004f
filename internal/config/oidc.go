package config

import (
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// OIDCCallback is the path of the console's callback.
const OIDCCallback = "/api/v1/auth/oidc/callback"

// Enabled reports whether there is an identity provider.
func (o OIDC) Enabled() bool { return o.OIDCIssuer != "" }

// Callback returns the redirect URL. The default is the console's own URL with OIDCCallback.
func (o OIDC) Callback(consoleURL string) string {
	if o.OIDCRedirectURL != "" {
		return o.OIDCRedirectURL
	}
	return strings.TrimRight(consoleURL, "/") + OIDCCallback
}

// Mapping splits VALUE=NAME at the last =, because values may be distinguished names.
func Mapping(text string) (value, name string) {
	i := strings.LastIndexByte(text, '=')
	if i < 0 {
		return "", ""
	}
	return text[:i], text[i+1:]
}

// check adds the faults of the provider's settings to f. If consoleKnown is set, the redirect URL is optional.
func (o OIDC) check(f *domain.Faults, consoleKnown bool) {
	if !o.Enabled() {
		if o.OIDCClientID != "" || o.OIDCClientSecret != "" || len(o.OIDCRoles) > 0 {
			f.Add("--oidc-issuer", "is required with other settings of the identity provider")
		}
		return
	}
	checkHTTPS(f, "--oidc-issuer", o.OIDCIssuer)
	if o.OIDCClientID == "" {
		f.Add("--oidc-client-id", "is required with --oidc-issuer")
	}
	switch {
	case o.OIDCRedirectURL == "" && !consoleKnown:
		f.Add("--oidc-redirect-url", "is required if --console-url is not set")
	case o.OIDCRedirectURL != "":
		checkHTTPS(f, "--oidc-redirect-url", o.OIDCRedirectURL)
		if !strings.HasSuffix(o.OIDCRedirectURL, OIDCCallback) {
			f.Add("--oidc-redirect-url", "must end with "+OIDCCallback)
		}
	}
	for _, claim := range []struct{ flag, name string }{
		{"--oidc-username-claim", o.OIDCUsernameClaim}, {"--oidc-role-claim", o.OIDCRoleClaim}, {"--oidc-groups-claim", o.OIDCGroupsClaim}, {"--oidc-name", o.OIDCName},
	} {
		if claim.name == "" {
			f.Add(claim.flag, "must not be empty")
		}
	}
	o.checkRoles(f)
	between(f, "--oidc-session", o.OIDCSession, 5*time.Minute, 168*time.Hour)
}

func (o OIDC) checkRoles(f *domain.Faults) {
	for _, m := range o.OIDCRoles {
		value, role := Mapping(m)
		if value == "" {
			f.Add("--oidc-role", "must be VALUE=ROLE, such as belfry-admins=admin")
			continue
		}
		checkOneOf(f, "--oidc-role", role, "admin", "operator", "viewer")
	}
	for _, m := range o.OIDCGroups {
		if value, group := Mapping(m); value == "" || !domain.ValidGroupName(group) {
			f.Add("--oidc-group", "must be VALUE=GROUP, such as team-a=default; of the group: "+domain.GroupNameRule)
		}
	}
	if o.OIDCDefaultRole != "" { // never admin, which needs an explicit --oidc-role
		checkOneOf(f, "--oidc-default-role", o.OIDCDefaultRole, "operator", "viewer")
	} else if len(o.OIDCRoles) == 0 {
		f.Add("--oidc-role", "is required if --oidc-default-role is not set, because no user could log in")
	}
}

// checkHTTPS refuses URLs without encryption, except on this machine.
func checkHTTPS(f *domain.Faults, flag, address string) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Scheme != "https" && u.Scheme != "http") {
		f.Add(flag, "is not a URL such as https://id.example.org")
		return
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		f.Add(flag, "must be https, because the connection carries credentials")
	}
}
