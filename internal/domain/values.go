package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Duration is a time.Duration whose form in JSON and YAML is a Go duration string, such as "1m30s".
type Duration time.Duration

// String returns the Go form without trailing zero units: "10m", not "10m0s" as in the standard library.
func (d Duration) String() string {
	text := time.Duration(d).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// MarshalText writes the form of String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the Go form; the empty string is 0.
func (d *Duration) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*d = 0
		return nil
	}
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration; write it like \"90s\" or \"1h30m\"", b)
	}
	*d = Duration(v)
	return nil
}

// Std returns the duration as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// OptionalDuration is a Duration whose zero value has the empty string as its text form and means the server's setting.
type OptionalDuration Duration

// MarshalText writes the Go form, or the empty string for 0.
func (d OptionalDuration) MarshalText() ([]byte, error) {
	if d == 0 {
		return []byte{}, nil
	}
	return Duration(d).MarshalText()
}

// UnmarshalText reads the Go form; the empty string is 0.
func (d *OptionalDuration) UnmarshalText(b []byte) error { return (*Duration)(d).UnmarshalText(b) }

// InstantLayout is RFC 3339 with milliseconds. All output uses it, in UTC.
const InstantLayout = "2006-01-02T15:04:05.000Z07:00"

// Instant is a moment in time with millisecond precision, written in UTC.
type Instant struct{ time.Time }

// At returns t as an Instant.
func At(t time.Time) Instant { return Instant{t.UTC().Truncate(time.Millisecond)} }

// AtPtr returns t as an Instant, or nil if t is zero.
func AtPtr(t time.Time) *Instant {
	if t.IsZero() {
		return nil
	}
	i := At(t)
	return &i
}

// MarshalText writes RFC 3339 with milliseconds in UTC.
func (i Instant) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// MarshalJSON writes RFC 3339 with milliseconds in UTC.
func (i Instant) MarshalJSON() ([]byte, error) { return []byte(`"` + i.String() + `"`), nil }

// String returns RFC 3339 with milliseconds in UTC.
func (i Instant) String() string { return i.UTC().Format(InstantLayout) }

// UnmarshalText reads RFC 3339 with any zone and any fraction, and truncates to milliseconds.
func (i *Instant) UnmarshalText(b []byte) error {
	t, err := time.Parse(time.RFC3339, string(b))
	if err != nil {
		return fmt.Errorf("%q is not an instant; write it like \"2026-03-29T01:30:00Z\" or with an offset", b)
	}
	if year := t.UTC().Year(); year < 1 || year > 9999 { // its form in UTC could not be read back
		return fmt.Errorf("%q lies outside the years 1 to 9999 in UTC", b)
	}
	*i = At(t)
	return nil
}

// UnmarshalJSON reads a JSON string as UnmarshalText does.
func (i *Instant) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("%s is not an instant; write it as a string like \"2026-03-29T01:30:00Z\"", b)
	}
	return i.UnmarshalText([]byte(s))
}
