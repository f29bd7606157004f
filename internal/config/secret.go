package config

import (
	"log/slog"
	"net/url"
	"strings"
)

const redacted = "[redacted]"

// Secret is a text that no format verb, encoder or logger prints. Reveal returns it.
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

// URL is the address of a server, or several addresses separated by commas. It may contain a password. Printing it
// shows only scheme, host and path; Reveal returns all of it.
type URL string

// Reveal returns the URL itself.
func (u URL) Reveal() string { return string(u) }

// String returns the URL without user, password and parameters. It returns "[redacted]" if it cannot be sure to remove
// them all.
func (u URL) String() string {
	if u == "" {
		return ""
	}
	// A password may contain characters that end it for url.Parse. Then there is an @ but no user, or a list with an @.
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

// GoString redacts like String, for %#v.
func (u URL) GoString() string { return `config.URL("` + u.String() + `")` }

// MarshalText redacts like String, for encoders.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue redacts like String, for slog.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }
