package checker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// Rule is a promise that the checker verifies.
type Rule string

// The rules.
const (
	RuleFinal     Rule = "every run ends"
	RuleFire      Rule = "every fire time has one run or one ledger entry"
	RuleLedger    Rule = "the ledger has each fire time without a run, and no other"
	RuleMisfire   Rule = "misfires follow the misfire policy"
	RuleChain     Rule = "fixed_delay continues, not before its delay"
	RuleStart     Rule = "an attempt starts at most once, on its instance"
	RuleVerdict   Rule = "no attempt starts after it was declared lost"
	RuleEarly     Rule = "no attempt starts before it is due"
	RuleEffect    Rule = "the handler of a succeeded run succeeded"
	RuleResult    Rule = "a handler's end is stored"
	RuleLost      Rule = "an attempt is lost only if its instance was killed, frozen or cut off"
	RuleDrained   Rule = "only attempts of an instance that received SIGTERM are drained"
	RuleRetry     Rule = "attempts follow the retry policy"
	RuleOverlap   Rule = "runs that block each other do not overlap"
	RuleChild     Rule = "children run exactly once for each matching parent"
	RuleBroadcast Rule = "a broadcast has each of its shards once"
	RuleReason    Rule = "a run ends for the reason that it names"
	RuleAck       Rule = "each change that REST acknowledged exists once"
	RuleLate      Rule = "no run is late while a scheduler and all other parts work"
)

// Violation is a violation of a rule.
type Violation struct {
	Rule Rule
	Text string
}

// Report is the result of Check.
type Report struct {
	Violations []Violation
	Jobs       int
	Fires      int // fire times that had to be served or could be served
	Ledgered   int // fire times in the ledger
	Runs       int
	Starts     int // attempts that a handler recorded
	Lost       int // attempts declared lost
	Unstarted  int // lost attempts that no handler recorded
	Drained    int // attempts that ended because their instance shut down
	LateOnes   int // results that arrived after their attempt had ended
	Certain    int // runs that RuleLate applies to
	Worst      time.Duration
	WorstCalm  time.Duration // the worst lateness of the runs that Certain counts
	OneLeft    int           // runs that RuleLate applies to, and that were due while a scheduler had a fault
	WorstLeft  time.Duration // the worst lateness of the runs that OneLeft counts
	By         map[string]map[string]int
	Faults     map[string]int // by kind
}

// OK reports whether there are no violations.
func (r *Report) OK() bool { return len(r.Violations) == 0 }

// check is the state of one call of Check.
type check struct {
	h      *History
	end    time.Time // the latest instant of the history
	jobs   map[int64]*job
	runs   map[string]*Run
	tries  map[try]*Attempt // all attempts, including the last of each run
	notes  map[try][]*Note
	late   map[try]*Late
	report Report
}

type try struct {
	run     string
	attempt int
}

type job struct {
	id       int64
	versions []*Version
	runs     []*Run
	ledger   []*Drop
	deleted  bool
}

func (j *job) name() string {
	last := &j.versions[len(j.versions)-1].Spec
	return fmt.Sprintf("job %d (%s)", j.id, last.Name)
}

func (j *job) version(n int) *Version {
	i := slices.IndexFunc(j.versions, func(v *Version) bool { return v.Number == n })
	if i < 0 {
		return nil
	}
	return j.versions[i]
}

// Check checks a history against all rules.
func Check(h *History) *Report {
	c := &check{
		h: h, jobs: make(map[int64]*job), runs: make(map[string]*Run), tries: make(map[try]*Attempt),
		notes: make(map[try][]*Note), late: make(map[try]*Late),
	}
	c.toDatabase()
	c.index()
	ids := make([]int64, 0, len(c.jobs))
	for id := range c.jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		j := c.jobs[id]
		if fixedDelay(j) {
			c.chain(j)
		} else {
			c.fires(j)
		}
		c.overlaps(j)
	}
	for i := range h.Runs {
		r := &h.Runs[i]
		c.final(r)
		c.reasons(r)
		c.retries(r)
	}
	c.starts()
	c.ends()
	c.losses()
	c.drains()
	c.broadcasts()
	c.children()
	c.acks()
	c.lateness()
	c.count()
	return &c.report
}

func (c *check) fail(r Rule, format string, args ...any) {
	c.report.Violations = append(c.report.Violations, Violation{r, fmt.Sprintf(format, args...)})
}

func (c *check) index() {
	latest := func(t time.Time) { c.end = later(c.end, t) }
	for i := range c.h.Versions {
		v := &c.h.Versions[i]
		j := c.jobs[v.Job]
		if j == nil {
			j = &job{id: v.Job}
			c.jobs[v.Job] = j
		}
		j.versions = append(j.versions, v)
		j.deleted = j.deleted || v.Change == "deleted"
		latest(v.From)
	}
	for i := range c.h.Runs {
		r := &c.h.Runs[i]
		latest(r.FinishedAt)
		if c.runs[r.ID] != nil {
			c.fail(RuleFinal, "the run %s exists twice, live and in the history", r.ID)
		}
		c.runs[r.ID] = r
		c.tries[try{r.ID, r.Attempt}] = &Attempt{
			Run: r.ID, Attempt: r.Attempt, Instance: r.Instance, DispatchedAt: r.DispatchedAt, StartedAt: r.StartedAt,
			FinishedAt: r.FinishedAt, Outcome: string(r.State), Reason: r.Reason, last: true,
		}
		if j := c.jobs[r.Job]; j != nil {
			j.runs = append(j.runs, r)
		} else {
			c.fail(RuleFire, "the run %s belongs to job %d, which does not exist", r.ID, r.Job)
		}
	}
	for i := range c.h.Attempts {
		a := &c.h.Attempts[i]
		c.tries[try{a.Run, a.Attempt}] = a
	}
	for i := range c.h.Ledger {
		d := &c.h.Ledger[i]
		if j := c.jobs[d.Job]; j != nil {
			j.ledger = append(j.ledger, d)
		} else {
			c.fail(RuleLedger, "the ledger has an entry of job %d, which does not exist", d.Job)
		}
	}
	for i := range c.h.Late {
		c.late[try{c.h.Late[i].Run, c.h.Late[i].Attempt}] = &c.h.Late[i]
	}
	for i := range c.h.Notes {
		n := &c.h.Notes[i]
		c.notes[try{n.Run, n.Attempt}] = append(c.notes[try{n.Run, n.Attempt}], n)
		latest(n.Start)
		latest(n.End)
	}
}

func fixedDelay(j *job) bool {
	return slices.ContainsFunc(j.versions, func(v *Version) bool { return v.Spec.Schedule.Kind == domain.ScheduleFixedDelay })
}

func (c *check) final(r *Run) {
	if !r.State.Final() {
		c.fail(RuleFinal, "the run %s of job %d is still %s (attempt %d, due %s, instance %q)", r.ID, r.Job, r.State, r.Attempt, clock(r.DueAt.UnixMilli()), r.Instance)
	}
}

// acks checks RuleAck.
func (c *check) acks() {
	tagged := make(map[string]map[string]bool) // by param: the runs, or broadcasts, with that param
	for i := range c.h.Runs {
		r := &c.h.Runs[i]
		if tagged[r.Param] == nil {
			tagged[r.Param] = make(map[string]bool)
		}
		tagged[r.Param][cmp.Or(r.Broadcast, r.ID)] = true
	}
	for _, a := range c.h.Acks {
		switch a.What {
		case "version":
			j := c.jobs[a.Job]
			if j == nil || j.version(a.Version) == nil {
				c.fail(RuleAck, "REST acknowledged version %[2]d of job %[1]d, which does not exist", a.Job, a.Version)
				continue
			}
			// A version begins after the runs that were fired before it, and the engine may fire a run a little before its due instant.
			if ahead := j.version(a.Version).From.Sub(a.At); ahead > time.Second+c.slack(a.At) {
				c.fail(RuleAck, "%s: REST acknowledged version %d, which began %v later", j.name(), a.Version, ahead)
			}
		case "trigger":
			if c.runs[a.Run] == nil {
				c.fail(RuleAck, "REST acknowledged the triggered run %s, which does not exist", a.Run)
			}
			// If a console dies between a change and its answer, the repeated request can make a second run.
			if n := len(tagged[a.Tag]); n != 1 && !a.Again {
				c.fail(RuleAck, "the trigger %s was acknowledged with one run, and has %d", a.Tag, n)
			}
		default:
			c.fail(RuleAck, "unknown acknowledgement %q", a.What)
		}
	}
}

type span struct{ from, to time.Time }

// merge sorts spans and joins those that touch.
func merge(spans []span) (out []span) {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	for _, s := range spans {
		if n := len(out); n > 0 && !s.from.After(out[n-1].to) {
			if s.to.After(out[n-1].to) {
				out[n-1].to = s.to
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

func inside(merged []span, at time.Time) bool {
	i, found := slices.BinarySearchFunc(merged, at, func(s span, at time.Time) int { return s.from.Compare(at) })
	return found || i > 0 && !at.After(merged[i-1].to)
}

// count fills in the tables of the report.
func (c *check) count() {
	r := &c.report
	r.Jobs, r.Runs, r.LateOnes, r.Faults = len(c.jobs), len(c.h.Runs), len(c.h.Late), make(map[string]int)
	r.By = make(map[string]map[string]int)
	add := func(table, key string) {
		if r.By[table] == nil {
			r.By[table] = make(map[string]int)
		}
		r.By[table][key]++
	}
	for i := range c.h.Faults {
		r.Faults[c.h.Faults[i].Kind]++
	}
	for _, notes := range c.notes {
		r.Starts += len(notes)
	}
	for i := range c.h.Runs {
		run := &c.h.Runs[i]
		end := string(run.State)
		if run.Reason != "" {
			end += "/" + string(run.Reason)
		}
		add("end", end)
		add("cause", string(run.Cause))
		add("attempts", fmt.Sprint(run.Attempt))
		j := c.jobs[run.Job]
		if j == nil {
			continue
		}
		v := j.version(run.Version)
		if v == nil {
			continue
		}
		add("route", string(v.Spec.Route))
		add("block", string(v.Spec.Block)+", scope "+string(v.Spec.BlockScope))
		add("misfire policy", string(v.Spec.Misfire))
		kind := string(v.Spec.Schedule.Kind)
		if v.Spec.Schedule.Dialect != "" {
			kind += ", " + string(v.Spec.Schedule.Dialect)
		}
		if v.Spec.Schedule.Jitter > 0 {
			kind += ", jitter"
		}
		add("schedule", kind)
	}
}

// clock formats Unix milliseconds as a time of day.
func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04:05.000") }

func ids(runs []*Run) string {
	names := make([]string, len(runs))
	for i, r := range runs {
		names[i] = r.ID
	}
	return strings.Join(names, ", ")
}
