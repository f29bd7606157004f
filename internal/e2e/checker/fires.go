package checker

import (
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	// freeze is how shortly before due an edit may come too late, by the contract.
	freeze = 250 * time.Millisecond
	// tolerance is how late a fire may be without being a misfire.
	tolerance = 5 * time.Second
	// moment is how much earlier than it looked at the runs a decision may have read the clock.
	moment = time.Second
	// fireAllMax is how many missed fire times fire_all makes up for.
	fireAllMax = 100
)

// fires checks promise 1 for the kinds that have fire times: each yields exactly one run, or one per shard, or is in the
// ledger, as the misfire policy of its version says.
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
	var unserved, mustServe []int64 // possible fire times without a run; those of them that had to have one
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
			c.fail(RuleFire, "%s: %s is the fire time of a run (%s of version %d), and the job had none then", j.name(), clock(at), runs[0].ID, runs[0].Version)
		}
	}
	c.ledger(j, unserved, mustServe, byFire)
}

// expectation is a fire time at which some version of the job fired.
type expectation struct {
	versions []*Version // that had it and held about then
	definite bool       // all that held about then had it
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
		times, err := fireTimes(v, v.From.Add(-jitter-freeze), to.Add(freeze))
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
		e.definite = j.certain(time.UnixMilli(at), e.versions)
	}
	return out, true
}

// certain reports whether a fire time has to be served: throughout the time in which its due instant may lie, and a
// moment before it, only versions held that have it.
func (j *job) certain(at time.Time, having []*Version) bool {
	jitter := time.Duration(0)
	for _, v := range having {
		jitter = max(jitter, v.Spec.Schedule.Jitter.Std())
	}
	from, to := at.Add(-freeze), at.Add(jitter)
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
			c.fail(RuleFire, "%s: the run %s of %s is of version %d, which did not fire then", j.name(), r.ID, clock(at), r.Version)
			continue
		}
		spec := &e.versions[i].Spec
		switch {
		case r.Cause == domain.CauseMisfire && spec.Misfire == domain.MisfireSkip:
			c.fail(RuleMisfire, "%s: %s was made up for, and the policy is skip", j.name(), clock(at))
		case r.Cause == domain.CauseMisfire && r.DueAt.Before(fire.Add(tolerance-moment)):
			c.fail(RuleMisfire, "%s: %s is a misfire and was due again at %s, within the tolerance", j.name(), clock(at), clock(r.DueAt.UnixMilli()))
		case r.DueAt.Before(fire):
			c.fail(RuleFire, "%s: the run of %s was due at %s, before it", j.name(), clock(at), clock(r.DueAt.UnixMilli()))
		case r.Cause == domain.CauseSchedule && r.Attempt == 1 && c.tries[try{r.ID, 1}].last && spec.Block == domain.BlockParallel &&
			r.DueAt.After(fire.Add(spec.Schedule.Jitter.Std())):
			c.fail(RuleFire, "%s: the run of %s was due at %s, later than its jitter allows", j.name(), clock(at), clock(r.DueAt.UnixMilli()))
		}
	}
}

// oneOrShards reports whether runs are one, or each shard of one broadcast once.
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

// ledger matches the fire times without a run with the ledger's entries. An entry says how many it stands for, between
// which two; so this is a matching of points with intervals that have a capacity. Every point that had to be served
// needs a place, and every place needs a point. If each of both has a matching, there is one for both at once.
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
		c.fail(RuleLedger, "%s: the ledger speaks of %d fire times, and at most %d of them had no run", j.name(), total, filled)
	}
	for _, d := range j.ledger {
		for _, end := range []time.Time{d.First, d.Last} {
			if _, found := slices.BinarySearch(unserved, end.UnixMilli()); !found {
				c.fail(RuleLedger, "%s: the ledger names %s, which is no fire time or has a run", j.name(), clock(end.UnixMilli()))
			}
		}
		c.policy(j, d, byFire)
	}
	c.madeUp(j)
}

// left returns the points that find no place in the intervals: each point in order takes a place in the interval that
// ends first, which leaves the fewest.
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
	if strings.HasPrefix(d.Why, unexplained) {
		c.fail(RuleFire, "%s: %d fire times from %s were forgotten until the audit found them", j.name(), d.Count, clock(d.First.UnixMilli()))
		return
	}
	if !slices.ContainsFunc(j.versions, func(v *Version) bool { return v.Spec.Misfire == d.Policy }) {
		c.fail(RuleMisfire, "%s: the ledger names the policy %s, which no version has", j.name(), d.Policy)
	}
	// The entry is stamped when its transaction began, which may have waited for a lock before it read the clock.
	if d.At.Add(10 * time.Second).Before(d.Last.Add(tolerance)) {
		c.fail(RuleMisfire, "%s: %s was dropped at %s, within the tolerance", j.name(), clock(d.Last.UnixMilli()), clock(d.At.UnixMilli()))
	}
	made := 0
	for at, runs := range byFire {
		if at > d.Last.UnixMilli() && at <= d.At.Add(10*time.Second).UnixMilli() && runs[0].Cause == domain.CauseMisfire {
			made++
		}
	}
	switch d.Policy {
	case domain.MisfireSkip:
	case domain.MisfireFireOnce:
		if made < 1 {
			c.fail(RuleMisfire, "%s: fire_once dropped up to %s and made up for none after it", j.name(), clock(d.Last.UnixMilli()))
		}
	case domain.MisfireFireAll:
		if made < fireAllMax {
			c.fail(RuleMisfire, "%s: fire_all dropped up to %s and made up for only %d after it", j.name(), clock(d.Last.UnixMilli()), made)
		}
	}
}

// madeUp checks that one decision by fire_once made up for one fire time: runs of one transaction have one instant of
// creation, and those that it makes up for are due at that of its decision. A run that had been planned before and is made
// up for has an older creation or, where the same transaction had planned it as still in time, a later due instant; and
// one that was held is due at its release. Those are not seen here.
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
			c.fail(RuleMisfire, "%s: fire_once made up for more than one fire time at %s", j.name(), clock(r.CreatedAt.UnixMilli()))
		}
	}
}

// chain checks fixed_delay: each run begins its delay after the end of the one before, and the chain goes on.
func (c *check) chain(j *job) {
	type link struct {
		fire, end time.Time
		delay     time.Duration
	}
	// More than outages of the servers, and what follows them, may hold a chain up; this only tells a broken one.
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
			if until.Before(l.end.Add(links[i+1].delay - chainSlack)) {
				c.fail(RuleChain, "%s: a run ended at %s, and the next fired at %s, before its delay of %v had passed",
					j.name(), clock(l.end.UnixMilli()), clock(until.UnixMilli()), links[i+1].delay)
			}
		}
		from := l.end.Add(l.delay)
		if until.Sub(from) > broken && j.enabledThroughout(from, until) && !j.dropped(from, until) {
			c.fail(RuleChain, "%s: a run ended at %s, and none followed until %s", j.name(), clock(l.end.UnixMilli()), clock(until.UnixMilli()))
		}
	}
	for _, d := range j.ledger {
		c.report.Ledgered += d.Count
	}
}

// chainSlack covers that an end is known by an executor's estimate of the database's clock.
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
