package checker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// epoch is the start of each planted history.
var epoch = time.Date(2030, 5, 6, 7, 8, 0, 0, time.UTC)

func at(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }

// planted builds a history.
type planted struct{ History }

// job adds a job that is enabled from 0 s to 9.5 s. Its fire times are the whole seconds 1 to 9, unless edit changes its schedule.
func (p *planted) job(id int64, edit func(*domain.JobSpec)) {
	spec := domain.DefaultJobSpec()
	spec.Group, spec.Name, spec.Handler = "g", fmt.Sprint("job", id), "work"
	spec.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(time.Second)}
	spec.Block = domain.BlockParallel
	if edit != nil {
		edit(&spec)
	}
	off := spec
	off.Enabled = false
	p.Versions = append(p.Versions,
		Version{Job: id, Number: 1, Spec: spec, CreatedAt: epoch, From: epoch, To: at(9.5), Change: "created"},
		Version{Job: id, Number: 2, Spec: off, CreatedAt: epoch, From: at(9.5), Change: "disabled"})
}

func runID(job int64, fire time.Time) string {
	return fmt.Sprintf("run-%d-%s", job, clock(fire.UnixMilli()))
}

// run adds a run of a fire time that succeeded on i1 after 0.2 s, with the note of its handler.
func (p *planted) run(job int64, fire time.Time) *Run {
	late := int64(1)
	r := Run{
		ID: runID(job, fire), Job: job, Version: 1, Group: "g", Cause: domain.CauseSchedule, State: domain.Succeeded, Attempt: 1,
		FireTime: fire, DueAt: fire, CreatedAt: fire.Add(-4 * time.Second), DispatchedAt: fire.Add(-20 * time.Millisecond),
		StartedAt: fire.Add(time.Millisecond), FinishedAt: fire.Add(201 * time.Millisecond), LatenessMS: &late, Instance: "i1",
	}
	p.Runs = append(p.Runs, r)
	p.note(r.ID, 1, "i1", r.StartedAt, r.FinishedAt, OK)
	return &p.Runs[len(p.Runs)-1]
}

func (p *planted) note(run string, attempt int, instance string, from, to time.Time, outcome string) {
	p.Notes = append(p.Notes, Note{Run: run, Attempt: attempt, Instance: instance, Boot: "b", Start: from, End: to, Outcome: outcome})
}

// served adds a run for each of a job's fire times.
func (p *planted) served(job int64) {
	for i := 1; i <= 9; i++ {
		p.run(job, at(float64(i)))
	}
}

func (p *planted) at(job int64, second float64) *Run {
	i := slices.IndexFunc(p.Runs, func(r Run) bool { return r.Job == job && r.FireTime.Equal(at(second)) })
	return &p.Runs[i]
}

func (p *planted) noteOf(run string) *Note {
	return &p.Notes[slices.IndexFunc(p.Notes, func(n Note) bool { return n.Run == run })]
}

// remove removes a run and its notes.
func (p *planted) remove(job int64, second float64) {
	id := p.at(job, second).ID
	p.Runs = slices.DeleteFunc(p.Runs, func(r Run) bool { return r.ID == id })
	p.Notes = slices.DeleteFunc(p.Notes, func(n Note) bool { return n.Run == id })
}

func (p *planted) drop(job int64, first, last float64, count int, policy domain.Misfire) {
	p.Ledger = append(p.Ledger, Drop{Job: job, First: at(first), Last: at(last), Count: count, Policy: policy, At: at(last + 6)})
}

// killed changes a run that succeeded to one that was killed.
func (p *planted) killed(r *Run) {
	if p.Kills == nil {
		p.Kills = make(map[string]bool)
	}
	p.Kills[r.ID] = true
	r.State, r.Reason = domain.Cancelled, domain.ReasonKilled
}

// lose declares the run's only attempt lost, six seconds after its start.
func (p *planted) lose(r *Run) {
	r.State, r.Reason, r.FinishedAt = domain.Failed, domain.ReasonLost, r.StartedAt.Add(6*time.Second)
}

// freeze freezes the run's instance during its only attempt, which is declared lost at 12 s.
func (p *planted) freeze(r *Run) {
	p.lose(r)
	r.FinishedAt = at(12)
	p.Faults = append(p.Faults, Fault{Kind: "freeze executor", Target: "i1", From: at(2.99), To: at(14)})
}

// drain changes the end of the run's only attempt to drained, because its instance received SIGTERM.
func (p *planted) drain(r *Run) {
	r.State, r.Reason = domain.Failed, domain.ReasonDrained
	p.noteOf(r.ID).Outcome = Cancelled
	p.Faults = append(p.Faults, Fault{Kind: "stop process", Target: "i1", From: r.StartedAt.Add(50 * time.Millisecond), To: r.FinishedAt.Add(time.Second)})
}

// interrupted ends the handler of the run's only attempt because its instance received SIGTERM before, and declares the attempt lost.
func (p *planted) interrupted(r *Run) {
	p.lose(r)
	p.noteOf(r.ID).Outcome = Cancelled
	p.Faults = append(p.Faults, Fault{Kind: "stop process", Target: "i1", From: r.StartedAt.Add(50 * time.Millisecond), To: r.FinishedAt})
}

// again gives the run a second attempt, which succeeds on i2, after its first one ended as the run says.
func (p *planted) again(r *Run) {
	p.Attempts = append(p.Attempts, Attempt{
		Run: r.ID, Attempt: 1, Instance: r.Instance, DispatchedAt: r.DispatchedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		Outcome: "failed", Reason: r.Reason,
	})
	from := r.FinishedAt.Add(50 * time.Millisecond)
	r.State, r.Reason, r.Attempt, r.Instance = domain.Succeeded, domain.NoReason, 2, "i2"
	r.DueAt, r.StartedAt, r.FinishedAt = from, from, from.Add(100*time.Millisecond)
	p.note(r.ID, 2, "i2", r.StartedAt, r.FinishedAt, OK)
}

// broadcast adds job 1 with two shards, and all its runs.
func (p *planted) broadcast() {
	p.job(1, func(s *domain.JobSpec) { s.Route, s.Block = domain.RouteBroadcast, domain.BlockSerial })
	for i := 1; i <= 9; i++ {
		for shard := range 2 {
			r := p.run(1, at(float64(i)))
			id := fmt.Sprint(r.ID, "/", shard)
			p.noteOf(r.ID).Run = id
			r.Broadcast, r.ShardIndex, r.ShardTotal, r.ID = runID(1, at(float64(i))), shard, 2, id
		}
	}
}

// born adds a child run for each run of job 1.
func (p *planted) born(child int64) {
	parents := slices.Clone(p.Runs)
	for _, parent := range parents {
		r := p.run(child, parent.FinishedAt)
		r.Cause, r.Parent, r.CreatedAt = domain.CauseChild, parent.ID, parent.FinishedAt
	}
}

func serial(s *domain.JobSpec) { s.Block = domain.BlockSerial }

// acceptsAll wants no violation in each of the histories.
func acceptsAll(t *testing.T, histories map[string]func(p *planted)) {
	t.Helper()
	for name, plant := range histories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p planted
			plant(&p)
			for _, v := range Check(&p.History).Violations {
				t.Errorf("%s: %s", v.Rule, v.Text)
			}
		})
	}
}

// breach breaks a rule in a history in which each fire time of job 1 has a run.
type breach struct {
	name  string
	rule  Rule
	plant func(p *planted)
}

// rejectsAll wants a violation of the rule that each breach breaks.
func rejectsAll(t *testing.T, breaches []breach) {
	t.Helper()
	for _, b := range breaches {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			var p planted
			p.job(1, nil)
			p.served(1)
			b.plant(&p)
			rejects(t, &p, b.rule)
		})
	}
}

func rejects(t *testing.T, p *planted, rule Rule) {
	t.Helper()
	found := Check(&p.History).Violations
	if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == rule }) {
		t.Errorf("want a breach of %q, found %v", rule, found)
	}
}
