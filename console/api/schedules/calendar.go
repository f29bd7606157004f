package schedules

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
)

// The bounds of one calendar. Beyond them the answer is an estimate, and says so.
const (
	calendarSpan  = 35 * 24 * time.Hour
	calendarCells = 750
	calendarJobs  = 10_000          // jobs whose fire times are computed; if there are more, a sample of at most twice as many
	calendarFires = 100             // fire times of one schedule that are computed in one cell
	calendarTime  = 3 * time.Second // of computation
)

type calendarInput struct {
	From  domain.Instant `query:"from" required:"true"`
	To    domain.Instant `query:"to" required:"true" doc:"At most 35 days after from"`
	Step  string         `query:"step" default:"1h" doc:"The length of a cell: a duration of 5m to 30m that divides an hour, or of whole hours"`
	Group string         `query:"group"`
}

// calendarCell is one step of the calendar.
type calendarCell struct {
	At        domain.Instant `json:"at" doc:"The start of the cell"`
	Planned   int64          `json:"planned" doc:"The number of future fire times"`
	Runs      int64          `json:"runs" doc:"The number of runs that finished in the cell"`
	Succeeded int64          `json:"succeeded"`
	Failed    int64          `json:"failed"`
}

type calendarAnswer struct {
	From      domain.Instant  `json:"from"`
	To        domain.Instant  `json:"to"`
	Step      domain.Duration `json:"step"`
	Now       domain.Instant  `json:"now" doc:"Cells before this instant count finished runs, later ones planned fire times"`
	Cells     []calendarCell  `json:"cells" nullable:"false"`
	Jobs      int64           `json:"jobs" doc:"Jobs whose schedules fire"`
	Computed  int64           `json:"computed" doc:"Jobs whose fire times were computed. If this is less than jobs, planned is extrapolated"`
	Estimated bool            `json:"estimated" doc:"Whether planned is an estimate: only a sample of the jobs was computed, or a schedule fires more than 100 times in a cell"`
}

func (in *calendarInput) check(now time.Time) (step time.Duration, err error) {
	var f domain.Faults
	step, err = time.ParseDuration(in.Step)
	switch {
	case err != nil:
		f.Add("step", "must be a duration such as 1h")
	case step < 5*time.Minute || step < time.Hour && (step%time.Minute != 0 || time.Hour%step != 0) || step > time.Hour && step%time.Hour != 0:
		f.Add("step", "must be 5m, 6m, 10m, 12m, 15m, 20m, 30m or whole hours")
	case step < time.Hour && now.Sub(in.From.Time) > statstore.MinutesKept:
		f.Add("step", "is too short, because counts by minute are kept for 72 hours; use 1h or more, or a later from")
	case in.To.Sub(in.From.Time)/step >= calendarCells:
		f.Add("step", "makes more than 750 cells; use a longer step or a shorter span")
	}
	switch span := in.To.Sub(in.From.Time); {
	case span <= 0:
		f.Add("to", "must be after from")
	case span > calendarSpan:
		f.Add("to", "must be at most 35 days after from")
	case now.Sub(in.From.Time) > statstore.HoursKept:
		f.Add("from", "must be at most 400 days ago, because counts are kept that long")
	case in.To.Sub(now) > 400*24*time.Hour:
		f.Add("to", "must be at most 400 days ahead")
	}
	return step, f.Err("the request is not valid")
}

func (a *API) calendar(ctx context.Context, id auth.Identity, in *calendarInput) (*rest.Output[calendarAnswer], error) {
	step, err := in.check(time.Now())
	if err != nil {
		return nil, err
	}
	groups, err := a.Visible.Scope(ctx, id, in.Group)
	if err != nil {
		return nil, err
	}
	cells := newCells(in.From.Time, in.To.Time, step)
	out := calendarAnswer{From: domain.At(cells.from), To: domain.At(cells.to()), Step: domain.Duration(step), Now: domain.At(time.Now())}
	if cells.to().After(out.Now.Time) {
		found, err := a.Lists.Scheduled(ctx, groups, calendarJobs)
		if err != nil {
			return nil, err
		}
		out.Now, out.Jobs = domain.At(found.Now), found.All
		out.Computed, out.Estimated = a.plan(ctx, &found, &cells)
	}
	out.Cells = make([]calendarCell, len(cells.fires))
	for i, n := range cells.fires {
		out.Cells[i] = calendarCell{At: domain.At(cells.at(i)), Planned: int64(math.Round(n))}
	}
	past := cells.to()
	if out.Now.Before(past) {
		past = out.Now.Time
	}
	if cells.from.Before(past) {
		counts, err := a.Reports.Series(ctx, statstore.Scope{Only: groups, From: cells.from, To: past}, step)
		if err != nil {
			return nil, err
		}
		for _, c := range counts.Steps {
			if i := int(c.At.Sub(cells.from) / step); i >= 0 && i < len(out.Cells) {
				out.Cells[i].Runs, out.Cells[i].Succeeded, out.Cells[i].Failed = c.All(), c.Runs[domain.Succeeded], c.Runs[domain.Failed]
			}
		}
	}
	return rest.Answer(out), nil
}

// plan adds the fire times of the found jobs to the cells, scaled up to all jobs. It returns how many jobs it computed, and
// whether the result is an estimate.
func (a *API) plan(ctx context.Context, found *view.Scheduled, cells *cells) (jobs int64, estimated bool) {
	pauses := domain.IndexPauses(found.Pauses)
	// Jobs with the same fire times are computed once. The order of the map is random, so the jobs that are computed before
	// the deadline are a sample.
	alike := make(map[string][]*view.ScheduledJob)
	for i := range found.Jobs {
		j := &found.Jobs[i]
		key := firesAs(j, pauses.Of(j.ID, j.Group))
		alike[key] = append(alike[key], j)
	}
	deadline := time.Now().Add(calendarTime)
	for _, like := range alike {
		if time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
		jobs += int64(len(like))
		j := like[0]
		compiled, err := Compile(j.Schedule, a.Zone, j.CreatedAt)
		if err != nil {
			continue // the job's note reports it
		}
		one := firing{compiled, pauses.Of(j.ID, j.Group), float64(len(like))}
		switch j.Schedule.Kind {
		case domain.ScheduleFixedDelay: // later fire times depend on the duration of the next run
			if domain.PauseAt(one.pauses, j.NextFire) == nil && j.NextFire.After(found.Now) {
				cells.add(j.NextFire, 1)
			}
		case domain.ScheduleFixedRate:
			every := j.Schedule.Every.Std()
			if j.Schedule.EndAt != nil {
				every = 0 // the schedule may end within a cell
			}
			estimated = cells.fill(&one, latest(cells.from, found.Now), every) || estimated
		case domain.ScheduleCron, domain.ScheduleOnce, domain.ScheduleNone:
			estimated = cells.fill(&one, latest(cells.from, found.Now), 0) || estimated
		}
	}
	if jobs > 0 && jobs < found.All {
		estimated = true
		for c := range cells.fires {
			cells.fires[c] *= float64(found.All) / float64(jobs)
		}
	}
	return jobs, estimated
}

// firesAs returns a key that is equal for jobs with the same fire times.
func firesAs(j *view.ScheduledJob, pauses []domain.Pause) string {
	s := j.Schedule
	s.Jitter = 0
	b, _ := json.Marshal(s) // it was decoded from JSON
	key := string(b)
	switch s.Kind {
	case domain.ScheduleFixedDelay:
		key += strconv.FormatInt(int64(j.ID), 10)
	case domain.ScheduleFixedRate:
		if s.StartAt == nil {
			key += j.CreatedAt.String() // its anchor
		}
	case domain.ScheduleCron, domain.ScheduleOnce, domain.ScheduleNone:
	}
	for _, p := range pauses {
		key += fmt.Sprintf("/%s/%d", p.Group, p.JobID)
	}
	return key
}

// firing is a number of jobs with the same fire times.
type firing struct {
	schedule *schedule.Schedule
	pauses   []domain.Pause
	jobs     float64
}

// cells counts fire times in consecutive steps of equal length.
type cells struct {
	from  time.Time
	step  time.Duration
	fires []float64
}

func newCells(from, to time.Time, step time.Duration) cells {
	from = time.UnixMilli(from.UnixMilli() - mod(from.UnixMilli(), step.Milliseconds())).UTC()
	n := (to.Sub(from) + step - 1) / step
	return cells{from, step, make([]float64, n)}
}

func mod(n, d int64) int64 { return ((n % d) + d) % d }

func (c *cells) at(i int) time.Time { return c.from.Add(time.Duration(i) * c.step) }
func (c *cells) to() time.Time      { return c.at(len(c.fires)) }

func (c *cells) add(t time.Time, n float64) {
	if t.Before(c.from) || !t.Before(c.to()) {
		return
	}
	c.fires[t.Sub(c.from)/c.step] += n
}

// fill adds the fire times from start on. If a cell has very many, fill computes the first ones, extrapolates the rest of the
// cell, and returns true. If every is not 0, fire times are that far apart, and the rest is exact.
func (c *cells) fill(f *firing, start time.Time, every time.Duration) (estimated bool) {
	for i := 0; i < len(c.fires); i++ {
		lo, hi := latest(start, c.at(i)), c.at(i+1)
		first, ok := f.schedule.Next(lo.Add(-time.Millisecond))
		switch {
		case !ok || !first.Before(c.to()):
			return estimated
		case !first.Before(hi): // this cell has none; continue at the cell of first
			i = int(first.Sub(c.from)/c.step) - 1
			continue
		}
		n, at := 0, first
		for ; ok && at.Before(hi) && n < calendarFires; n++ {
			if domain.PauseAt(f.pauses, at) == nil {
				c.fires[i] += f.jobs
			}
			last := at
			if at, ok = f.schedule.Next(at); ok && n == calendarFires-1 && at.Before(hi) {
				gap := every
				if every == 0 {
					gap = last.Sub(first) / time.Duration(n)
				}
				if domain.PauseAt(f.pauses, at) == nil {
					c.fires[i] += f.jobs * float64((hi.Sub(last)-1)/gap)
				}
				estimated = estimated || every == 0 || len(f.pauses) > 0
			}
		}
	}
	return estimated
}
