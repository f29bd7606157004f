package domain

import (
	"fmt"
	"regexp"
	"slices"
	"time"
)

// AlertKind is a turn of a job that channels can be told of.
type AlertKind string

// The kinds of alerts.
const (
	AlertFailed    AlertKind = "failed"    // a run finally failed; of a broadcast, when it joined
	AlertRecovered AlertKind = "recovered" // the first success after a failure that was told
	AlertMissed    AlertKind = "missed"    // fire times went to the missed ledger
	AlertLate      AlertKind = "late"      // a run started later than the server's threshold
	AlertTest      AlertKind = "test"      // somebody tries a channel; no job asks for it
)

// AlertKinds are the kinds that a job may ask for.
var AlertKinds = []AlertKind{AlertFailed, AlertRecovered, AlertMissed, AlertLate}

// Wants reports whether channels are to hear of turns of this kind.
func (a *Alert) Wants(kind AlertKind) bool { return len(a.Channels) > 0 && slices.Contains(a.On, kind) }

// The bounds of a job's alerts.
const (
	MaxAlertChannels = 16
	// DefaultAlertEvery is how often at most one job's alerts of one kind are told.
	DefaultAlertEvery = time.Hour
	// DefaultAlertLateAfter is from which lateness on a run is told as late.
	DefaultAlertLateAfter = time.Minute
)

var channelName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// ChannelNameRule says in words what the name of an alert channel is.
const ChannelNameRule = "the name of a channel is 1 to 63 characters, a-z, 0-9, _ or -, and starts with a letter or digit"

// ValidChannelName reports whether s may name an alert channel.
func ValidChannelName(s string) bool { return channelName.MatchString(s) }

// validate names what is faulty in a job's alerts. Which channels exist the store knows.
func (a *Alert) validate(f *Faults) {
	if len(a.Channels) > MaxAlertChannels {
		f.Add("alert.channels", fmt.Sprintf("has %d channels; at most %d are allowed", len(a.Channels), MaxAlertChannels))
	}
	for i, name := range a.Channels {
		at := fmt.Sprintf("alert.channels[%d]", i)
		if !ValidChannelName(name) {
			f.Add(at, ChannelNameRule)
		} else if slices.Index(a.Channels, name) < i {
			f.Add(at, "is given twice")
		}
	}
	for i, on := range a.On {
		at := fmt.Sprintf("alert.on[%d]", i)
		if slices.Index(a.On, on) < i {
			f.Add(at, "is given twice")
			continue
		}
		oneOf(f, at, on, AlertKinds...)
	}
}

// normalize has channels that are told of no turn told of the usual ones.
func (a *Alert) normalize() {
	if a.Channels == nil {
		a.Channels = []string{}
	}
	if a.On == nil {
		a.On = []AlertKind{}
	}
	if len(a.Channels) > 0 && len(a.On) == 0 {
		a.On = []AlertKind{AlertFailed, AlertRecovered, AlertMissed}
	}
}
