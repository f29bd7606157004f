package view

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// The bounds of one page of a fire check.
const (
	pageItemsMax = 500
	pageTime     = 1500 * time.Millisecond
)

// Page explains fire times starting at the cursor: as many as it can within pageTime. done means that there are no
// more.
func (a *FireCheck) Page(ctx context.Context, scope FireScope, from firecheck.Cursor) (out firecheck.Page, next firecheck.Cursor, done bool, err error) {
	out = firecheck.Page{
		Since: domain.At(scope.Since), Until: domain.At(scope.Until), Counts: make(map[firecheck.Fate]int), Items: []firecheck.Item{},
	}
	now, away, err := a.gaps(ctx, scope.Since)
	if err != nil {
		return out, from, false, err
	}
	if from == (firecheck.Cursor{}) {
		after, last := scope.ids(from)
		n, err := a.q.FireCheckJobCount(ctx, sqlcgen.FireCheckJobCountParams{After: after, Last: last, Only: scope.Only})
		if err != nil {
			return out, from, false, pgerr.Translate(err)
		}
		out.OfJobs = int(n)
	}
	begun := time.Now()
	told := teller{out: &out}
	for next = from; !done && len(out.Items) < pageItemsMax && time.Since(begun) < pageTime; {
		b, err := a.batch(ctx, &scope, next, batchJobsMax, batchFiresMax)
		if err != nil {
			return out, from, false, err
		}
		facts, err := a.facts(ctx, &b, now, away, scope.Language)
		if err != nil {
			return out, from, false, err
		}
		for i, j := range b.jobs {
			for _, f := range j.fires {
				told.add(facts[i], f)
			}
			if err := a.brokenOff(ctx, &out, facts[i], j.whole); err != nil {
				return out, from, false, err
			}
		}
		out.Jobs += b.finished
		next, done = b.next, b.done
	}
	return out, next, done, nil
}

// teller adds findings to a page.
type teller struct {
	out  *firecheck.Page
	open bool // the next finding may extend the last item
}

// add adds a finding. It extends the previous item if that has the same job, fate and cause, and no run came between.
func (t *teller) add(facts *firecheck.Facts, f firecheck.Fire) {
	found := facts.Explain(f)
	t.out.Counts[found.Fate]++
	if found.Fate == firecheck.FateRan {
		t.open = false
		return
	}
	item := firecheck.Item{
		JobID: facts.Job.ID, JobName: facts.Job.Name, Group: facts.Job.Group, Fate: found.Fate, Cause: found.Cause,
		First: domain.At(f.Time), Last: domain.At(f.Time), Count: 1, Text: found.Text,
	}
	if !found.RunID.IsZero() {
		item.RunID = &found.RunID
	}
	if found.Lateness > facts.Tolerance {
		ms := found.Lateness.Milliseconds()
		item.LatenessMS = &ms
	}
	if n := len(t.out.Items); t.open && n > 0 {
		last := &t.out.Items[n-1]
		if last.JobID == item.JobID && last.Fate == item.Fate && last.Cause == item.Cause {
			last.Last, last.Count = item.Last, last.Count+1
			if item.LatenessMS != nil && (last.LatenessMS == nil || *item.LatenessMS > *last.LatenessMS) {
				last.LatenessMS = item.LatenessMS
			}
			return
		}
	}
	t.out.Items = append(t.out.Items, item)
	t.open = true
}

// brokenOff reports a fixed_delay job whose chain of runs has ended for no reason.
func (a *FireCheck) brokenOff(ctx context.Context, out *firecheck.Page, facts *firecheck.Facts, whole bool) error {
	job := facts.Job
	if !whole || len(job.Versions) == 0 || !job.NextFire.IsZero() {
		return nil
	}
	v := &job.Versions[len(job.Versions)-1]
	if !v.Chained() || !v.Enabled || v.Deleted || !v.To.IsZero() {
		return nil
	}
	last, err := a.before(ctx, job.ID, facts.Now.Add(time.Hour))
	if err != nil || last == nil {
		return err
	}
	due, open := firecheck.ChainDue(v, last.FinishedAt)
	if !last.State.Final() || !open || facts.Now.Sub(due) < firecheck.Settled || facts.Now.Sub(v.From) < firecheck.Settled {
		return nil
	}
	out.Counts[firecheck.FateUnexplained]++
	out.Items = append(out.Items, firecheck.Item{
		JobID: job.ID, JobName: job.Name, Group: job.Group, Fate: firecheck.FateUnexplained, First: domain.At(due), Last: domain.At(due), Count: 1,
		RunID: &last.ID, Text: facts.Language.Format("the chain of fixed_delay has stopped: its last run ended at %s, and nothing follows",
			"固定延迟任务的运行链已中断：最后一次运行于 %s 结束，之后没有后续", domain.At(last.FinishedAt)),
	})
	return nil
}

// before returns the newest run of a job's schedule whose fire time is before t, or nil.
func (a *FireCheck) before(ctx context.Context, job domain.JobID, t time.Time) (*firecheck.Run, error) {
	rows, err := a.q.FireCheckBefore(ctx, sqlcgen.FireCheckBeforeParams{JobID: int64(job), Hi: domain.FirstRunID(t)})
	if err != nil || len(rows) == 0 {
		return nil, pgerr.Translate(err)
	}
	r := rows[0]
	return &firecheck.Run{
		ID: r.ID, Version: int(r.JobVersion), Cause: domain.Cause(r.Cause), State: domain.State(r.State),
		FireTime: orZero(r.FireTime).UTC(), FinishedAt: orZero(r.FinishedAt).UTC(),
	}, nil
}

// Unexplained looks for fire times without any explanation, starting at the cursor, in one batch of at most the given
// numbers of jobs and fire times. checked is the number of fire times it checked.
func (a *FireCheck) Unexplained(ctx context.Context, since, until time.Time, from firecheck.Cursor, jobs, fires int) (
	found []firecheck.Unexplained, checked int, next firecheck.Cursor, done bool, err error) {
	now, _, err := a.gaps(ctx, until)
	if err != nil {
		return nil, 0, from, false, err
	}
	b, err := a.batch(ctx, &FireScope{Since: since, Until: until}, from, jobs, fires)
	if err != nil {
		return nil, 0, from, false, err
	}
	owned := func(_ *firecheck.Job, f *firecheck.Fire) bool { return f.Claim == firecheck.Owned }
	ids, lo, hi := b.ids(owned)
	known := make(map[domain.RunID][]firecheck.Run, len(ids))
	if len(ids) > 0 {
		rows, err := a.q.KnownRunIDs(ctx, sqlcgen.KnownRunIDsParams{Ids: ids, Lo: lo, Hi: hi})
		if err != nil {
			return nil, 0, from, false, pgerr.Translate(err)
		}
		for _, id := range rows {
			known[id] = []firecheck.Run{{ID: id}}
		}
	}
	if len(known) < len(ids) {
		facts := make([]*firecheck.Facts, len(b.jobs))
		for i, j := range b.jobs {
			facts[i] = &firecheck.Facts{Job: j.job, Runs: known, Now: now, Tolerance: a.tolerance}
		}
		if err := a.reasons(ctx, &b, facts); err != nil {
			return nil, 0, from, false, err
		}
		for i, j := range b.jobs {
			found = append(found, gapsOf(facts[i], j.fires)...)
		}
	}
	return found, len(ids), b.next, b.done, nil
}

// gapsOf merges adjacent unexplained fire times into gaps.
func gapsOf(facts *firecheck.Facts, fires []firecheck.Fire) (gaps []firecheck.Unexplained) {
	open := false
	for _, f := range fires {
		if f.Claim != firecheck.Owned {
			continue
		}
		if len(facts.Runs[f.ID(facts.Job.ID)]) > 0 {
			open = false
			continue
		}
		finding := facts.Explain(f)
		if finding.Fate != firecheck.FateUnexplained {
			open = false
			continue
		}
		v := &facts.Job.Versions[f.Version]
		if !open || gaps[len(gaps)-1].Version != v.Number {
			gaps = append(gaps, firecheck.Unexplained{
				JobID: facts.Job.ID, JobName: facts.Job.Name, Group: facts.Job.Group, Version: v.Number, Misfire: v.Misfire, Text: finding.Text,
			})
			open = true
		}
		g := &gaps[len(gaps)-1]
		g.FireTimes = append(g.FireTimes, f.Time)
	}
	return gaps
}

// FireSubject returns the group of a job that exists or existed. The error is NotFound if there never was one.
func (a *FireCheck) FireSubject(ctx context.Context, job domain.JobID) (group string, err error) {
	row, err := a.q.FireCheckSubject(ctx, int64(job))
	return row.GroupName, pgerr.Translate(err)
}

// Why explains what happened at an instant of a job, given as RFC 3339 or as a local time in the job's zone. The error
// is Invalid if it is neither.
func (a *FireCheck) Why(ctx context.Context, id domain.JobID, at string, language explain.Language) (firecheck.Why, error) {
	now, err := a.q.ClockNow(ctx)
	if err != nil {
		return firecheck.Why{}, pgerr.Translate(err)
	}
	job, err := a.job(ctx, id)
	if err != nil {
		return firecheck.Why{}, err
	}
	newest, _, err := a.versionsOf(ctx, []int64{int64(id)}, now)
	if err != nil {
		return firecheck.Why{}, err
	}
	job.Versions = newest[int64(id)]
	t, heard, err := firecheck.ParseAt(at, job, language)
	if err != nil {
		return firecheck.Why{}, &domain.Error{Code: domain.Invalid, Message: "the request is not valid",
			Fields: []domain.FieldError{{Location: "at", Message: err.Error()}}}
	}
	versions, _, err := a.versionsOf(ctx, []int64{int64(id)}, t)
	if err != nil {
		return firecheck.Why{}, err
	}
	job.Versions = versions[int64(id)]
	fire, _ := firecheck.Lookup(job, t)
	fire.Claim = firecheck.Owned // look for its run in any case
	held := fire.Version
	fire.Version = max(held, 0)
	b := fireBatch{jobs: []jobFires{{job: job, fires: []firecheck.Fire{fire}}}}
	_, away, err := a.gaps(ctx, t.Add(-time.Hour))
	if err != nil {
		return firecheck.Why{}, err
	}
	facts, err := a.facts(ctx, &b, now.UTC(), away, language)
	if err != nil {
		return firecheck.Why{}, err
	}
	var chain firecheck.Chain
	if held >= 0 && job.Versions[held].Chained() {
		if chain, err = a.around(ctx, id, t); err != nil {
			return firecheck.Why{}, err
		}
	}
	return facts[0].Why(t, heard, chain), nil
}

// job reads a job's planning. The job may be deleted.
func (a *FireCheck) job(ctx context.Context, id domain.JobID) (*firecheck.Job, error) {
	rows, err := a.q.FireCheckJobs(ctx, sqlcgen.FireCheckJobsParams{After: int64(id) - 1, Last: int64(id), MaxRows: 1, Since: time.Unix(0, 0)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	if len(rows) == 0 {
		return nil, domain.NewError(domain.NotFound, "there is no such job")
	}
	r := rows[0]
	return &firecheck.Job{ID: id, Name: r.Name, Group: r.GroupName, NextFire: fromEpoch(r.NextFireTime)}, nil
}

// around reads the runs before and after an instant of a fixed_delay job.
func (a *FireCheck) around(ctx context.Context, id domain.JobID, t time.Time) (c firecheck.Chain, err error) {
	if c.Before, err = a.before(ctx, id, t); err != nil {
		return c, err
	}
	rows, err := a.q.FireCheckChain(ctx, sqlcgen.FireCheckChainParams{
		JobID: int64(id), Lo: domain.FirstRunID(t.Add(time.Millisecond)), Hi: lastRunID, MaxRows: 1,
	})
	if len(rows) > 0 {
		run := fireCheckRun(sqlcgen.FireCheckRunsRow(rows[0]))
		c.After = &run
	}
	return c, pgerr.Translate(err)
}
