package importer

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/xxl/quartz"
	"github.com/belfryhq/belfry/internal/xxl/source"
)

func (c *converter) schedule(j *source.Job, spec *domain.JobSpec, out *Job) {
	conf := strings.TrimSpace(j.ScheduleConf)
	switch kind := strings.TrimSpace(j.ScheduleType); kind {
	case "NONE", "":
		spec.Schedule = domain.Schedule{Kind: domain.ScheduleNone}
	case "CRON":
		c.cron(j, conf, spec, out)
	case "FIX_RATE":
		c.fixRate(j, conf, spec, out)
	case "FIX_DELAY": // some forks have it
		seconds, err := strconv.ParseInt(conf, 10, 32)
		if err != nil || seconds < 1 {
			out.impossible("FIX_DELAY %q is not a number of seconds", conf)
			return
		}
		spec.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Duration(seconds) * time.Second)}
		out.differs("FIX_DELAY is not part of XXL-JOB; Belfry counts the delay from the end of all retries and shards")
	default:
		out.impossible("its schedule type %q is not known", kind)
	}
}

func (c *converter) cron(j *source.Job, expr string, spec *domain.JobSpec, out *Job) {
	spec.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: expr, Dialect: domain.DialectQuartz, TimeZone: c.o.CronZone}
	from := c.db.ReadAt
	compared := Compare(expr, c.o.CronZone, c.o.Quartz, from)
	out.Theirs, out.Ours = compared.Theirs, compared.Ours
	zone, err := time.LoadLocation(c.o.CronZone)
	switch {
	case err != nil:
		out.impossible("%v", err)
		return
	case compared.Refused != "":
		out.impossible("its cron expression %q %s%s", expr, compared.Refused, named(compared.Names))
		return
	case compared.TheirRefusal != "":
		out.differs("%s; XXL-JOB cannot fire it, Belfry can", compared.TheirRefusal)
	case !compared.Exact():
		out.differs("%s", compared.text(zone))
	}
	if s, err := schedule.Compile(spec.Schedule, schedule.Options{}); err == nil {
		c.oracle(j, s, zone, out)
	}
}

func named(names []Difference) string {
	if len(names) == 0 {
		return ""
	}
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = string(n)
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

// preRead is how far ahead XXL-JOB takes jobs into its ring. The next fire time of such a job is already the one after.
const preRead = 6 * time.Second

// oracle compares Belfry's next fire time with trigger_next_time, which XXL-JOB has computed.
func (c *converter) oracle(j *source.Job, s *schedule.Schedule, zone *time.Location, out *Job) {
	next, fires := j.NextTrigger()
	if !fires {
		if j.Enabled {
			out.differs("it is enabled, and XXL-JOB has no next fire time for it")
		}
		return
	}
	show := func(t time.Time) string { return t.In(zone).Format("2006-01-02 15:04:05.999 -07:00") }
	// Between the reading and next, Belfry must have no fire time, except those that XXL-JOB has taken into its ring. If next has passed,
	// XXL-JOB is stopped or late, and only next itself can be compared.
	from := c.db.ReadAt.Add(preRead)
	if !next.After(from) {
		from = next.Add(-time.Millisecond)
	}
	ours, ok := s.Next(from)
	switch {
	case !ok:
		out.differs("XXL-JOB fires it next at %s, Belfry never", show(next))
	case !ours.Equal(next):
		out.differs("XXL-JOB fires it next at %s, Belfry at %s", show(next), show(ours))
	}
}

func (c *converter) fixRate(j *source.Job, conf string, spec *domain.JobSpec, out *Job) {
	seconds, err := strconv.ParseInt(conf, 10, 32)
	if err != nil || seconds < 1 {
		out.impossible("FIX_RATE %q is not a number of seconds", conf)
		return
	}
	every := time.Duration(seconds) * time.Second
	spec.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(every)}
	next, fires := j.NextTrigger()
	if !fires {
		out.differs("its FIX_RATE is stopped, so its fire times count from the import; XXL-JOB counts from the start of the job")
		return
	}
	anchor := domain.At(next)
	spec.Schedule.StartAt = &anchor
	for at := next; len(out.Theirs) < shown; at = at.Add(every) {
		out.Theirs = append(out.Theirs, at)
	}
	s, err := schedule.Compile(spec.Schedule, schedule.Options{})
	if err != nil {
		out.impossible("FIX_RATE %d %s", seconds, reason(err))
		return
	}
	out.Ours = take(s.Next, next.Add(-time.Millisecond), shown)
}

// sameGrid reports whether two fixed rates have the same fire times, although they begin at different ones.
func sameGrid(a, b domain.Schedule) bool {
	return a.Kind == domain.ScheduleFixedRate && b.Kind == a.Kind && a.Every == b.Every && a.StartAt != nil && b.StartAt != nil &&
		a.StartAt.Sub(b.StartAt.Time)%a.Every.Std() == 0
}

// ZoneGuess is an inferred time zone.
type ZoneGuess struct {
	Zone     string `json:"zone"`
	Given    bool   `json:"given"` // by a flag
	Evidence string `json:"evidence"`
	Sure     bool   `json:"-"` // the evidence leaves no other zone with other rules
}

// candidates are the zones that CronZone tries, in the order of preference. For each offset and each rule of daylight saving time in
// wide use there is one.
var candidates = []string{
	"Asia/Shanghai", "UTC", "Asia/Tokyo", "Asia/Singapore", "Asia/Kolkata", "Asia/Ho_Chi_Minh", "Asia/Dubai", "Asia/Karachi", "Asia/Dhaka", "Asia/Yangon",
	"Asia/Kathmandu", "Asia/Tashkent", "Asia/Tehran", "Europe/Moscow", "Europe/Istanbul", "Europe/London", "Europe/Berlin", "Europe/Athens", "Africa/Cairo",
	"Africa/Johannesburg", "Africa/Lagos", "America/New_York", "America/Chicago", "America/Denver", "America/Phoenix", "America/Los_Angeles", "America/Anchorage",
	"Pacific/Honolulu", "America/Halifax", "America/St_Johns", "America/Sao_Paulo", "America/Bogota", "America/Caracas", "America/Mexico_City",
	"Australia/Sydney", "Australia/Brisbane", "Australia/Adelaide", "Australia/Darwin", "Australia/Perth", "Pacific/Auckland", "Atlantic/Azores",
}

// Evaluation is how an admin evaluates cron expressions.
type Evaluation struct {
	Zone   ZoneGuess
	Quartz quartz.Version
}

// Releases returns the releases of Quartz that an admin of a version may have, the usual one first.
func Releases(v source.Version) []quartz.Version {
	switch v.From {
	case "2.1", "2.3":
		return []quartz.Version{quartz.V232}
	case "2.5":
		return []quartz.Version{quartz.V232, quartz.V250} // 3.1 has the tables of 2.5
	case "3.2":
		return []quartz.Version{quartz.V250}
	}
	return []quartz.Version{quartz.V252}
}

// CronZone infers the zone of cron expressions, and the release of Quartz if the version leaves a choice. zone is the one that the user
// gave, or "".
func CronZone(db *source.Database, zone string) Evaluation {
	tried := candidates
	if zone != "" {
		tried = []string{zone}
	}
	var best Evaluation
	most, most2, total := -1, -1, 0
	var rivals []string
	for _, name := range tried {
		location, err := time.LoadLocation(name)
		if err != nil {
			continue
		}
		for _, release := range Releases(db.Version) {
			matches, n := matchingJobs(db, location, release)
			total = n
			switch {
			case matches > most:
				most, most2, rivals = matches, most, nil
				best.Zone.Zone, best.Quartz = name, release
			case matches == most && name != best.Zone.Zone:
				rivals = append(rivals, name)
			default:
				most2 = max(most2, matches)
			}
		}
	}
	best.Zone.Given = zone != ""
	best.Zone.Evidence = fmt.Sprintf("%d of %d next trigger times match their cron expression in this zone", max(most, 0), total)
	best.Zone.Sure = total > 0 && most > 0 && len(rivals) == 0
	if len(rivals) > 0 {
		best.Zone.Evidence += ", and also in " + strings.Join(rivals[:min(len(rivals), 6)], ", ")
	}
	return best
}

// matchingJobs counts the enabled cron jobs, and those whose next trigger time matches the expression in a zone.
func matchingJobs(db *source.Database, zone *time.Location, release quartz.Version) (matches, total int) {
	for i := range db.Jobs {
		j := &db.Jobs[i]
		next, fires := j.NextTrigger()
		if !fires || strings.TrimSpace(j.ScheduleType) != "CRON" {
			continue
		}
		total++
		e, err := quartz.Parse(j.ScheduleConf, release, db.ReadAt.Year())
		if err != nil {
			continue
		}
		if at, ok := e.Next(next.Add(-time.Second), zone); ok && at.Equal(next) {
			matches++
		}
	}
	return matches, total
}

// DatabaseZone infers the zone of DATETIME columns from the newest log rows. cron is the zone of cron expressions, which is preferred among
// zones with the same offset.
func DatabaseZone(db *source.Database, cron string) ZoneGuess {
	last := map[int64]time.Time{}
	for _, j := range db.Jobs {
		if j.LastTriggerMillis > 0 {
			last[j.ID] = time.UnixMilli(j.LastTriggerMillis)
		}
	}
	votes, total := map[time.Duration]int{}, 0
	seen := map[int64]bool{}
	for _, l := range db.Logs {
		at, known := last[l.Job]
		if !known || seen[l.Job] {
			continue
		}
		seen[l.Job] = true
		difference := l.Time.Sub(at)
		offset := difference.Round(15 * time.Minute)
		if (difference-offset).Abs() > time.Minute || offset.Abs() > 15*time.Hour {
			continue // the newest row is of another trigger, such as one by hand
		}
		votes[offset]++
		total++
	}
	best, most := time.Duration(0), 0
	for offset, n := range votes {
		if n > most || n == most && offset > best {
			best, most = offset, n
		}
	}
	if most == 0 {
		return ZoneGuess{Zone: cron, Evidence: "no trigger in xxl_job_log can be compared; this is the zone of cron"}
	}
	guess := ZoneGuess{Evidence: fmt.Sprintf("%d of %d triggers in xxl_job_log are at %s from UTC", most, total, offsetText(best)), Sure: true}
	for _, name := range append([]string{cron}, candidates...) {
		if zone, err := time.LoadLocation(name); err == nil {
			if _, offset := db.ReadAt.In(zone).Zone(); time.Duration(offset)*time.Second == best {
				guess.Zone = name
				return guess
			}
		}
	}
	guess.Zone, guess.Sure = "UTC", false
	guess.Evidence += ", which no common zone has now"
	return guess
}

func offsetText(d time.Duration) string {
	sign := "+"
	if d < 0 {
		sign, d = "-", -d
	}
	return fmt.Sprintf("%s%02d:%02d", sign, int(d.Hours()), int(d.Minutes())%60)
}
