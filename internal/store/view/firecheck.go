package view

import (
	"context"
	"math"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// FireCheck reads the data that package firecheck evaluates. It reads jobs by id and each job's fire times by due instant,
// one batch at a time, so that its memory is bounded however many jobs and fire times there are. It computes the ids of
// the expected runs and looks them up by primary key.
type FireCheck struct {
	q         *sqlcgen.Queries
	zone      *time.Location
	tolerance time.Duration
	versions  *lru.Cache[versionKey, compiled]
}

type versionKey struct {
	job     int64
	version int32
}

// compiled is the cached part of a version, which never changes.
type compiled struct {
	schedule *schedule.Schedule
	jitter   time.Duration
	fault    string
}

// The bounds of one batch. The cache of compiled versions outlives a batch.
const (
	batchJobsMax     = 200
	batchFiresMax    = 2000
	batchVersionsMax = 4000
	batchShardsMax   = 5000 // ids per statement
	compiledKept     = 20_000
)

// NewFireCheck returns a FireCheck on a pool as required by New. zone applies to schedules without a time zone;
// tolerance is how late a run may be without counting as late.
func NewFireCheck(pool *pgxpool.Pool, zone *time.Location, tolerance time.Duration) *FireCheck {
	cache, err := lru.New[versionKey, compiled](compiledKept)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	return &FireCheck{q: sqlcgen.New(pool), zone: zone, tolerance: tolerance, versions: cache}
}

// FireScope selects the fire times to check.
type FireScope struct {
	Only         []string     // the groups that the caller may see; nil: all, empty: none
	Job          domain.JobID // 0: all
	Since, Until time.Time    // fire times due after Since and not after Until
	Language     explain.Language
}

func (s *FireScope) ids(c firecheck.Cursor) (after, last int64) {
	after, last = int64(c.Job), math.MaxInt64
	if !c.Due.IsZero() {
		after--
	}
	if s.Job != 0 {
		after, last = max(after, int64(s.Job)-1), int64(s.Job)
	}
	return after, last
}

// fireBatch holds some jobs with their fire times in the span, and the position where the next batch starts.
type fireBatch struct {
	jobs     []jobFires
	next     firecheck.Cursor
	done     bool
	finished int // jobs
}

type jobFires struct {
	job   *firecheck.Job
	fires []firecheck.Fire
	whole bool // fires has all of them up to the end of the span
}

// batch reads planning, then versions, and computes the expected fire times. Runs, ledger and days must be read after
// it.
func (a *FireCheck) batch(ctx context.Context, scope *FireScope, from firecheck.Cursor, jobs, fires int) (fireBatch, error) {
	b := fireBatch{next: from}
	after, last := scope.ids(from)
	rows, err := a.q.FireCheckJobs(ctx, sqlcgen.FireCheckJobsParams{
		After: after, Last: last, Only: scope.Only, MaxRows: int32(jobs), Since: scope.Since,
	})
	if err != nil || len(rows) == 0 {
		b.done = true
		return b, pgerr.Translate(err)
	}
	ids := convert(rows, func(r sqlcgen.FireCheckJobsRow) int64 { return r.ID })
	versions, full, err := a.versionsOf(ctx, ids, scope.Since)
	if err != nil {
		return b, err
	}
	b.done = len(rows) < jobs
	for i, r := range rows {
		job := &firecheck.Job{
			ID: domain.JobID(r.ID), Name: r.Name, Group: r.GroupName, Versions: versions[r.ID], NextFire: fromEpoch(r.NextFireTime),
		}
		since, until := scope.Since, scope.Until
		if i == 0 && int64(from.Job) == r.ID && !from.Due.IsZero() {
			since = from.Due
		}
		if full == r.ID { // the job may have versions that were not read
			b.done = false
			if i > 0 {
				return b, nil
			}
			until = job.Versions[len(job.Versions)-1].From
		}
		expected, through := firecheck.Expected(job, since, until, fires)
		if expected, through, err = a.addChain(ctx, job, expected, since, through, fires); err != nil {
			return b, err
		}
		fires -= len(expected)
		whole := through.Equal(scope.Until)
		b.jobs = append(b.jobs, jobFires{job, expected, whole})
		if !whole {
			b.done, b.next = false, firecheck.Cursor{Job: job.ID, Due: through}
			return b, nil
		}
		b.finished++
		b.next = firecheck.Cursor{Job: job.ID}
		if fires <= 0 && i < len(rows)-1 {
			b.done = false
			return b, nil
		}
	}
	return b, nil
}

// versionsOf returns the versions of jobs that were in force after since. If the query reached its limit, full is the
// last job, whose versions may be incomplete; otherwise it is 0.
func (a *FireCheck) versionsOf(ctx context.Context, jobs []int64, since time.Time) (out map[int64][]firecheck.Version, full int64, err error) {
	rows, err := a.q.FireCheckVersions(ctx, sqlcgen.FireCheckVersionsParams{JobIds: jobs, Since: &since, MaxRows: batchVersionsMax})
	if err != nil {
		return nil, 0, pgerr.Translate(err)
	}
	out = make(map[int64][]firecheck.Version, len(jobs))
	for _, r := range rows {
		c := a.compile(&r)
		v := firecheck.Version{
			Number: int(r.Version), From: r.ValidFrom.UTC(), To: orZero(r.ValidTo).UTC(), Group: r.GroupName, Enabled: r.Enabled, Deleted: r.Change == "deleted",
			Misfire: domain.Misfire(r.Misfire), Schedule: c.schedule, Jitter: c.jitter, Fault: c.fault, By: r.ChangedBy, Change: r.Change,
		}
		if d, err := time.ParseDuration(r.Retention); err == nil {
			v.Retention = d
		}
		out[r.JobID] = append(out[r.JobID], v)
	}
	if len(rows) == batchVersionsMax {
		full = rows[len(rows)-1].JobID
	}
	return out, full, nil
}

func (a *FireCheck) compile(r *sqlcgen.FireCheckVersionsRow) compiled {
	key := versionKey{r.JobID, r.Version}
	if c, ok := a.versions.Get(key); ok {
		return c
	}
	var c compiled
	var spec domain.Schedule
	err := domain.DecodeSchedule(r.Schedule, &spec)
	if err == nil {
		c.schedule, err = schedule.Compile(spec, schedule.Options{DefaultZone: a.zone, CreatedAt: r.CreatedAt})
		c.jitter = spec.Jitter.Std()
	}
	if err != nil {
		c.fault = err.Error()
	}
	a.versions.Add(key, c)
	return c
}

// addChain appends the fire times of a fixed_delay job, which are known only from its runs.
func (a *FireCheck) addChain(ctx context.Context, job *firecheck.Job, fires []firecheck.Fire, since, until time.Time, limit int) ([]firecheck.Fire, time.Time, error) {
	chained := func(number int) int {
		for i := range job.Versions {
			v := &job.Versions[i]
			if v.Chained() && (number == 0 || v.Number == number) {
				return i
			}
		}
		return -1
	}
	if chained(0) < 0 || len(fires) >= limit {
		return fires, until, nil
	}
	room := limit - len(fires)
	rows, err := a.q.FireCheckChain(ctx, sqlcgen.FireCheckChainParams{
		JobID: int64(job.ID), Lo: domain.FirstRunID(since.Add(time.Millisecond)), Hi: domain.FirstRunID(until.Add(time.Millisecond)), MaxRows: int32(room),
	})
	if err != nil {
		return nil, until, pgerr.Translate(err)
	}
	for _, r := range rows {
		if i := chained(int(r.JobVersion)); i >= 0 {
			t := orZero(r.FireTime).UTC()
			fires = append(fires, firecheck.Fire{Time: t, Due: job.Versions[i].Schedule.Due(job.ID, t), Version: i, Claim: firecheck.Owned})
		}
	}
	if len(rows) == room {
		until = orZero(rows[room-1].FireTime).UTC()
	}
	return fires, until, nil
}

// facts reads the records about a batch's fire times, in the order that package firecheck requires.
func (a *FireCheck) facts(ctx context.Context, b *fireBatch, now time.Time, away absence, language explain.Language) ([]*firecheck.Facts, error) {
	runs, err := a.runsOf(ctx, b)
	if err != nil {
		return nil, err
	}
	out := make([]*firecheck.Facts, len(b.jobs))
	for i, j := range b.jobs {
		out[i] = &firecheck.Facts{Job: j.job, Runs: runs, Away: away.gaps, Disturbed: away.disturbed, Now: now, Tolerance: a.tolerance, Language: language}
	}
	if err := a.addPauses(ctx, b, out); err != nil {
		return nil, err
	}
	return out, a.reasons(ctx, b, out)
}

// addPauses adds the pauses of the jobs and of their groups to facts.
func (a *FireCheck) addPauses(ctx context.Context, b *fireBatch, facts []*firecheck.Facts) error {
	var groups []string
	var since time.Time
	jobs := make([]int64, len(b.jobs))
	for i, j := range b.jobs {
		jobs[i] = int64(j.job.ID)
		for i := range j.job.Versions {
			if g := j.job.Versions[i].Group; !slices.Contains(groups, g) {
				groups = append(groups, g)
			}
		}
		if len(j.fires) > 0 && (since.IsZero() || j.fires[0].Due.Before(since)) {
			since = j.fires[0].Due
		}
	}
	if since.IsZero() {
		return nil
	}
	pauses, err := pausesSince(ctx, a.q, groups, jobs, since)
	ofGroups := slices.DeleteFunc(slices.Clone(pauses), func(p domain.Pause) bool { return p.JobID != 0 })
	index := domain.IndexPauses(pauses)
	for i, f := range facts {
		f.Paused = slices.Concat(ofGroups, index.Of(b.jobs[i].job.ID, ""))
	}
	return err
}

// pausesSince returns the pauses of groups and of jobs that are not over, or that ended after an instant.
func pausesSince(ctx context.Context, q *sqlcgen.Queries, groups []string, jobs []int64, since time.Time) ([]domain.Pause, error) {
	rows, err := q.PausesSince(ctx, sqlcgen.PausesSinceParams{Groups: groups, JobIds: jobs, Since: since})
	return convert(rows, func(r sqlcgen.PausesSinceRow) domain.Pause {
		return domain.Pause{
			JobID: domain.JobID(r.JobID), Group: r.GroupName, From: r.FromAt.UTC(), To: orZero(r.ToAt).UTC(),
			Reason: r.Reason, By: r.PausedBy, ResumedBy: r.ResumedBy,
		}
	}), pgerr.Translate(err)
}

// reasons adds the explanations of fire times without a run to facts, which already has the runs.
func (a *FireCheck) reasons(ctx context.Context, b *fireBatch, facts []*firecheck.Facts) error {
	var jobs []int64
	var lo, hi time.Time
	days := make(map[string]bool)
	for i, j := range b.jobs {
		bare := false
		for k := range j.fires {
			f := &j.fires[k]
			if f.Claim != firecheck.Owned || len(facts[i].Runs[f.ID(j.job.ID)]) > 0 {
				continue
			}
			bare = true
			days[dayOf(f.Time)] = false
			if lo.IsZero() || f.Time.Before(lo) {
				lo = f.Time
			}
			if f.Time.After(hi) {
				hi = f.Time
			}
			if err := a.addLater(ctx, facts[i], f); err != nil {
				return err
			}
		}
		if bare {
			jobs = append(jobs, int64(j.job.ID))
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	rows, err := a.q.FireCheckMissed(ctx, sqlcgen.FireCheckMissedParams{JobIds: jobs, Lo: lo, Hi: hi})
	if err != nil {
		return pgerr.Translate(err)
	}
	entries := make(map[domain.JobID][]firecheck.Missed)
	for _, r := range rows {
		entries[domain.JobID(r.JobID)] = append(entries[domain.JobID(r.JobID)], firecheck.Missed{ID: r.ID, Missed: domain.Missed{
			First: domain.At(r.FirstFireTime), Last: domain.At(r.LastFireTime), Count: int(r.Count), Why: explain.Read(explain.Note(orZero(r.WhyNote)), r.Why),
			Policy: domain.Misfire(r.Policy), At: domain.At(r.At),
		}})
	}
	if err := a.markKept(ctx, days); err != nil {
		return err
	}
	for i, j := range b.jobs {
		facts[i].Missed = entries[j.job.ID]
		facts[i].Kept = func(t time.Time) bool { return days[dayOf(t)] }
	}
	return nil
}

func dayOf(t time.Time) string { return t.UTC().Format("20060102") }

// markKept marks the days whose history still exists.
func (a *FireCheck) markKept(ctx context.Context, days map[string]bool) error {
	var ask []string
	for d := range days {
		ask = append(ask, d)
	}
	kept, err := a.q.HistoryDays(ctx, ask)
	for _, d := range kept {
		days[d] = true
	}
	return pgerr.Translate(err)
}

// addLater reads what is needed to decide whether an edit passed over a fire time. Only few fire times need it.
func (a *FireCheck) addLater(ctx context.Context, facts *firecheck.Facts, f *firecheck.Fire) error {
	if !facts.MayBeOvertaken(f) {
		return nil
	}
	v := &facts.Job.Versions[f.Version]
	later, err := a.q.LaterFire(ctx, sqlcgen.LaterFireParams{
		JobID: int64(facts.Job.ID), Lo: domain.FirstRunID(f.Time.Add(time.Millisecond)),
		Hi: domain.FirstRunID(v.From.Add(firecheck.Ahead)), Version: int32(v.Number),
	})
	if later = fromEpoch(later); err == nil && !later.IsZero() {
		if facts.Later == nil {
			facts.Later = make(map[int64]time.Time)
		}
		facts.Later[f.Time.UnixMilli()] = later
	}
	return pgerr.Translate(err)
}

// runsOf reads the runs of a batch's fire times, and for broadcasts how many shards are missing.
func (a *FireCheck) runsOf(ctx context.Context, b *fireBatch) (map[domain.RunID][]firecheck.Run, error) {
	ids, lo, hi := b.ids(func(job *firecheck.Job, f *firecheck.Fire) bool {
		// For a disabled version, only runs that were admitted just before are looked for.
		return f.Claim != firecheck.Disabled || f.Time.Sub(job.Versions[f.Version].From) < time.Second
	})
	runs := make(map[domain.RunID][]firecheck.Run, len(ids))
	if len(ids) == 0 {
		return runs, nil
	}
	rows, err := a.q.FireCheckRuns(ctx, sqlcgen.FireCheckRunsParams{Ids: ids, Lo: lo, Hi: hi})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	for _, r := range rows {
		runs[r.ID] = append(runs[r.ID], fireCheckRun(r))
	}
	return runs, a.countShards(ctx, runs, lo, hi)
}

// ids returns the ids of the runs of the batch's fire times, and the range that contains them and their shards.
func (b *fireBatch) ids(take func(*firecheck.Job, *firecheck.Fire) bool) (ids []domain.RunID, lo, hi domain.RunID) {
	var first, last time.Time
	for _, j := range b.jobs {
		for i := range j.fires {
			f := &j.fires[i]
			if !take(j.job, f) {
				continue
			}
			ids = append(ids, f.ID(j.job.ID))
			if first.IsZero() || f.Time.Before(first) {
				first = f.Time
			}
			if f.Time.After(last) {
				last = f.Time
			}
		}
	}
	return ids, domain.FirstRunID(first), domain.FirstRunID(last.Add(time.Millisecond))
}

func (a *FireCheck) countShards(ctx context.Context, runs map[domain.RunID][]firecheck.Run, lo, hi domain.RunID) error {
	var ids []domain.RunID
	of := make(map[domain.RunID]domain.RunID)
	ask := func() error {
		known, err := a.q.KnownRunIDs(ctx, sqlcgen.KnownRunIDsParams{Ids: ids, Lo: lo, Hi: hi})
		if err != nil {
			return pgerr.Translate(err)
		}
		for _, id := range known {
			delete(of, id)
		}
		for _, first := range of {
			runs[first][0].Missing++
		}
		clear(of)
		ids = ids[:0]
		return nil
	}
	for first, found := range runs {
		for shard := 1; shard < found[0].Shards; shard++ {
			id := domain.ShardRunID(first, shard)
			of[id] = first
			if ids = append(ids, id); len(ids) == batchShardsMax {
				if err := ask(); err != nil {
					return err
				}
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return ask()
}

func fireCheckRun(r sqlcgen.FireCheckRunsRow) firecheck.Run {
	return firecheck.Run{
		ID: r.ID, Version: int(r.JobVersion), Cause: domain.Cause(r.Cause), State: domain.State(r.State), Reason: domain.Reason(r.Reason),
		Message: r.Message, Waiting: explain.Current(explain.Note(r.WaitingNote), r.Waiting), Instance: r.Instance, Attempt: int(r.Attempt), FireTime: orZero(r.FireTime).UTC(),
		DueAt: r.DueAt.UTC(), DispatchedAt: orZero(r.DispatchedAt).UTC(), StartedAt: orZero(r.StartedAt).UTC(),
		FinishedAt: orZero(r.FinishedAt).UTC(), LatenessMS: r.LatenessMs, HeldBy: r.HeldBy, Shards: int(r.Shards),
	}
}

// absence is what is known about periods in which schedulers served no fire times.
type absence struct {
	gaps      []firecheck.Gap
	disturbed []domain.Disturbance
}

// gaps returns the database's clock, and the periods since the given instant in which no scheduler served fire times.
func (a *FireCheck) gaps(ctx context.Context, since time.Time) (now time.Time, away absence, err error) {
	if now, err = a.q.ClockNow(ctx); err != nil {
		return now, away, pgerr.Translate(err)
	}
	rows, err := a.q.Presence(ctx, since)
	if err != nil {
		return now, away, pgerr.Translate(err)
	}
	present := make([]firecheck.Gap, len(rows))
	for i, r := range rows {
		present[i] = firecheck.Gap{From: r.FromAt.UTC(), To: r.SeenAt.UTC()}
	}
	disturbed, err := a.q.DisturbancesSince(ctx, since)
	if err != nil {
		return now, away, pgerr.Translate(err)
	}
	for _, r := range disturbed {
		away.disturbed = append(away.disturbed, domain.Disturbance{
			Kind: domain.DisturbanceKind(r.Kind), From: r.FromAt.UTC(), To: r.ToAt.UTC(), Step: time.Duration(r.StepMs) * time.Millisecond,
		})
	}
	away.gaps = firecheck.Gaps(present, away.disturbed, now.UTC())
	return now.UTC(), away, nil
}

// fromEpoch returns the zero time for the epoch, which stands for a missing instant.
func fromEpoch(t time.Time) time.Time {
	if t.Unix() == 0 {
		return time.Time{}
	}
	return t.UTC()
}
