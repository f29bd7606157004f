package firecheck

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// layout is the format of instants in answers, in the job's time zone.
const layout = "2006-01-02 15:04:05.999Z07:00"

// zone returns the time zone of the job's newest version that compiles.
func (job *Job) zone() *time.Location {
	for i := len(job.Versions) - 1; i >= 0; i-- {
		if s := job.Versions[i].Schedule; s != nil {
			return s.Zone()
		}
	}
	return time.UTC
}

func (f *Facts) say(t time.Time) string { return t.In(f.Job.zone()).Format(layout) }

// text formats in the language of the facts.
func (f *Facts) text(english, chinese string, args ...any) string {
	return f.Language.Format(english, chinese, args...)
}

func (f *Facts) pauses(in []*domain.Pause) string {
	parts := make([]string, len(in))
	for i, p := range in {
		parts[i] = p.DescribeIn(f.Language, f.Now, f.say)
	}
	return strings.Join(parts, f.text("; ", "；"))
}

func (f *Facts) state(s domain.State) string { return f.Language.Text(string(s), chineseStates[s]) }

func (f *Facts) reason(r domain.Reason) string { return f.Language.Text(string(r), chineseReasons[r]) }

func (f *Facts) describe(s *schedule.Schedule) string {
	if f.Language == explain.Chinese {
		return s.DescribeChinese()
	}
	return s.Describe()
}

func (f *Facts) sayAway(g Gap) string {
	if g.Fault != nil {
		return g.Fault.DescribeIn(f.Language, f.say)
	}
	if g.To.IsZero() {
		return f.text("no scheduler has been at work since %s", "自 %s 起没有调度器在工作", f.say(g.From))
	}
	return f.text("no scheduler was at work from %s to %s", "从 %s 到 %s 没有调度器在工作", f.say(g.From), f.say(g.To))
}

// cause returns the Cause of findings that the gap explains: that of its disturbance, or the given one.
func (g *Gap) cause(otherwise string) string {
	if g.Fault != nil {
		return string(g.Fault.Kind)
	}
	return otherwise
}

// cause returns the Cause of findings that follow from a version.
func (v *Version) cause() string { return fmt.Sprintf("version %d", v.Number) }

// made describes the creation of a version, such as "version 3 (disabled by ann at …)".
func (f *Facts) made(v *Version) string {
	if f.Language == explain.Chinese {
		return f.madeChinese(v)
	}
	by := ""
	if v.By != "" {
		by = " by " + v.By
	}
	return fmt.Sprintf("version %d (%s%s at %s)", v.Number, v.Change, by, f.say(v.From))
}

// held describes the period in which a version was in force.
func (f *Facts) held(index int) string {
	v := &f.Job.Versions[index]
	if v.To.IsZero() {
		return f.text("%s, which has been in force since then", "%s此后一直有效", f.made(v))
	}
	return f.text("%s was in force until %s", "%s的有效期至 %s", f.made(v), f.say(v.To))
}

// ended explains a fire time whose version ended before it was due.
func (f *Facts) ended(fire *Fire) string {
	v := &f.Job.Versions[fire.Version]
	text := f.text("it was due at %[2]s by version %[1]d, which ended before that", "按版本 %[1]d，它应于 %[2]s 触发，而该版本在此之前已失效", v.Number, f.say(fire.Due))
	if fire.Version+1 < len(f.Job.Versions) {
		text += f.text(", with %s", "，由%s取代", f.made(&f.Job.Versions[fire.Version+1]))
	}
	return text
}
