package domain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/explain"
)

// Pause is a period in which one job, or the jobs of a group, do not fire by schedule. From is included, To is not. Fire times that
// are due in the pause are misfires when it ends. If a job and its group are paused, the job does not fire until both pauses are over.
type Pause struct {
	JobID     JobID  // zero: all jobs of Group
	Group     string // empty for the pause of one job
	From      time.Time
	To        time.Time // zero: until a user resumes the job or the group
	Reason    string
	By        string // who paused
	ResumedBy string // who resumed; empty if the pause ends at its planned time
}

// PauseState is the current pause of a job or a group, as the REST API shows it. PausedUntil is null if the pause lasts until a user
// resumes the job or the group.
type PauseState struct {
	PausedAt    *Instant `json:"paused_at"`
	PausedUntil *Instant `json:"paused_until"`
	PauseReason string   `json:"pause_reason"`
	PausedBy    string   `json:"paused_by"`
}

// State returns the form of the REST API. The zero Pause means that there is no pause.
func (p *Pause) State() PauseState {
	return PauseState{PausedAt: AtPtr(p.From), PausedUntil: AtPtr(p.To), PauseReason: p.Reason, PausedBy: p.By}
}

// Of reports whether it is a pause of the job itself or of its group.
func (p *Pause) Of(job JobID, group string) bool {
	if p.JobID != 0 {
		return p.JobID == job
	}
	return p.Group == group
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

// PauseIndex finds the pauses that apply to a job.
type PauseIndex struct {
	jobs   map[JobID][]Pause
	groups map[string][]Pause
}

// IndexPauses returns an index of pauses, which keeps their order.
func IndexPauses(pauses []Pause) PauseIndex {
	if len(pauses) == 0 {
		return PauseIndex{}
	}
	x := PauseIndex{make(map[JobID][]Pause), make(map[string][]Pause)}
	for _, p := range pauses {
		if p.JobID != 0 {
			x.jobs[p.JobID] = append(x.jobs[p.JobID], p)
		} else {
			x.groups[p.Group] = append(x.groups[p.Group], p)
		}
	}
	return x
}

// Of returns the pauses of a job's group, followed by those of the job itself.
func (x PauseIndex) Of(job JobID, group string) []Pause {
	own := x.jobs[job]
	if len(own) == 0 {
		return x.groups[group]
	}
	return slices.Concat(x.groups[group], own)
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
	what := "the job"
	if p.JobID == 0 {
		what = "group " + p.Group
	}
	text := fmt.Sprintf("%s was paused from %s", what, say(p.From))
	switch {
	case p.To.IsZero():
		text = fmt.Sprintf("%s has been paused since %s", what, say(p.From))
	case p.To.After(now):
		text = fmt.Sprintf("%s is paused from %s to %s", what, say(p.From), say(p.To))
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
	text := fmt.Sprintf("任务由 %s 暂停，", p.By)
	if p.JobID == 0 {
		text = fmt.Sprintf("执行器组 %s 由 %s 暂停，", p.Group, p.By)
	}
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

// NotePauses sets the job's note and removes its next fire time if the job is enabled and would next fire within one of the pauses,
// which are those of the job and its group. It reports whether it did. The zero Pause means that there is no pause.
func (j *Job) NotePauses(pauses ...Pause) bool {
	if !j.Enabled || j.NextFireTime == nil {
		return false
	}
	for _, p := range pauses {
		if !p.From.IsZero() && (p.To.IsZero() || j.NextFireTime.Before(p.To)) {
			j.NotedPauses = append(j.NotedPauses, p)
		}
	}
	if len(j.NotedPauses) == 0 {
		return false
	}
	j.NextFireTime = nil
	j.Note = j.PauseNote(explain.English)
	return true
}

// PauseNote returns the note about NotedPauses in a language.
func (j *Job) PauseNote(language explain.Language) string {
	var parts []string
	for _, p := range j.NotedPauses {
		text := p.DescribeIn(language, p.From, sayInstant)
		if p.JobID == 0 {
			text = language.Text("its ", "") + text
		}
		parts = append(parts, text)
	}
	return language.Format("%s; after the pause, its misfire policy decides about missed fire times",
		"%s；暂停结束后，错过的触发时间按任务的错过策略处理", strings.Join(parts, language.Text("; ", "；")))
}

func sayInstant(t time.Time) string { return At(t).String() }

// CheckPause checks a pause that is requested at now. It returns an Invalid error that names each faulty field.
func CheckPause(reason string, until *time.Time, now time.Time) error {
	var f Faults
	if strings.TrimSpace(reason) == "" {
		f.Add("reason", "is required: give the reason of the pause; it is shown to the owners of the jobs")
	} else {
		f.text("reason", reason, 1, MaxReasonChars)
	}
	if until != nil && !until.After(now) {
		f.Add("until", "lies in the past")
	}
	return f.Err("the pause is not valid")
}
