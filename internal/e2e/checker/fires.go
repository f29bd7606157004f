package checker

import (
	"slices"
	"sort"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

const (
	// freeze is the time before the due instant in which an edit may come too late, by the contract.
	freeze = 250 * time.Millisecond
	// tolerance is how late a fire may be before it is a misfire.
	tolerance = 5 * time.Second
	// moment is the longest time in a decision between the reading of the clock and the reading of the runs.
	moment = time.Second
	// fireAllMax is the number of missed fire times that fire_all fires.
	fireAllMax = 100
)

// fires checks the jobs whose schedules have computable fire times: each fire time has exactly one run, or one per shard, or its
// place in the ledger, as the misfire policy of its version requires.
func (c *check) fires(j *job) {
	expected, ok := c.expected(j)
	if !ok {
		return
	}
	c.report.Fires += len(expected)
	byFire := make(map[int64][]*Run)
	for _, r := range j.runs {
		if r.scheduled() {
			byFire[r.FireTime.UnixMilli()] = append(byFire[r.FireTime.UnixMilli()], r)
		}
	}
	var unserved, mustServe []int64 // possible fire times without a run; those of them that had to be served
	for at, e := range expected {
		runs := byFire[at]
		if len(runs) == 0 {
			unserved = append(unserved, at)
			if e.definite {
				mustServe = append(mustServe, at)
			}
			continue
		}
		c.oneRun(j, at, e, runs)
	}
	for at, runs := range byFire {
		if expected[at] == nil {
			c.fail(RuleFire, "%s: a run (%[3]s of version %[4]d) has the fire time %[2]s, which is not a fire time of the job", j.name(), clock(at), runs[0].ID, runs[0].Version)
		}
	}
	c.ledger(j, unserved, mustServe, byFire)
}

// expectation is a fire time of at least one version of the job.
type expectation struct {
	versions []*Version // in force around the fire time, with a schedule that contains it
	definite bool       // all versions in force around the fire time have it
}

// expected computes the fire times of a job over all its versions.
func (c *check) expected(j *job) (map[int64]*expectation, bool) {
	out := make(map[int64]*expectation)
	for _, v := range j.versions {
		if !v.enabled() {
			continue
		}
		to := v.To
		if to.IsZero() {
			to = c.end
		}
		jitter := v.Spec.Schedule.Jitter.Std()
		times, err := fireTimes(v, v.From.Add(-jitter-freeze-c.slack(v.From)), to.Add(freeze+c.slack(to)))
		if err != nil {
			c.fail(RuleFire, "%s: version %d: %v", j.name(), v.Number, err)
			return nil, false
		}
		for _, at := range times {
			if e := out[at]; e == nil {
				out[at] = &expectation{}
			}
			out[at].versions = append(out[at].versions, v)
		}
	}
	for at, e := range out {
		e.definite = j.certain(time.UnixMilli(at), e.versions, freeze+c.slack(time.UnixMilli(at)))
	}
	return out, true
}

// certain reports whether a fire time must be served. It must be if only versions that have the fire time were in force, from
// margin before the earliest possible due instant to the latest possible one.
func (j *job) certain(at time.Time, having []*Version, margin time.Duration) bool {
	jitter := time.Duration(0)
	for _, v := range having {
		jitter = max(jitter, v.Spec.Schedule.Jitter.Std())
	}
	from, to := at.Add(-margin), at.Add(jitter+margin-freeze)
	if j.versions[0].From.After(from) {
		return false
	}
	for _, v := range j.versions {
		holds := !v.From.After(to) && (v.To.IsZero() || !v.To.Before(from))
		if holds && !slices.Contains(having, v) {
			return false
		}
	}
	return true
}

// oneRun checks the runs of one fire time.
func (c *check) oneRun(j *job, at int64, e *expectation, runs []*Run) {
	if !oneOrShards(runs) {
		c.fail(RuleFire, "%s: fire time %s has %d runs that are not the shards of one broadcast: %s", j.name(), clock(at), len(runs), ids(runs))
	}
	fire := time.UnixMilli(at)
	for _, r := range runs {
		i := slices.IndexFunc(e.versions, func(v *Version) bool { return v.Number == r.Version })
		if i < 0 {
			c.fail(RuleFire, "%s: the run %s of %s belongs to version %d, which does not have this fire time", j.name(), r.ID, clock(at), r.Version)
			continue
		}
		spec := &e.versions[i].Spec
		switch {
		case r.Cause == domain.CauseMisfire && spec.Misfire == domain.MisfireSkip:
			c.fail(RuleMisfire, "%s: %s was fired as a misfire, but the policy is skip", j.name(), clock(at))
		case r.Cause == domain.CauseMisfire && r.DueAt.Before(fire.Add(tolerance-moment)):
			c.fail(RuleMisfire, "%s: %s was fired as a misfire with due instant %s, within the tolerance", j.name(), clock(at), clock(r.DueAt.UnixMilli()))
		case r.DueAt.Before(fire) && (r.Attempt == 1 || r.DueAt.Before(fire.Add(-c.slack(fire)))): // a retry is due after a clock's step back
			c.fail(RuleFire, "%s: the run of %s was due at %s, before its fire time", j.name(), clock(at), clock(r.DueAt.UnixMilli()))
		case r.Cause == domain.CauseSchedule && r.Attempt == 1 && c.tries[try{r.ID, 1}].last && spec.Block == domain.BlockParallel &&
			r.DueAt.After(fire.Add(spec.Schedule.Jitter.Std())):
			c.fail(RuleFire, "%s: the run of %s was due at %s, later than its jitter allows", j.name(), clock(at), clock(r.DueAt.UnixMilli()))
		}
	}
}

// oneOrShards reports whether runs is one run, or each shard of one broadcast once.
func oneOrShards(runs []*Run) bool {
	if len(runs) == 1 {
		return runs[0].ShardTotal <= 1
	}
	seen := make(map[int]bool)
	for _, r := range runs {
		if r.ShardTotal != len(runs) || r.Broadcast != runs[0].Broadcast || r.ShardIndex < 0 || r.ShardIndex >= len(runs) || seen[r.ShardIndex] {
			return false
		}
		seen[r.ShardIndex] = true
	}
	return true
}

// ledger matches the fire times without a run with the entries of the ledger. An entry has a count and a range, so this is a
// matching of points with intervals of limited capacity. Each fire time that had to be served must have a place in an entry,
// and each place must have a fire time. If there is a matching for each of these two conditions, there is one that fulfils
// both.
func (c *check) ledger(j *job, unserved, mustServe []int64, byFire map[int64][]*Run) {
	slices.Sort(unserved)
	slices.Sort(mustServe)
	for _, at := range left(mustServe, j.ledger) {
		c.fail(RuleFire, "%s: fire time %s has no run and is not in the ledger (it has %d entries)", j.name(), clock(at), len(j.ledger))
	}
	total := 0
	for _, d := range j.ledger {
		total += d.Count
		c.report.Ledgered += d.Count
	}
	if filled := len(unserved) - len(left(unserved, j.ledger)); filled < total {
		c.fail(RuleLedger, "%s: the ledger counts %d fire times, but at most %d of them had no run", j.name(), total, filled)
	}
	for _, d := range j.ledger {
		for _, end := range []time.Time{d.First, d.Last} {
			if _, found := slices.BinarySearch(unserved, end.UnixMilli()); !found {
				c.fail(RuleLedger, "%s: the ledger has %s, which is not a fire time or has a run", j.name(), clock(end.UnixMilli()))
			}
		}
		c.policy(j, d, byFire)
	}
	c.madeUp(j)
}

// left returns the points without a place in the intervals. Each point, in order, takes a place in the interval that ends first.
// This leaves the fewest points.
func left(points []int64, drops []*Drop) []int64 {
	room := make([]int, len(drops))
	order := make([]int, len(drops))
	for i, d := range drops {
		room[i], order[i] = d.Count, i
	}
	sort.Slice(order, func(a, b int) bool { return drops[order[a]].Last.Before(drops[order[b]].Last) })
	var out []int64
next:
	for _, p := range points {
		for _, i := range order {
			if room[i] > 0 && drops[i].First.UnixMilli() <= p && p <= drops[i].Last.UnixMilli() {
				room[i]--
				continue next
			}
		}
		out = append(out, p)
	}
	return out
}

// policy checks that an entry was allowed by the misfire policy.
func (c *check) policy(j *job, d *Drop, byFire map[int64][]*Run) {
	if d.Why.Code() == explain.Unexplained { // only the engine's own fire check adds such entries
		c.fail(RuleFire, "%s: %d fire times from %s had neither a run nor an entry until the fire check found them", j.name(), d.Count, clock(d.First.UnixMilli()))
		return
	}
	if !slices.ContainsFunc(j.versions, func(v *Version) bool { return v.Spec.Misfire == d.Policy }) {
		c.fail(RuleMisfire, "%s: the ledger has an entry by the policy %s, which no version has", j.name(), d.Policy)
	}
	// At is the start of the entry's transaction, which may wait for a lock before it reads the clock.
	if d.At.Add(10*time.Second + c.slack(d.At)).Before(d.Last.Add(tolerance)) {
		c.fail(RuleMisfire, "%s: %s was dropped at %s, within the tolerance", j.name(), clock(d.Last.UnixMilli()), clock(d.At.UnixMilli()))
	}
	made := 0
	for at, runs := range byFire {
		if at > d.Last.UnixMilli() && at <= d.At.Add(10*time.Second+c.slack(d.At)).UnixMilli() && runs[0].Cause == domain.CauseMisfire {
			made++
		}
	}
	switch d.Policy {
	case domain.MisfireSkip:
	case domain.MisfireFireOnce:
		if made < 1 {
			c.fail(RuleMisfire, "%s: fire_once dropped fire times up to %s and fired no misfire after that", j.name(), clock(d.Last.UnixMilli()))
		}
	case domain.MisfireFireAll:
		if made < fireAllMax {
			c.fail(RuleMisfire, "%s: fire_all dropped fire times up to %s and fired only %d misfires after that", j.name(), clock(d.Last.UnixMilli()), made)
		}
	}
}

// madeUp checks that each decision of fire_once fires one misfire only. All runs that one transaction creates have the same creation
// instant, and its misfires are due at the instant of the decision. madeUp does not see three kinds of misfires: a run that was
// planned earlier has an older creation, a run that the same transaction had planned in time has a later due instant, and a held run
// is due at its release.
func (c *check) madeUp(j *job) {
	type decision struct {
		created, due int64
		version      int
	}
	fires := make(map[decision]map[int64]bool)
	for _, r := range j.runs {
		v := j.version(r.Version)
		if r.Cause != domain.CauseMisfire || v == nil || v.Spec.Misfire != domain.MisfireFireOnce || r.ShardTotal > 0 {
			continue
		}
		d := decision{r.CreatedAt.UnixMicro(), r.DueAt.UnixMilli(), r.Version}
		if fires[d] == nil {
			fires[d] = make(map[int64]bool)
		}
		fires[d][r.FireTime.UnixMilli()] = true
		if n := len(fires[d]); n == 2 && r.CreatedAt.After(r.FireTime.Add(tolerance)) {
			c.fail(RuleMisfire, "%s: fire_once fired more than one misfire at %s", j.name(), clock(r.CreatedAt.UnixMilli()))
		}
	}
}

// chain checks RuleChain: each run of a fixed_delay job fires its delay after the end of the previous run, and the chain continues.
func (c *check) chain(j *job) {
	type link struct {
		fire, end time.Time
		delay     time.Duration
	}
	// Outages of the servers, and the time until Belfry has caught up, delay a chain for less than this.
	const broken = 2 * time.Minute
	byFire := make(map[int64]*link)
	for _, r := range j.runs {
		v := j.version(r.Version)
		if !r.scheduled() || v == nil || v.Spec.Schedule.Kind != domain.ScheduleFixedDelay {
			continue
		}
		at := r.FireTime.UnixMilli()
		if byFire[at] == nil {
			byFire[at] = &link{fire: r.FireTime, delay: v.Spec.Schedule.Delay.Std()}
		}
		if r.FinishedAt.After(byFire[at].end) {
			byFire[at].end = r.FinishedAt
		}
	}
	var links []*link
	for _, l := range byFire {
		links = append(links, l)
	}
	slices.SortFunc(links, func(a, b *link) int { return a.fire.Compare(b.fire) })
	c.report.Fires += len(links)
	for i, l := range links {
		until := c.end
		if i+1 < len(links) {
			until = links[i+1].fire
			if until.Before(l.end.Add(links[i+1].delay - chainSlack - c.slack(until))) {
				c.fail(RuleChain, "%s: a run ended at %s, and the next fired at %s, before its delay of %v had passed",
					j.name(), clock(l.end.UnixMilli()), clock(until.UnixMilli()), links[i+1].delay)
			}
		}
		from := l.end.Add(l.delay)
		if until.Sub(from) > broken+c.slack(until) && j.enabledThroughout(from, until) && !j.dropped(from, until) {
			c.fail(RuleChain, "%s: a run ended at %s, and no run followed until %s", j.name(), clock(l.end.UnixMilli()), clock(until.UnixMilli()))
		}
	}
	for _, d := range j.ledger {
		c.report.Ledgered += d.Count
	}
}

// chainSlack allows for the error of an end's instant, which is an executor's estimate of the database's clock.
const chainSlack = 100 * time.Millisecond

func (j *job) enabledThroughout(from, to time.Time) bool {
	for _, v := range j.versions {
		if !v.enabled() && v.From.Before(to) && (v.To.IsZero() || v.To.After(from)) {
			return false
		}
	}
	return true
}

func (j *job) dropped(from, to time.Time) bool {
	return slices.ContainsFunc(j.ledger, func(d *Drop) bool { return !d.Last.Before(from) && !d.First.After(to) })
}
