package event

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// Compiled is an event trigger, compiled.
type Compiled struct {
	ID      int64
	Version int
	Name    string // the pattern
	JobID   domain.JobID
	Group   string
	Enabled bool

	filter      *Filter
	filterFault string
	param       *Param
	paramFault  string
}

// Compile compiles a trigger that was stored, so that it was sound once: should this version of Belfry see faults in it,
// they become the outcome of its deliveries.
func Compile(id int64, version int, spec *TriggerSpec) *Compiled {
	t := &Compiled{ID: id, Version: version, Name: spec.Name, JobID: spec.JobID, Enabled: spec.Enabled}
	var err error
	if t.filter, err = CompileFilter(spec.Filter); err != nil {
		t.filterFault = err.Error()
	}
	if t.param, err = CompileParam(spec.Param); err != nil {
		t.paramFault = err.Error()
	}
	return t
}

// Check names each faulty field of what a user says of a trigger.
func Check(spec *TriggerSpec) error {
	var f domain.Faults
	if !ValidPattern(spec.Name) {
		f.Add("name", PatternRule)
	}
	if spec.JobID <= 0 {
		f.Add("job_id", "is required")
	}
	if _, err := CompileFilter(spec.Filter); err != nil {
		f.Add("filter", err.Error())
	}
	if _, err := CompileParam(spec.Param); err != nil {
		f.Add("param", err.Error())
	}
	return f.Err("the event trigger is not valid")
}

// eventCost is what all triggers of one message may cost together, in the units of costMax: enough to try MaxTriggers of
// them with little effort, and some costly ones. It takes half a second on a slow machine.
const eventCost = 1_200_000

// overhead is what the evaluation of a trigger costs, however little it computes.
const overhead = 10

// Decide says what each trigger makes of an event, and which runs that makes. The triggers are those whose pattern
// matches, in the order of their ids. A job is fired once: by the first trigger that lets the event pass.
//
// All triggers together are bounded in what they compute, so that an event is always accepted. Those that cost little come
// first, whatever their ids; once the bound is reached, the others are not evaluated any more, and their deliveries say so.
func Decide(ctx context.Context, v *View, triggers []*Compiled) ([]Delivery, []Run) {
	judgements := judge(ctx, v, triggers)
	deliveries := make([]Delivery, 0, len(triggers))
	var runs []Run
	fired := make(map[domain.JobID]bool)
	for i, t := range triggers {
		d := Delivery{TriggerID: t.ID, Name: t.Name, JobID: t.JobID, Group: t.Group, Outcome: judgements[i].outcome, Why: judgements[i].why}
		switch {
		case d.Outcome == DeliveryFired && fired[t.JobID]:
			d.Outcome, d.Why = DeliveryRepeated, "another trigger of the job fired it for this event"
		case d.Outcome == DeliveryFired:
			fired[t.JobID] = true
			id := domain.EventRunID(v.id, t.ID)
			d.RunID = &id
			runs = append(runs, Run{RunID: id, EventID: v.id, JobID: t.JobID, Param: judgements[i].param})
		}
		deliveries = append(deliveries, d)
	}
	return deliveries, runs
}

// judgement is what a trigger makes of an event, seen by itself.
type judgement struct {
	outcome    DeliveryOutcome
	why, param string
}

// judge evaluates all triggers with little effort, then those that need it with more, until eventCost is used up.
func judge(ctx context.Context, v *View, triggers []*Compiled) []judgement {
	share := max(1, v.in.Batch)
	budget := uint64(eventCost / share)
	ctx, cancel := context.WithTimeout(ctx, evalMax/time.Duration(share))
	defer cancel()
	judgements := make([]judgement, len(triggers))
	waiting := make([]int, len(triggers))
	for i := range waiting {
		waiting[i] = i
	}
	spent := uint64(0)
	for e := little; e < efforts; e++ {
		var costly []int
		for _, i := range waiting {
			if spent >= budget {
				judgements[i] = judgement{DeliveryOverBudget, "the event's triggers together cost too much; this one was not evaluated to the end", ""}
				continue
			}
			j, cost, err := triggers[i].judge(ctx, v, e)
			spent += cost + overhead
			switch {
			case ctx.Err() != nil && j.outcome != DeliveryFired:
				j = judgement{DeliveryOverBudget, "the event's triggers together took too long; this one was not evaluated to the end", ""}
			case err != nil:
				costly = append(costly, i)
			}
			judgements[i] = j
		}
		waiting = costly
	}
	return judgements
}

// judge evaluates the trigger with some effort and says what that cost. The error is errCostly if more effort may do.
func (t *Compiled) judge(ctx context.Context, v *View, e effort) (j judgement, cost uint64, err error) {
	if !t.Enabled {
		return judgement{DeliveryDisabled, "the trigger is disabled", ""}, 0, nil
	}
	if t.filterFault != "" {
		return judgement{DeliveryFilterError, "its filter no longer compiles: " + t.filterFault, ""}, 0, nil
	}
	pass, cost, err := t.filter.pass(ctx, v, e)
	switch {
	case errors.Is(err, errCostly):
		return judgement{}, cost, err
	case err != nil:
		return judgement{DeliveryFilterError, "its filter failed: " + brief(err), ""}, cost, nil
	case !pass:
		return judgement{DeliveryFiltered, "its filter said false", ""}, cost, nil
	case t.paramFault != "":
		return judgement{DeliveryParamError, "its param no longer compiles: " + t.paramFault, ""}, cost, nil
	}
	param, more, err := t.param.render(ctx, v, e)
	cost += more
	switch {
	case errors.Is(err, errCostly):
		return judgement{}, cost, err
	case err != nil:
		return judgement{DeliveryParamError, "its param: " + brief(err), ""}, cost, nil
	}
	return judgement{DeliveryFired, "", param}, cost, nil
}

// brief bounds an error that may repeat what somebody sent, and makes it fit to be stored.
func brief(err error) string {
	const most = 500
	text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
