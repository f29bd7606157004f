package checker

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// epoch is when each planted history begins.
var epoch = time.Date(2030, 5, 6, 7, 8, 0, 0, time.UTC)

func at(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }

// planted is a history in the making.
type planted struct{ History }

// job adds a job that holds from 0 s to 10 s and is disabled then. Its fire times are the whole seconds 1 to 9, unless
// edit says otherwise.
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

// run adds a run of a fire time, which succeeded on i1 after 0.2 s, with the note of its handler.
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

// remove takes a run out, with its notes.
func (p *planted) remove(job int64, second float64) {
	id := p.at(job, second).ID
	p.Runs = slices.DeleteFunc(p.Runs, func(r Run) bool { return r.ID == id })
	p.Notes = slices.DeleteFunc(p.Notes, func(n Note) bool { return n.Run == id })
}

func (p *planted) drop(job int64, first, last float64, count int, policy domain.Misfire) {
	p.Ledger = append(p.Ledger, Drop{Job: job, First: at(first), Last: at(last), Count: count, Policy: policy, At: at(last + 6)})
}

// lose names the run's only attempt lost, six seconds after its start.
func (p *planted) lose(r *Run) {
	r.State, r.Reason, r.FinishedAt = domain.Failed, domain.ReasonLost, r.StartedAt.Add(6*time.Second)
}

// freeze freezes the run's instance around its only attempt, which is named lost at 12 s.
func (p *planted) freeze(r *Run) {
	p.lose(r)
	r.FinishedAt = at(12)
	p.Faults = append(p.Faults, Fault{Kind: "freeze executor", Target: "i1", From: at(2.99), To: at(14)})
}

// drain has the run's only attempt, or an earlier one, end because its instance received SIGTERM.
func (p *planted) drain(r *Run) {
	r.State, r.Reason = domain.Failed, domain.ReasonDrained
	p.noteOf(r.ID).Outcome = Cancelled
	p.Faults = append(p.Faults, Fault{Kind: "stop process", Target: "i1", From: r.StartedAt.Add(50 * time.Millisecond), To: r.FinishedAt.Add(time.Second)})
}

// again gives the run another attempt on i2, after its first one ended as it says.
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

// outlived has the run at 3 s be killed, and its handler go on beside the run at 4 s, which another instance has. Its result is
// no news: a killed run did not succeed.
func (p *planted) outlived() {
	r := p.at(1, 3)
	p.killed(r)
	r.FinishedAt = at(3.5)
	n := p.noteOf(r.ID)
	n.End, n.Outcome = at(4.1), Error
	next := p.at(1, 4)
	next.Instance = "i2"
	p.noteOf(next.ID).Instance = "i2"
}

func serial(s *domain.JobSpec) { s.Block = domain.BlockSerial }

// Each history that keeps the promises is accepted.
func TestAccepts(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(p *planted){
		"all served": func(p *planted) { p.job(1, nil); p.served(1) },
		"late on a machine that other tests have as well": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.Crowded = true
			n := p.noteOf(p.at(1, 3).ID)
			n.Start, n.End = at(33.1), at(33.2)
		},
		"late because the machine stalled": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.Stalls = []Stall{{at(4), time.Second}}
			n := p.noteOf(p.at(1, 3).ID)
			n.Start, n.End = at(9.2), at(9.3)
		},
		"a shard that somebody has run again, a broadcast of its own": func(p *planted) {
			p.broadcast()
			r := p.run(1, at(20))
			r.Cause, r.Broadcast, r.ShardIndex, r.ShardTotal = domain.CauseManual, r.ID, 1, 2
		},
		"cron": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) {
				s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Dialect: domain.DialectQuartz, Expr: "2/3 * * * * ?"}
			})
			p.run(1, at(2))
			p.run(1, at(5))
			p.run(1, at(8))
		},
		"once and a window": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) {
				once := domain.At(at(3.5))
				s.Schedule = domain.Schedule{Kind: domain.ScheduleOnce, At: &once}
			})
			p.run(1, at(3.5))
			p.job(2, func(s *domain.JobSpec) {
				from, to := domain.At(at(3)), domain.At(at(5))
				s.Schedule.StartAt, s.Schedule.EndAt = &from, &to
			})
			p.run(2, at(3))
			p.run(2, at(4))
			p.run(2, at(5))
		},
		"dropped": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.remove(1, 2)
			p.remove(1, 4)
			p.drop(1, 2, 4, 2, domain.MisfireSkip)
		},
		"made up for": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) { s.Misfire = domain.MisfireFireOnce })
			p.served(1)
			p.remove(1, 1)
			p.drop(1, 1, 1, 1, domain.MisfireFireOnce)
			r := p.at(1, 2)
			r.Cause, r.DueAt, r.StartedAt = domain.CauseMisfire, at(7.5), at(7.5)
			n := p.noteOf(r.ID)
			n.Start, n.End = at(7.5), at(7.6)
		},
		"an edit that was answered": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.Acks = append(p.Acks, Ack{What: "version", Job: 1, Version: 2, At: p.Versions[1].From.Add(-20 * time.Millisecond)})
		},
		"an edit shortly before a fire time": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.remove(1, 9)
			p.Versions[0].To, p.Versions[1].From = at(8.9), at(8.9) // it may or may not have come too late for 9 s
		},
		"lost and tried again": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) { s.Retries = 1; serial(s) })
			p.served(1)
			p.remove(1, 4)
			p.remove(1, 5)
			r := p.at(1, 3)
			p.Attempts = append(p.Attempts, Attempt{
				Run: r.ID, Attempt: 1, Instance: "i2", DispatchedAt: at(3), FinishedAt: at(4), Outcome: "failed", Reason: domain.ReasonLost,
			})
			r.Attempt, r.DueAt, r.StartedAt, r.FinishedAt = 2, at(5), at(5), at(5.2)
			n := p.noteOf(r.ID)
			n.Attempt, n.Start, n.End = 2, at(5), at(5.2)
			p.note(r.ID, 1, "i2", at(3), at(5.1), OK) // the zombie overlaps, and its result came late
			p.Late = append(p.Late, Late{Run: r.ID, Attempt: 1, Outcome: "succeeded"})
			p.Faults = append(p.Faults, Fault{Kind: "freeze executor", Target: "i2", From: at(2.9), To: at(4)})
			p.drop(1, 4, 5, 2, domain.MisfireSkip)
		},
		"lost while it ran, on an instance that was frozen": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.freeze(p.at(1, 3))
			p.noteOf(p.at(1, 3).ID).End = at(14.1)
			p.Late = append(p.Late, Late{Run: p.at(1, 3).ID, Attempt: 1, Outcome: "succeeded"})
		},
		"lost before it started": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) { s.Retries = 1 })
			p.served(1)
			r := p.at(1, 3)
			p.freeze(r)
			p.Notes = slices.DeleteFunc(p.Notes, func(n Note) bool { return n.Run == r.ID })
			p.again(r)
		},
		"drained": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.drain(p.at(1, 3))
		},
		"drained and tried again": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) { s.Retries = 1 })
			p.served(1)
			p.drain(p.at(1, 3))
			p.again(p.at(1, 3))
		},
		"killed while its instance was frozen": func(p *planted) {
			p.job(1, serial)
			p.served(1)
			p.outlived()
			p.Faults = append(p.Faults, Fault{Kind: "freeze executor", Target: "i1", From: at(3.1), To: at(4.1)})
		},
		"killed after its timeout": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) { s.Timeout = domain.Duration(time.Second) })
			p.served(1)
			r := p.at(1, 3)
			p.killed(r)
			p.noteOf(r.ID).End = r.StartedAt.Add(1200 * time.Millisecond)
		},
		"killed and never noted": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			r := p.at(1, 3)
			p.lose(r)
			p.noteOf(r.ID).End, p.noteOf(r.ID).Outcome = time.Time{}, ""
			p.Faults = append(p.Faults, Fault{Kind: "kill executor", Target: "i1", From: at(3.1), To: at(4)})
		},
		"a family": func(p *planted) {
			p.job(2, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleNone} })
			p.job(1, func(s *domain.JobSpec) { s.Children = []domain.Child{{JobID: 2, On: domain.OnSuccess}} })
			p.served(1)
			p.born(2)
		},
		"a broadcast": func(p *planted) {
			p.broadcast()
		},
		"a chain": func(p *planted) { p.chain(1, 2.3, 3.6) },
	} {
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

// killed makes a run that succeeded one that was killed.
func (p *planted) killed(r *Run) {
	if p.Kills == nil {
		p.Kills = make(map[string]bool)
	}
	p.Kills[r.ID] = true
	r.State, r.Reason = domain.Cancelled, domain.ReasonKilled
}

// born adds a child run for each run of job 1.
func (p *planted) born(child int64) {
	parents := slices.Clone(p.Runs)
	for _, parent := range parents {
		r := p.run(child, parent.FinishedAt)
		r.Cause, r.Parent, r.CreatedAt = domain.CauseChild, parent.ID, parent.FinishedAt
	}
}

// broadcast adds job 1, of two shards, each of whose fire times is served.
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

// chain adds job 1, which fires a second after the end of each run, with runs at the given seconds.
func (p *planted) chain(fires ...float64) {
	p.job(1, func(s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Second)}
	})
	for _, f := range fires {
		p.run(1, at(f))
	}
}

// Each breach of a promise is found, under its rule.
func TestRejects(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		rule  Rule
		plant func(p *planted)
	}{
		{"a run that never ends", RuleFinal, func(p *planted) { p.at(1, 3).State = domain.Queued }},
		{"a run that is live and in the history", RuleFinal, func(p *planted) { p.Runs = append(p.Runs, *p.at(1, 3)) }},
		{"a fire time without anything", RuleFire, func(p *planted) { p.remove(1, 3) }},
		{"a fire time with two runs", RuleFire, func(p *planted) { p.run(1, at(3)).ID = "another" }},
		{"a run between the fire times", RuleFire, func(p *planted) { p.run(1, at(3.5)) }},
		{"a run while the job was disabled", RuleFire, func(p *planted) { p.run(1, at(10)) }},
		{"a run of another version", RuleFire, func(p *planted) { p.at(1, 3).Version = 2 }},
		{"a run that was due before its fire time", RuleFire, func(p *planted) { p.at(1, 3).DueAt = at(2.9) }},
		{"a run that was due later than its jitter allows", RuleFire, func(p *planted) { p.at(1, 3).DueAt = at(3.4) }},
		{"an edit that forgot a run that was planned", RuleFire, func(p *planted) {
			p.Versions[0].To, p.Versions[1].From = at(6.5), at(6.5)
		}},
		{"a ledger entry that counts too few", RuleFire, func(p *planted) {
			p.remove(1, 3)
			p.remove(1, 4)
			p.drop(1, 3, 4, 1, domain.MisfireSkip)
		}},
		{"a fire time that the audit had to enter", RuleFire, func(p *planted) {
			p.remove(1, 3)
			p.drop(1, 3, 3, 1, domain.MisfireSkip)
			p.Ledger[0].Why = "unexplained: the audit found neither a run nor an entry"
		}},
		{"a ledger entry that counts too many", RuleLedger, func(p *planted) {
			p.remove(1, 3)
			p.drop(1, 3, 3, 2, domain.MisfireSkip)
		}},
		{"a fire time with a run and a ledger entry", RuleLedger, func(p *planted) { p.drop(1, 3, 3, 1, domain.MisfireSkip) }},
		{"a ledger entry in another's place", RuleFire, func(p *planted) {
			p.remove(1, 3)
			p.drop(1, 4, 4, 1, domain.MisfireSkip)
		}},
		{"a ledger of a job that never was", RuleLedger, func(p *planted) { p.drop(9, 3, 3, 1, domain.MisfireSkip) }},
		{"a misfire that skip forbids", RuleMisfire, func(p *planted) {
			r := p.at(1, 3)
			r.Cause, r.DueAt = domain.CauseMisfire, at(9)
		}},
		{"a misfire within the tolerance", RuleMisfire, func(p *planted) {
			p.Versions[0].Spec.Misfire = domain.MisfireFireAll
			r := p.at(1, 3)
			r.Cause, r.DueAt = domain.CauseMisfire, at(6)
		}},
		{"fire_once that makes up for none", RuleMisfire, func(p *planted) {
			p.Versions[0].Spec.Misfire = domain.MisfireFireOnce
			p.remove(1, 3)
			p.drop(1, 3, 3, 1, domain.MisfireFireOnce)
		}},
		{"fire_once that makes up for two", RuleMisfire, func(p *planted) {
			p.Versions[0].Spec.Misfire = domain.MisfireFireOnce
			for _, second := range []float64{3, 4} {
				r := p.at(1, second)
				r.Cause, r.DueAt, r.CreatedAt = domain.CauseMisfire, at(12), at(12)
			}
		}},
		{"fire_all that drops", RuleMisfire, func(p *planted) {
			p.Versions[0].Spec.Misfire = domain.MisfireFireAll
			p.remove(1, 3)
			p.drop(1, 3, 3, 1, domain.MisfireFireAll)
		}},
		{"an entry by a policy that never held", RuleMisfire, func(p *planted) {
			p.remove(1, 3)
			p.drop(1, 3, 3, 1, domain.MisfireFireOnce)
		}},
		{"an attempt that starts twice", RuleStart, func(p *planted) { p.note(p.at(1, 3).ID, 1, "i1", at(3), at(3.1), OK) }},
		{"an attempt that starts elsewhere too", RuleStart, func(p *planted) { p.note(p.at(1, 3).ID, 1, "i2", at(3), at(3.1), OK) }},
		{"an attempt that starts elsewhere", RuleStart, func(p *planted) { p.noteOf(p.at(1, 3).ID).Instance = "i2" }},
		{"an attempt that nobody knows of", RuleStart, func(p *planted) { p.note(p.at(1, 3).ID, 2, "i1", at(3), at(3.1), OK) }},
		{"a run that nobody knows of", RuleStart, func(p *planted) { p.note("ghost", 1, "i1", at(3), at(3.1), OK) }},
		{"a start after the verdict, on an instance that was frozen", RuleVerdict, func(p *planted) {
			p.freeze(p.at(1, 3))
			n := p.noteOf(p.at(1, 3).ID)
			n.Start, n.End = at(14), at(14.1)
			p.Late = append(p.Late, Late{Run: p.at(1, 3).ID, Attempt: 1, Outcome: "succeeded"})
		}},
		{"a start after the verdict, of a run that was tried again", RuleVerdict, func(p *planted) {
			p.Versions[0].Spec.Retries = 1
			r := p.at(1, 3)
			p.freeze(r)
			n := p.noteOf(r.ID)
			n.Start, n.End = at(14), at(14.1)
			p.Late = append(p.Late, Late{Run: r.ID, Attempt: 1, Outcome: "succeeded"})
			p.again(r)
		}},
		{"an overlap with what started after its verdict", RuleOverlap, func(p *planted) {
			serial(&p.Versions[0].Spec)
			serial(&p.Versions[1].Spec)
			p.Versions[0].Spec.Retries = 1
			r := p.at(1, 3)
			p.freeze(r)
			r.FinishedAt = at(3.2)
			n := p.noteOf(r.ID)
			n.Start, n.End = at(4.1), at(4.3)
			p.Late = append(p.Late, Late{Run: r.ID, Attempt: 1, Outcome: "succeeded"})
		}},
		{"drained although its instance received no SIGTERM", RuleDrained, func(p *planted) {
			p.drain(p.at(1, 3))
			p.Faults[0].Target = "i2"
		}},
		{"drained by a kill", RuleDrained, func(p *planted) {
			p.drain(p.at(1, 3))
			p.Faults[0].Kind = "kill executor"
		}},
		{"drained and never started", RuleDrained, func(p *planted) {
			r := p.at(1, 3)
			p.drain(r)
			p.Notes = slices.DeleteFunc(p.Notes, func(n Note) bool { return n.Run == r.ID })
		}},
		{"drained although its handler succeeded", RuleDrained, func(p *planted) {
			p.drain(p.at(1, 3))
			p.noteOf(p.at(1, 3).ID).Outcome = OK
		}},
		{"drained and not tried again", RuleRetry, func(p *planted) {
			p.Versions[0].Spec.Retries = 1
			p.drain(p.at(1, 3))
		}},
		{"a start before due", RuleEarly, func(p *planted) { p.noteOf(p.at(1, 3).ID).Start = at(2.7) }},
		{"a success without a start", RuleEffect, func(p *planted) { p.noteOf(p.at(1, 3).ID).Run = p.at(1, 4).ID }},
		{"a success whose handler never ended", RuleEffect, func(p *planted) {
			n := p.noteOf(p.at(1, 3).ID)
			n.End, n.Outcome = time.Time{}, ""
		}},
		{"a success whose handler failed", RuleEffect, func(p *planted) { p.noteOf(p.at(1, 3).ID).Outcome = Error }},
		{"a success that is forgotten", RuleResult, func(p *planted) {
			r := p.at(1, 3)
			p.lose(r)
			p.Faults = append(p.Faults, Fault{Kind: "freeze executor", Target: "i1", From: at(3.1), To: at(4)})
		}},
		{"a success that a kill takes along", RuleResult, func(p *planted) {
			p.Versions[0].Spec.Timeout = domain.Duration(time.Second)
			p.killed(p.at(1, 3))
		}},
		{"a killed run of no job", RuleFire, func(p *planted) {
			p.killed(p.at(1, 3))
			p.at(1, 3).Job = 99
		}},
		{"a failure that is forgotten", RuleResult, func(p *planted) { p.noteOf(p.at(1, 3).ID).Outcome = Panic }},
		{"lost without a fault", RuleLost, func(p *planted) { p.lose(p.at(1, 3)) }},
		{"lost through another's fault", RuleLost, func(p *planted) {
			p.lose(p.at(1, 3))
			p.Faults = append(p.Faults, Fault{Kind: "kill executor", Target: "i2", From: at(3.1), To: at(4)})
		}},
		{"lost through Postgres's fault", RuleLost, func(p *planted) {
			p.lose(p.at(1, 3))
			p.Faults = append(p.Faults, Fault{Kind: "kill postgres", Target: "postgres", From: at(3.1), To: at(4)})
		}},
		{"a try too many", RuleRetry, func(p *planted) { p.at(1, 3).Attempt = 2 }},
		{"a try too few", RuleRetry, func(p *planted) {
			p.Versions[0].Spec.Retries = 1
			r := p.at(1, 3)
			r.State, r.Reason = domain.Failed, domain.ReasonHandlerError
			p.noteOf(r.ID).Outcome = Error
		}},
		{"a try after a success", RuleRetry, func(p *planted) {
			p.Versions[0].Spec.Retries = 1
			r := p.at(1, 3)
			r.Attempt = 2
			p.Attempts = append(p.Attempts, Attempt{Run: r.ID, Attempt: 1, Instance: "i1", FinishedAt: at(3.1), Outcome: "succeeded"})
		}},
		{"serial runs that overlap", RuleOverlap, func(p *planted) {
			p.Versions[0].Spec.Block = domain.BlockSerial
			p.noteOf(p.at(1, 3).ID).End = at(4.1)
		}},
		{"a killed run that overlaps, of an instance within reach", RuleOverlap, func(p *planted) {
			p.Versions[0].Spec.Block = domain.BlockSerial
			p.outlived()
		}},
		{"a killed run that overlaps, of an instance that is back", RuleOverlap, func(p *planted) {
			p.Versions[0].Spec.Block = domain.BlockSerial
			p.outlived()
			p.Faults = append(p.Faults, Fault{Kind: "freeze executor", Target: "i1", From: at(1), To: at(2.5)})
		}},
		{"runs that overlap on an instance", RuleOverlap, func(p *planted) {
			p.Versions[0].Spec.Block, p.Versions[0].Spec.BlockScope = domain.BlockDiscardLater, domain.ScopeInstance
			p.noteOf(p.at(1, 3).ID).End = at(4.1)
		}},
		{"a kill that nobody asked for", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Cancelled, domain.ReasonKilled
		}},
		{"a job that was not deleted", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Cancelled, domain.ReasonJobDeleted
		}},
		{"covered by another policy", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Cancelled, domain.ReasonCovered
		}},
		{"covered by nothing newer", RuleReason, func(p *planted) {
			p.Versions[0].Spec.Block = domain.BlockCoverEarly
			last := p.at(1, 3)
			for i := range p.Runs {
				if r := &p.Runs[i]; r.Job == 1 && r.FireTime.After(last.FireTime) {
					last = r
				}
			}
			last.State, last.Reason = domain.Cancelled, domain.ReasonCovered
		}},
		{"skipped as covered, and started", RuleReason, func(p *planted) {
			p.Versions[0].Spec.Block = domain.BlockCoverEarly
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Skipped, domain.ReasonCovered
		}},
		{"discarded by another policy", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Skipped, domain.ReasonDiscarded
		}},
		{"a timeout without one", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Failed, domain.ReasonTimeout
		}},
		{"an error that never was", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Failed, domain.ReasonHandlerError
		}},
		{"no executor, too soon", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Failed, domain.ReasonNoExecutor
		}},
		{"a version that is not there", RuleAck, func(p *planted) { p.Acks = append(p.Acks, Ack{What: "version", Job: 1, Version: 7}) }},
		{"an edit that is put off", RuleAck, func(p *planted) {
			p.Acks = append(p.Acks, Ack{What: "version", Job: 1, Version: 2, At: p.Versions[1].From.Add(-3 * time.Second)})
		}},
		{"a triggered run that is not there", RuleAck, func(p *planted) {
			p.Acks = append(p.Acks, Ack{What: "trigger", Job: 1, Run: "nowhere", Tag: "x"})
		}},
		{"a trigger with two runs", RuleAck, func(p *planted) {
			p.at(1, 3).Param, p.at(1, 4).Param = "x", "x"
			p.Acks = append(p.Acks, Ack{What: "trigger", Job: 1, Run: p.at(1, 3).ID, Tag: "x"})
		}},
		{"late without a fault", RuleLate, func(p *planted) {
			n := p.noteOf(p.at(1, 3).ID)
			n.Start, n.End = at(8.1), at(8.2)
		}},
		{"later than a stall of the machine explains", RuleLate, func(p *planted) {
			p.Stalls = []Stall{{at(4), 100 * time.Millisecond}}
			n := p.noteOf(p.at(1, 3).ID)
			n.Start, n.End = at(9.2), at(9.3)
		}},
		{"late after a stall of the machine", RuleLate, func(p *planted) {
			p.Stalls = []Stall{{at(1), time.Second}}
			n := p.noteOf(p.at(1, 3).ID)
			n.Start, n.End = at(8.1), at(8.2)
		}},
		{"a child that is missing", RuleChild, func(p *planted) {
			p.Versions[0].Spec.Children = []domain.Child{{JobID: 2, On: domain.OnSuccess}}
			p.job(2, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleNone} })
			p.born(2)
			p.Runs = p.Runs[:len(p.Runs)-1]
		}},
		{"a child that comes twice", RuleChild, func(p *planted) {
			p.Versions[0].Spec.Children = []domain.Child{{JobID: 2, On: domain.OnAlways}}
			p.job(2, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleNone} })
			p.born(2)
			twin := p.Runs[len(p.Runs)-1]
			twin.ID = "twin"
			p.Runs = append(p.Runs, twin)
		}},
		{"a child of a parent that did not want it", RuleChild, func(p *planted) {
			p.Versions[0].Spec.Children = []domain.Child{{JobID: 2, On: domain.OnFailure}}
			p.job(2, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleNone} })
			p.born(2)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var p planted
			p.job(1, nil)
			p.served(1)
			test.plant(&p)
			rejects(t, &p, test.rule)
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

func TestRejectsBroadcasts(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(p *planted){
		"a shard that is missing":     func(p *planted) { p.Runs = p.Runs[:len(p.Runs)-1] },
		"a shard that is there twice": func(p *planted) { p.Runs[len(p.Runs)-1].ShardIndex = 0 },
		"shards of two totals":        func(p *planted) { p.Runs[len(p.Runs)-1].ShardTotal = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p planted
			p.broadcast()
			plant(&p)
			rejects(t, &p, RuleBroadcast)
			rejects(t, &p, RuleFire)
		})
	}
	t.Run("joined twice", func(t *testing.T) {
		t.Parallel()
		var p planted
		p.broadcast()
		p.Versions[0].Spec.Children = []domain.Child{{JobID: 2, On: domain.OnSuccess}}
		p.job(2, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleNone} })
		for i, parent := range slices.Clone(p.Runs) { // each shard, as if it were the last
			r := p.run(2, at(20+float64(i)))
			r.Cause, r.Parent = domain.CauseChild, parent.Broadcast
		}
		rejects(t, &p, RuleChild)
	})
}

func TestRejectsChains(t *testing.T) {
	t.Parallel()
	t.Run("too soon", func(t *testing.T) {
		t.Parallel()
		var p planted
		p.chain(1, 1.9)
		rejects(t, &p, RuleChain)
	})
	t.Run("broken", func(t *testing.T) {
		t.Parallel()
		var p planted
		p.chain(1, 2.3)
		p.Versions = p.Versions[:1]
		p.Versions[0].To = time.Time{}
		p.job(2, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleNone} })
		r := p.run(2, at(300)) // the history goes on for minutes
		r.Cause = domain.CauseAPI
		rejects(t, &p, RuleChain)
	})
}

// The entries of a ledger are matched with the fire times so that as many as possible find a place.
func TestMatching(t *testing.T) {
	t.Parallel()
	drops := []*Drop{
		{First: at(1), Last: at(9), Count: 1},
		{First: at(2), Last: at(4), Count: 2},
	}
	var points []int64
	for _, s := range []float64{2, 3, 4} {
		points = append(points, at(s).UnixMilli())
	}
	if got := left(points, drops); len(got) != 0 {
		t.Errorf("%d find no place, and the wide entry has one", len(got))
	}
	if got := left(append(points, at(5).UnixMilli()), drops); len(got) != 1 {
		t.Errorf("%d of four find no place among three", len(got))
	}
}

func TestCronTimes(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"* * * * * *":          "[0 1 2 3 4 5 6 7 8 9]",
		"*/4 * * * * *":        "[0 4 8]",
		"1/4 * * * * ?":        "[1 5 9]",
		"0,7,2-3 * * * * *":    "[0 2 3 7]",
		"2-8/3 * * * * *":      "[2 5 8]",
		"3 */2 * * * *":        "[3]",
		"3 1-59/2 * * * *":     "[]",
		"* * 3 * * *":          "error",
		"* * * * *":            "error",
		"61 * * * * *":         "error",
		"5-2 * * * * *":        "error",
		"*/0 * * * * *":        "error",
		"nonsense * * * * *":   "error",
		"5-nonsense * * * * *": "error",
	} {
		times, err := cronTimes(expr, epoch.UnixMilli(), at(9.9).UnixMilli())
		seconds := make([]int64, len(times))
		for i, ms := range times {
			seconds[i] = (ms - epoch.UnixMilli()) / 1000
		}
		got := fmt.Sprint(seconds)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s fires at %s (%v), want %s", expr, got, err, want)
		}
	}
}

// What is written is read again, also where the process was killed between a start and its end.
func TestNotes(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	for i, run := range []string{"a", "b", "a"} {
		if err := WriteStart(&file, run, 1, "boot", at(float64(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteEnd(&file, "a", 1, "boot", at(5), OK); err != nil {
		t.Fatal(err)
	}
	notes, err := ReadNotes(&file, "i1")
	if err != nil {
		t.Fatal(err)
	}
	if len(notes) != 3 || notes[2].Outcome != OK || !notes[2].End.Equal(at(5)) || !notes[1].End.IsZero() || notes[0].Instance != "i1" {
		t.Errorf("read %+v", notes)
	}
	for _, bad := range []string{"nonsense", "E a 1 boot 5 ok", "S a x boot 5", "S a 1 boot y"} {
		if _, err := ReadNotes(strings.NewReader(bad+"\n"), "i1"); err == nil {
			t.Errorf("%q is read as a note", bad)
		}
	}
}

// The pictures show what there is.
func TestPictures(t *testing.T) {
	t.Parallel()
	var p planted
	p.job(1, nil)
	p.served(1)
	p.remove(1, 3)
	p.drop(1, 3, 3, 1, domain.MisfireSkip)
	p.Faults = append(p.Faults, Fault{Kind: "kill executor", Target: "i1", From: at(3), To: at(4)})
	span := Span{epoch, at(10)}
	text, svg := Picture(&p.History, span), SVG(&p.History, span)
	if !strings.Contains(text, "i1") || !strings.Contains(text, "#") {
		t.Errorf("the text shows no fault:\n%s", text)
	}
	for _, want := range []string{"<svg", "kill executor", "#7fb069", "#9aa5b1", "</svg>"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture lacks %s", want)
		}
	}
	report := Check(&p.History).Markdown("Fault test", 7, text)
	for _, want := range []string{"every promise was kept", "Seed 7", "| kill executor | 1 |", "fire times in the missed ledger | 1"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}
