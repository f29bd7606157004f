package domain

import (
	"fmt"
	"regexp"
	"slices"
	"time"
)

// AlertKind is the kind of event that an alert reports.
type AlertKind string

// The kinds of alerts.
const (
	AlertFailed    AlertKind = "failed"    // a run finally failed; a broadcast counts when all its shards are final
	AlertRecovered AlertKind = "recovered" // the first success after a failure that caused an alert
	AlertMissed    AlertKind = "missed"    // fire times went to the missed ledger
	AlertLate      AlertKind = "late"      // a run started later than the server's threshold
	AlertTest      AlertKind = "test"      // a user tests a channel; jobs cannot ask for this kind
)

// AlertKinds are the kinds that a job may ask for.
var AlertKinds = []AlertKind{AlertFailed, AlertRecovered, AlertMissed, AlertLate}

// Wants reports whether the job asks for alerts of this kind and names at least one channel.
func (a *Alert) Wants(kind AlertKind) bool { return len(a.Channels) > 0 && slices.Contains(a.On, kind) }

// The bounds of a job's alerts.
const (
	MaxAlertChannels = 16
	// DefaultAlertEvery is the minimum interval between two alerts of one kind for one job.
	DefaultAlertEvery = time.Hour
	// DefaultAlertLateAfter is the lateness from which a run causes an alert.
	DefaultAlertLateAfter = time.Minute
)

var channelName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// ChannelNameRule states the form of channel names.
const ChannelNameRule = "the name of a channel is 1 to 63 characters, a-z, 0-9, _ or -, and starts with a letter or digit"

// NoChannel returns the message for a channel that does not exist, or that the caller may not use.
func NoChannel(name string) string {
	return fmt.Sprintf("there is no alert channel %q; create it first, with belfry alert-channel apply or POST /api/v1/alert-channels", name)
}

// ValidChannelName reports whether s is a valid channel name.
func ValidChannelName(s string) bool { return channelName.MatchString(s) }

// validate adds the faults of a job's alerts. The store checks whether the channels exist.
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

// normalize replaces nil lists by empty ones, and an empty On by the default kinds if there are channels.
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
