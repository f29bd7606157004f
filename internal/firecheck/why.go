package firecheck

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// Lookup returns the fire time of a job at an instant, with the version that has the best claim. If the instant is no fire time,
// Fire.Version is the version that was in force then, or -1 if there was none.
func Lookup(job *Job, at time.Time) (fire Fire, found bool) {
	fire = Fire{Time: at, Due: at, Version: -1}
	for i := range job.Versions {
		v := &job.Versions[i]
		if v.holds(at) && !v.Deleted {
			fire.Version = i
		}
		if v.Deleted || v.Schedule == nil || v.Chained() || !isFire(v.Schedule, at) {
			continue
		}
		candidate := Fire{Time: at, Due: v.Schedule.Due(job.ID, at), Version: i}
		ok := v.holds(at) || v.holds(candidate.Due)
		if ok {
			candidate.Claim, ok = job.claim(&candidate)
		}
		if ok && (!found || candidate.Claim == Owned) {
			fire, found = candidate, true
		}
	}
	return fire, found
}

// Neighbours returns the nearest fire times before and after t. They are zero if there is none within ten years before t or none
// after t.
func Neighbours(s *schedule.Schedule, t time.Time) (before, after time.Time) {
	after, _ = s.Next(t)
	const furthest = 10 * 366 * 24 * time.Hour
	for back := 2 * time.Second; before.IsZero() && back < furthest; back *= 2 {
		// The previous, shorter periods contained no fire time, so the loop finds only a few, even for a dense schedule.
		for f, ok := s.Next(t.Add(-back)); ok && f.Before(t); f, ok = s.Next(f) {
			before = f
		}
	}
	return before, after
}

// Chain contains the runs of a fixed_delay job before and after an instant; nil if there is none.
type Chain struct{ Before, After *Run }

// ChainDue returns the fire time that follows a run of a fixed_delay version that ended at end. open reports whether it lies
// within the schedule's window.
func ChainDue(v *Version, end time.Time) (due time.Time, open bool) {
	start, last := v.Schedule.Window()
	due = end.Add(v.Schedule.Delay())
	if start.After(due) {
		due = start
	}
	return due, last.IsZero() || !due.After(last)
}

// Why explains what happened to a job at an instant. heard is a sentence about the interpretation of the user's input and may be
// empty. chain is used for versions of kind fixed_delay only.
func (f *Facts) Why(at time.Time, heard string, chain Chain) Why {
	out := Why{
		JobID: f.Job.ID, JobName: f.Job.Name, Group: f.Job.Group, At: domain.At(at), TimeZone: f.Job.zone().String(),
	}
	var say []string
	if heard != "" {
		say = append(say, heard)
	}
	fire, found := Lookup(f.Job, at)
	if fire.Version >= 0 {
		v := &f.Job.Versions[fire.Version]
		out.Version = v.Number
		if v.Schedule != nil {
			before, after := Neighbours(v.Schedule, at)
			out.Before, out.After = domain.AtPtr(before), domain.AtPtr(after)
		}
	}
	runs := f.Runs[fire.ID(f.Job.ID)]
	switch {
	case found:
		say = append(say, f.answerFire(&out, &fire)...)
	case fire.Version >= 0 && f.Job.Versions[fire.Version].Chained():
		say = append(say, f.answerChain(&out, &fire, chain)...)
	case fire.Version < 0:
		say = append(say, f.answerNoVersion(at))
	default:
		say = append(say, f.answerNoFire(&out, &fire)...)
	}
	if len(runs) > 0 && !found && out.RunID == nil {
		out.RunID = &runs[0].ID
		say = append(say, f.text("However, there is run %s of version %d with this fire time.", "但版本 %[2]d 的运行 %[1]s 的触发时间正是该时刻。", runs[0].ID, runs[0].Version))
	}
	out.Answer = strings.Join(say, f.text(" ", ""))
	return out
}

// answerFire explains a fire time.
func (f *Facts) answerFire(out *Why, fire *Fire) []string {
	v := &f.Job.Versions[fire.Version]
	finding := f.Explain(*fire)
	out.IsFireTime, out.Fate, out.DueAt = true, finding.Fate, domain.AtPtr(fire.Due)
	if !finding.RunID.IsZero() {
		out.RunID = &finding.RunID
	}
	say := []string{f.text("%s is a fire time of %s: %s.", "%s 是%s的触发时间：%s。", f.say(fire.Time), f.made(v), f.describe(v.Schedule))}
	if moved := f.clocks(v.Schedule, fire.Time, true); moved != "" {
		say = append(say, moved)
	}
	if !fire.Due.Equal(fire.Time) {
		say = append(say, f.text("Its jitter makes it due at %s.", "加上随机延迟，应于 %s 触发。", f.say(fire.Due)))
	}
	say = append(say, f.sentence(finding.Text))
	if d := f.repeated(fire.Due); d != nil {
		say = append(say, f.sentence(d.DescribeIn(f.Language, f.say)), f.text("It showed this instant twice, and a fire time has one run.", "它两次到达该时刻，而一个触发时间只有一次运行。"))
	}
	return say
}

// answerNoFire explains why an instant is no fire time of the version that was in force.
func (f *Facts) answerNoFire(out *Why, fire *Fire) []string {
	v := &f.Job.Versions[fire.Version]
	if v.Schedule == nil {
		return []string{f.text("It is unknown whether this is a fire time, because the schedule of version %d no longer compiles: %s.",
			"无法判断这是不是触发时间，因为版本 %d 的调度已无法编译：%s。", v.Number, v.Fault)}
	}
	if v.Schedule.Kind() == domain.ScheduleNone {
		return []string{f.text("The job has no schedule: %s. It runs only by manual trigger, API, event or parent.",
			"任务没有调度：%s。它仅由手动、API、事件或父任务触发。", f.held(fire.Version))}
	}
	say := []string{f.text("%s is no fire time: %s, with this schedule: %s.", "%s 不是触发时间：%s，调度为：%s。",
		f.say(fire.Time), f.held(fire.Version), f.describe(v.Schedule))}
	start, end := v.Schedule.Window()
	switch {
	case !start.IsZero() && fire.Time.Before(start):
		say = append(say, f.text("Its start_at is %s.", "它的 start_at 为 %s。", f.say(start)))
	case !end.IsZero() && fire.Time.After(end):
		say = append(say, f.text("Its end_at is %s.", "它的 end_at 为 %s。", f.say(end)))
	case v.Schedule.DayOff(fire.Time):
		local := fire.Time.In(v.Schedule.Zone())
		off := f.text("%s, a %s, is a day off of calendar %s", "%s（%s）是日历 %s 的休息日",
			domain.DateOf(local), f.Language.Text(local.Weekday().String(), chineseWeekdays[local.Weekday()]), v.Schedule.Calendar())
		if v.Schedule.TakenOff(fire.Time) {
			off += f.text("; without the calendar, this would be a fire time", "；若没有该日历，这会是触发时间")
		}
		say = append(say, off+f.text(".", "。"))
	}
	if moved := f.clocks(v.Schedule, fire.Time, false); moved != "" {
		say = append(say, moved)
	}
	if !v.Enabled {
		say = append(say, f.text("The job was also disabled at that time.", "任务当时还处于停用状态。"))
	}
	return append(say, f.neighbours(out))
}

func (f *Facts) neighbours(out *Why) string {
	switch {
	case out.Before != nil && out.After != nil:
		return f.text("The nearest fire times are %s and %s.", "最近的触发时间是 %s 和 %s。", f.say(out.Before.Time), f.say(out.After.Time))
	case out.After != nil:
		return f.text("The first fire time is %s.", "首个触发时间是 %s。", f.say(out.After.Time))
	case out.Before != nil:
		return f.text("The last fire time was %s.", "最后一个触发时间是 %s。", f.say(out.Before.Time))
	}
	return f.text("It has no fire times.", "它没有触发时间。")
}

// answerNoVersion explains an instant before the job was created or after it was deleted.
func (f *Facts) answerNoVersion(at time.Time) string {
	for i := range f.Job.Versions {
		if v := &f.Job.Versions[i]; v.Deleted && at.After(v.From) {
			return f.text("The job did not exist any more: %s.", "任务当时已不存在：%s。", f.made(v))
		}
	}
	if len(f.Job.Versions) > 0 {
		return f.text("The job did not exist yet: %s.", "任务当时尚不存在：%s。", f.made(&f.Job.Versions[0]))
	}
	return f.text("The job did not exist.", "任务当时不存在。")
}

// answerChain explains an instant of a fixed_delay job, whose fire times follow from the ends of its runs.
func (f *Facts) answerChain(out *Why, fire *Fire, chain Chain) []string {
	v := &f.Job.Versions[fire.Version]
	say := []string{f.text("Fire times of fixed_delay follow from the ends of runs: %s, with this schedule: %s.",
		"固定延迟任务的触发时间取决于前一次运行的结束：%s，调度为：%s。", f.held(fire.Version), f.describe(v.Schedule))}
	if runs := f.Runs[fire.ID(f.Job.ID)]; len(runs) > 0 {
		fire.Claim, fire.Due = Owned, v.Schedule.Due(f.Job.ID, fire.Time)
		finding := f.Explain(*fire)
		out.IsFireTime, out.Fate, out.DueAt, out.RunID = true, finding.Fate, domain.AtPtr(fire.Due), &runs[0].ID
		return append(say, f.text("%s was a fire time.", "%s 是触发时间。", f.say(fire.Time)), f.sentence(finding.Text))
	}
	if m := f.entry(fire.Time); m != nil {
		fire.Claim = Owned
		finding := f.missed(fire, m)
		out.IsFireTime, out.Fate = true, finding.Fate
		return append(say, f.sentence(finding.Text))
	}
	if !v.Enabled {
		out.Fate = FateDisabled
		return append(say, f.text("The job was disabled at that time.", "任务当时处于停用状态。"))
	}
	if r := chain.Before; r != nil {
		out.Before, out.RunID = domain.AtPtr(r.FireTime), &r.ID
		text := f.text("The previous fire time was %s, and its run %s", "前一个触发时间是 %s，它的运行 %s ", f.say(r.FireTime), r.ID)
		switch end := r.FinishedAt; {
		case !r.State.Final():
			text += f.text(" is still %s: the next fire time follows from its end.", "仍为%s：它结束之后才有下一个触发时间。", f.state(r.State))
		case end.After(fire.Time):
			text += f.text(" lasted until %s.", "持续到 %s。", f.say(end))
		default:
			text += f.text(" had ended at %s, so the next one was due %s later.", "已于 %s 结束，因此下一个触发时间在 %s后。", f.say(end), f.duration(v.Schedule.Delay()))
		}
		say = append(say, text)
	}
	if r := chain.After; r != nil {
		out.After = domain.AtPtr(r.FireTime)
		say = append(say, f.text("The next fire time was %s.", "下一个触发时间是 %s。", f.say(r.FireTime)))
	} else if next := f.Job.NextFire; !next.IsZero() {
		out.After = domain.AtPtr(next)
		say = append(say, f.text("The next fire time is %s.", "下一个触发时间是 %s。", f.say(next)))
	}
	if gap, away := f.away(fire.Time); away {
		say = append(say, f.sentence(f.sayAway(gap)))
	}
	return say
}

// clocks returns a sentence if a clock change is the reason why an instant is a fire time, or why it is none.
func (f *Facts) clocks(s *schedule.Schedule, t time.Time, fires bool) string {
	zone := s.Zone()
	from, _ := t.In(zone).ZoneBounds()
	if from.IsZero() || s.Kind() != domain.ScheduleCron {
		return ""
	}
	_, offset := t.In(zone).Zone()
	_, earlier := from.Add(-time.Second).In(zone).Zone()
	turn := time.Duration(offset-earlier) * time.Second
	switch {
	case fires && turn > 0 && t.Equal(from):
		return f.text("At that instant the clocks went forward by %s: local times of the expression that lie in the gap fire here, once.",
			"时钟在该时刻向前拨了 %s：表达式中被跳过的本地时间在此触发一次。", f.duration(turn))
	case !fires && turn < 0 && t.Sub(from) < -turn && isFire(s, t.Add(turn)):
		return f.text("The clocks had gone back by %s: they showed this local time for the second time, and a fixed local time fires only the first time.",
			"时钟向后拨了 %s：这个本地时间是第二次出现，而固定的本地时间只在第一次出现时触发。", f.duration(-turn))
	}
	return ""
}

// ParseAt parses an instant: RFC 3339, or a local time in the job's time zone such as 2026-03-29 02:30. If the clocks showed the
// local time twice or never, heard is a sentence that says so.
func ParseAt(text string, job *Job, language explain.Language) (at time.Time, heard string, err error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC().Truncate(time.Millisecond), "", nil
	}
	zone := job.zone()
	for _, form := range []string{"2006-01-02T15:04:05.999", "2006-01-02T15:04"} {
		local, err := time.Parse(form, strings.Replace(text, " ", "T", 1))
		if err != nil {
			continue
		}
		at, heard = Local(local, zone, language)
		return at, heard, nil
	}
	return at, "", fmt.Errorf("%q is not an instant; write it like 2026-03-29T01:30:00Z, or like 2026-03-29T02:30 in the job's time zone, which is %s", clip(text), zone)
}

func clip(s string) string {
	if r := []rune(s); len(r) > 64 {
		return string(r[:64]) + "…"
	}
	return s
}

// Local returns the instant at which the clocks of a zone show the given local time; the zone of reading is ignored. If they show
// it twice, it returns the first instant. If they skip it, it returns the first instant after the gap. heard says so in both cases.
func Local(reading time.Time, zone *time.Location, language explain.Language) (at time.Time, heard string) {
	shown := time.Date(reading.Year(), reading.Month(), reading.Day(), reading.Hour(), reading.Minute(), reading.Second(), reading.Nanosecond(), time.UTC)
	var hits []time.Time
	var gapEnd time.Time
	for _, probe := range []time.Duration{-26 * time.Hour, 26 * time.Hour} { // offsets lie within 26 hours
		_, offset := shown.Add(probe).In(zone).Zone()
		t := shown.Add(-time.Duration(offset) * time.Second)
		if _, there := t.In(zone).Zone(); there == offset {
			hits = append(hits, t)
		} else if from, _ := t.In(zone).ZoneBounds(); gapEnd.IsZero() {
			gapEnd = from
		}
	}
	name := shown.Format("2006-01-02 15:04:05.999")
	switch {
	case len(hits) == 0 && !gapEnd.IsZero():
		return gapEnd.UTC(), language.Format("The clocks of %s skipped %s; this answer is about the first instant after the gap.",
			"%s 的时钟跳过了 %s；此处回答的是跳过之后的第一个时刻。", zone, name)
	case len(hits) == 0:
		return shown, ""
	case len(hits) == 2 && !hits[0].Equal(hits[1]):
		if hits[1].Before(hits[0]) {
			hits[0], hits[1] = hits[1], hits[0]
		}
		return hits[0].UTC(), language.Format("The clocks of %s showed %s twice; this answer is about the first time.",
			"%s 的时钟两次显示 %s；此处回答的是第一次。", zone, name)
	}
	return hits[0].UTC(), ""
}

// sentence returns a phrase as a sentence.
func (f *Facts) sentence(s string) string {
	if s == "" {
		return s
	}
	if f.Language == explain.Chinese {
		return strings.TrimSuffix(s, "。") + "。"
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}
