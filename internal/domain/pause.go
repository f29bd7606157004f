package domain

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/explain"
)

// Pause is a period in which the jobs of a group do not fire by schedule. From is included, To is not. Fire times that are due in
// the pause are misfires when it ends.
type Pause struct {
	Group     string
	From      time.Time
	To        time.Time // zero: until a user resumes the group
	Reason    string
	By        string // who paused
	ResumedBy string // who resumed the group; empty if the pause ends at its planned time
}

// PauseAhead is how far ahead of its due instant a run may be admitted. A pause therefore begins this long after the request.
const PauseAhead = 250 * time.Millisecond

// MaxReasonChars is the maximum length of a pause's reason.
const MaxReasonChars = 1024

// Covers reports whether t lies in the pause.
func (p *Pause) Covers(t time.Time) bool {
	return !t.Before(p.From) && (p.To.IsZero() || t.Before(p.To))
}

// Over reports whether the pause has ended by now.
func (p *Pause) Over(now time.Time) bool { return !p.To.IsZero() && !p.To.After(now) }

// PauseAt returns the pause that covers t, or nil if none does.
func PauseAt(pauses []Pause, t time.Time) *Pause {
	for i := range pauses {
		if pauses[i].Covers(t) {
			return &pauses[i]
		}
	}
	return nil
}

// Describe returns an English sentence with the period, the person and the reason of the pause. say formats an instant.
func (p *Pause) Describe(now time.Time, say func(time.Time) string) string {
	return p.DescribeIn(explain.English, now, say)
}

// DescribeIn is Describe in a language.
func (p *Pause) DescribeIn(language explain.Language, now time.Time, say func(time.Time) string) string {
	if language == explain.Chinese {
		return p.describeChinese(now, say)
	}
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

func (p *Pause) describeChinese(now time.Time, say func(time.Time) string) string {
	text := fmt.Sprintf("执行器组 %s 由 %s 暂停，", p.Group, p.By)
	switch {
	case p.To.IsZero():
		text += fmt.Sprintf("自 %s 起", say(p.From))
	case p.To.After(now):
		text += fmt.Sprintf("自 %s 起，预计至 %s", say(p.From), say(p.To))
	default:
		text += fmt.Sprintf("时间为 %s 至 %s", say(p.From), say(p.To))
	}
	if p.Reason != "" {
		text += "（" + p.Reason + "）"
	}
	return text
}

// NotePause sets the job's note and removes its next fire time if the job is enabled and would next fire within the pause p of its
// group. It reports whether it did. The zero Pause means that there is no pause.
func (j *Job) NotePause(p Pause) bool {
	if p.From.IsZero() || !j.Enabled || j.NextFireTime == nil || !p.To.IsZero() && !j.NextFireTime.Before(p.To) {
		return false
	}
	j.NextFireTime = nil
	j.NotedPause = &p
	j.Note = j.PauseNote(explain.English)
	return true
}

// PauseNote returns the note about NotedPause in a language.
func (j *Job) PauseNote(language explain.Language) string {
	p := j.NotedPause
	return language.Format("its %s; after the pause, its misfire policy decides about missed fire times",
		"%s；暂停结束后，错过的触发时间按任务的错过策略处理", p.DescribeIn(language, p.From, sayInstant))
}

func sayInstant(t time.Time) string { return At(t).String() }

// CheckPause checks a pause that is requested at now. It returns an Invalid error that names each faulty field.
func CheckPause(reason string, until *time.Time, now time.Time) error {
	var f Faults
	if strings.TrimSpace(reason) == "" {
		f.Add("reason", "is required: say why the group is paused; owners of its jobs read it")
	} else {
		f.text("reason", reason, 1, MaxReasonChars)
	}
	if until != nil && !until.After(now) {
		f.Add("until", "lies in the past")
	}
	return f.Err("the pause is not valid")
}
