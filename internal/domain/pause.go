package domain

import (
	"fmt"
	"strings"
	"time"
)

// Pause is a time in which the jobs of a group do not fire by their schedules: from From on and before To. Fire times
// that are due in it are misfires when it is over.
type Pause struct {
	Group     string
	From      time.Time
	To        time.Time // zero: nobody knows yet
	Reason    string
	By        string // who paused
	ResumedBy string // who resumed; empty where it ends by itself
}

// PauseAhead is how far ahead of due a run may be admitted, so that a pause begins that much after it is asked for.
const PauseAhead = 250 * time.Millisecond

// MaxReasonChars bounds the reason of a pause.
const MaxReasonChars = 1024

// Covers reports whether what is due at t is due in the pause.
func (p *Pause) Covers(t time.Time) bool {
	return !t.Before(p.From) && (p.To.IsZero() || t.Before(p.To))
}

// Over reports whether the pause has ended by now.
func (p *Pause) Over(now time.Time) bool { return !p.To.IsZero() && !p.To.After(now) }

// PauseAt returns the pause that covers t, nil if none does.
func PauseAt(pauses []Pause, t time.Time) *Pause {
	for i := range pauses {
		if pauses[i].Covers(t) {
			return &pauses[i]
		}
	}
	return nil
}

// Describe says in words when, by whom and why the group was paused; say writes an instant.
func (p *Pause) Describe(now time.Time, say func(time.Time) string) string {
	text := fmt.Sprintf("group %s was paused from %s", p.Group, say(p.From))
	switch {
	case p.To.IsZero():
		text = fmt.Sprintf("group %s has been paused since %s", p.Group, say(p.From))
	case p.To.After(now):
		text = fmt.Sprintf("group %s is paused from %s to %s", p.Group, say(p.From), say(p.To))
	default:
		text += " to " + say(p.To)
	}
	text += " by " + p.By
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	return text
}

// NotePause shows a pause of its group that is not over on an enabled job that would fire in it: a note, and no next fire
// time. It reports whether it did; the zero Pause is none.
func (j *Job) NotePause(p Pause) bool {
	if p.From.IsZero() || !j.Enabled || j.NextFireTime == nil || !p.To.IsZero() && !j.NextFireTime.Before(p.To) {
		return false
	}
	j.NextFireTime = nil
	j.Note = "its " + p.Describe(p.From, sayInstant) + "; what it misses is up to its misfire policy when that is over"
	return true
}

func sayInstant(t time.Time) string { return At(t).String() }

// CheckPause returns what is wrong with a pause that is asked for at now, as an Invalid error.
func CheckPause(reason string, until *time.Time, now time.Time) error {
	var f Faults
	if strings.TrimSpace(reason) == "" {
		f.Add("reason", "is required: say why, for those who wonder what became of their runs")
	} else {
		f.text("reason", reason, 1, MaxReasonChars)
	}
	if until != nil && !until.After(now) {
		f.Add("until", "is past")
	}
	return f.Err("the pause is not valid")
}
