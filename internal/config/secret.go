package config

import (
	"log/slog"
	"net/url"
	"strings"
)

const redacted = "[redacted]"

// Secret is text that no format verb, encoder or logger prints. Reveal returns it.
type Secret string

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String returns "[redacted]", or "" for the empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return `config.Secret("` + s.String() + `")` }

// MarshalText hides the secret from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue hides the secret from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// URL is the address of a server, or several with commas between them, and may hold a password. Printing it
// shows scheme, host and path alone; Reveal returns all of it.
type URL string

// Reveal returns the URL itself.
func (u URL) Reveal() string { return string(u) }

// String returns the URL without user, password and parameters, "[redacted]" where that is not
// surely all that would be shown.
func (u URL) String() string {
	if u == "" {
		return ""
	}
	// A password may hold what ends it for url.Parse. Then there is an @, but no user; or a list, but an @.
	hasUser := strings.Contains(string(u), "@")
	list := strings.Split(string(u), ",")
	for i, one := range list {
		parsed, err := url.Parse(strings.TrimSpace(one))
		if err != nil || parsed.Scheme == "" || parsed.Host == "" || hasUser && (len(list) > 1 || parsed.User == nil) {
			return redacted
		}
		list[i] = (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
	}
	return strings.Join(list, ",")
}

// GoString hides what String hides from %#v.
func (u URL) GoString() string { return `config.URL("` + u.String() + `")` }

// MarshalText hides what String hides from encoders.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue hides what String hides from slog.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }
