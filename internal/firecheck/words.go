package firecheck

import (
	"fmt"
	"time"
)

// layout is how answers write an instant, in the job's zone.
const layout = "2006-01-02 15:04:05.999Z07:00"

// zone returns the zone in which the job's newest version that can be compiled thinks.
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

// cause tells versions apart.
func (v *Version) cause() string { return fmt.Sprintf("version %d", v.Number) }

// made says how a version came to be, such as "version 3 (disabled by ann at …)".
func (f *Facts) made(v *Version) string {
	by := ""
	if v.By != "" {
		by = " by " + v.By
	}
	return fmt.Sprintf("version %d (%s%s at %s)", v.Number, v.Change, by, f.say(v.From))
}

// held says when a version held.
func (f *Facts) held(index int) string {
	v := &f.Job.Versions[index]
	if v.To.IsZero() {
		return f.made(v) + ", which has held since then"
	}
	return fmt.Sprintf("%s held until %s", f.made(v), f.say(v.To))
}

// ended says of a fire time that its version ended before it was due.
func (f *Facts) ended(fire *Fire) string {
	v := &f.Job.Versions[fire.Version]
	text := fmt.Sprintf("version %d had it due at %s, and ended before that", v.Number, f.say(fire.Due))
	if fire.Version+1 < len(f.Job.Versions) {
		text += ", with " + f.made(&f.Job.Versions[fire.Version+1])
	}
	return text
}
