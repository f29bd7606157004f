package firecheck

import (
	"fmt"
	"time"
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

func (f *Facts) sayAway(g Gap) string {
	if g.To.IsZero() {
		return "no scheduler has been at work since " + f.say(g.From)
	}
	return fmt.Sprintf("no scheduler was at work from %s to %s", f.say(g.From), f.say(g.To))
}

// cause returns the Cause of findings that a version explains.
func (v *Version) cause() string { return fmt.Sprintf("version %d", v.Number) }

// made describes the creation of a version, such as "version 3 (disabled by ann at …)".
func (f *Facts) made(v *Version) string {
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
		return f.made(v) + ", which has been in force since then"
	}
	return fmt.Sprintf("%s was in force until %s", f.made(v), f.say(v.To))
}

// ended explains a fire time whose version ended before it was due.
func (f *Facts) ended(fire *Fire) string {
	v := &f.Job.Versions[fire.Version]
	text := fmt.Sprintf("it was due at %[2]s by version %[1]d, which ended before that", v.Number, f.say(fire.Due))
	if fire.Version+1 < len(f.Job.Versions) {
		text += ", with " + f.made(&f.Job.Versions[fire.Version+1])
	}
	return text
}
