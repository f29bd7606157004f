package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// engineMessages checks the message of each end that the store decides about, and of ends that have two parts.
func engineMessages(t *testing.T, s *suite) {
	kill := func(run domain.RunID) {
		t.Helper()
		_, err := s.Kill.RequestKill(t.Context(), run, domain.ReasonKilled, "ann")
		s.must(err)
	}
	bound := s.job("bound", parallel)
	start := func() engine.LiveRun { return s.start(bound.ID, "i1") }
	// says checks the message and the codes and arguments of its parts.
	says := func(job domain.Job, run domain.RunID, message, parts string) {
		t.Helper()
		r := s.run(job.ID, run)
		equal(t, "the message", r.Message, message)
		got := ""
		for _, p := range r.Notes.Parts(r.Message) {
			if got += string(p.Code); p.Code == explain.Text {
				p.Args = explain.Args{"": p.Text}
			}
			for _, v := range p.Args {
				got += fmt.Sprintf("(%v)", v)
			}
			got += " "
		}
		equal(t, "the parts of "+message, got, parts)
	}

	discarding := s.job("discards", discardLater)
	owner := s.start(discarding.ID, "i1")
	late := s.trigger(discarding.ID, 1)[0]
	s.admit(s.claim(), "i1")
	says(discarding, late, "run "+owner.ID.String()+" of the job was unfinished when this one came due", "earlier_unfinished("+owner.ID.String()+") ")

	covering := s.job("covers", coverEarly)
	covered := s.start(covering.ID, "i1")
	s.Advance(t, time.Second)
	held := s.trigger(covering.ID, 1)[0]
	s.admit(s.claim(), "i1")
	s.Advance(t, time.Second)
	last := s.trigger(covering.ID, 1)[0]
	s.admit(s.claim(), "i1")
	says(covering, held, "run "+last.String()+" of the job covers it", "covered_by("+last.String()+") ")
	e := s.result(covered, domain.OutcomeCancelled)
	e.Message = "context canceled"
	s.settle(engine.Settled, e)
	says(covering, covered.ID, "run "+held.String()+" of the job covers it: context canceled", "covered_by("+held.String()+") text(context canceled) ")

	deleted := s.job("deleted")
	planned := s.trigger(deleted.ID, 1)[0]
	kill(s.trigger(bound.ID, 1)[0])
	killed := s.trigger(bound.ID, 1)[0]
	kill(killed)
	says(bound, killed, "killed by ann", "killed_by(ann) ")
	_, err := s.Jobs.DeleteJob(t.Context(), deleted.ID, 0, "test")
	s.must(err)
	says(deleted, planned, "the job was deleted", "job_deleted ")

	for _, c := range []struct {
		name           string
		killed         bool
		end            func(engine.LiveRun) engine.Ended
		message, parts string
	}{
		{"the handler's words", false, func(r engine.LiveRun) engine.Ended {
			e := s.result(r, domain.OutcomeFailed)
			e.Message = "instance i1 died"
			return e
		}, "instance i1 died", ""},
		{"no words", false, func(r engine.LiveRun) engine.Ended { return s.result(r, domain.OutcomeSucceeded) }, "", ""},
		{"lost", false, s.lost, "instance i1 died", "instance_died(i1) "},
		{"killed and lost", true, s.lost, "killed by ann: instance i1 died", "killed_by(ann) instance_died(i1) "},
		{"killed without a word", true, func(r engine.LiveRun) engine.Ended { return s.result(r, domain.OutcomeCancelled) }, "killed by ann", "killed_by(ann) "},
		{"killed too late", true, func(r engine.LiveRun) engine.Ended {
			e := s.result(r, domain.OutcomeSucceeded)
			e.Message = "done: all of it"
			return e
		}, "done: all of it", ""},
		{"a success that Postgres refused", false, func(r engine.LiveRun) engine.Ended {
			e := s.result(r, domain.OutcomeSucceeded)
			e.Why = explain.Of(explain.ResultRefused)
			return e
		}, "its result could not be stored; it is among the dead letters", "result_refused "},
	} {
		run := start()
		if c.killed {
			kill(run.ID)
		}
		s.settle(engine.Settled, c.end(run))
		says(bound, run.ID, c.message, c.parts)
	}

	// While a run waits for its retry, it shows the message of the attempt. The message of the next attempt replaces it.
	retrying := s.job("retries", parallel, retries(1))
	run := s.start(retrying.ID, "i1")
	s.settle(engine.Settled, s.lost(run))
	says(retrying, run.ID, "instance i1 died", "instance_died(i1) ")
	_, err = s.Replan(t.Context(), []domain.RunID{run.ID}, []int{1})
	s.must(err)
	e = s.result(s.one(s.admit(s.claim(), "i2").Bound), domain.OutcomeFailed)
	e.Message = "exit status 3"
	s.settle(engine.Settled, e)
	says(retrying, run.ID, "exit status 3", "")
}
