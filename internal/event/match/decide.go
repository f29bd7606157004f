package match

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
)

// Compiled is a compiled event trigger.
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

// Compile compiles a stored trigger. Stored triggers have passed Check, but perhaps in another version of Belfry. If this
// version finds faults, the trigger's deliveries report them.
func Compile(id int64, version int, spec *event.TriggerSpec) *Compiled {
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

// Check validates a trigger. The error names each faulty field.
func Check(spec *event.TriggerSpec) error {
	var f domain.Faults
	if !event.ValidPattern(spec.Name) {
		f.Add("name", event.PatternRule)
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

// eventCost is the budget of all triggers of one message together, in the unit of costMax. It is enough to evaluate MaxTriggers
// triggers at level little and some expensive ones. It takes half a second on a slow machine.
const eventCost = 1_200_000

// overhead is the fixed cost of evaluating a trigger.
const overhead = 10

// Decide returns the delivery of each trigger for an event, and the runs that the event causes. The caller passes the triggers
// whose pattern matches, ordered by id. An event fires each job at most once: only the first trigger of the job whose filter
// accepts the event fires it.
//
// All triggers together have a bounded cost, so that every event can be accepted. Cheap triggers are evaluated first, whatever
// their ids. When the budget is used up, the remaining triggers are not evaluated, and their deliveries say so.
func Decide(ctx context.Context, v *View, triggers []*Compiled) ([]event.Delivery, []event.Run) {
	judgements := judge(ctx, v, triggers)
	deliveries := make([]event.Delivery, 0, len(triggers))
	var runs []event.Run
	fired := make(map[domain.JobID]bool)
	for i, t := range triggers {
		d := event.Delivery{TriggerID: t.ID, Name: t.Name, JobID: t.JobID, Group: t.Group, Outcome: judgements[i].outcome, Why: judgements[i].why}
		switch {
		case d.Outcome == event.DeliveryFired && fired[t.JobID]:
			d.Outcome, d.Why = event.DeliveryRepeated, "another trigger of the job fired it for this event"
		case d.Outcome == event.DeliveryFired:
			fired[t.JobID] = true
			id := domain.EventRunID(v.id, t.ID)
			d.RunID = &id
			runs = append(runs, event.Run{RunID: id, EventID: v.id, JobID: t.JobID, Param: judgements[i].param, Trace: v.in.Trace})
		}
		deliveries = append(deliveries, d)
	}
	return deliveries, runs
}

// judgement is the result of one trigger, regardless of the other triggers.
type judgement struct {
	outcome    event.DeliveryOutcome
	why, param string
}

// judge evaluates all triggers at the lowest effort level, then those that exceeded it at the next ones, until eventCost is used
// up.
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
				judgements[i] = judgement{event.DeliveryOverBudget, "the event's triggers together cost too much; this one was not evaluated to the end", ""}
				continue
			}
			j, cost, err := triggers[i].judge(ctx, v, e)
			spent += cost + overhead
			switch {
			case ctx.Err() != nil && j.outcome != event.DeliveryFired:
				j = judgement{event.DeliveryOverBudget, "the event's triggers together took too long; this one was not evaluated to the end", ""}
			case err != nil:
				costly = append(costly, i)
			}
			judgements[i] = j
		}
		waiting = costly
	}
	return judgements
}

// judge evaluates the trigger at one effort level and returns the cost. The error is errCostly if a higher level may succeed.
func (t *Compiled) judge(ctx context.Context, v *View, e effort) (j judgement, cost uint64, err error) {
	if !t.Enabled {
		return judgement{event.DeliveryDisabled, "the trigger is disabled", ""}, 0, nil
	}
	if t.filterFault != "" {
		return judgement{event.DeliveryFilterError, "its filter no longer compiles: " + t.filterFault, ""}, 0, nil
	}
	pass, cost, err := t.filter.pass(ctx, v, e)
	switch {
	case errors.Is(err, errCostly):
		return judgement{}, cost, err
	case err != nil:
		return judgement{event.DeliveryFilterError, "its filter failed: " + brief(err), ""}, cost, nil
	case !pass:
		return judgement{event.DeliveryFiltered, "its filter said false", ""}, cost, nil
	case t.paramFault != "":
		return judgement{event.DeliveryParamError, "its param no longer compiles: " + t.paramFault, ""}, cost, nil
	}
	param, more, err := t.param.render(ctx, v, e)
	cost += more
	switch {
	case errors.Is(err, errCostly):
		return judgement{}, cost, err
	case err != nil:
		return judgement{event.DeliveryParamError, "its param: " + brief(err), ""}, cost, nil
	}
	return judgement{event.DeliveryFired, "", param}, cost, nil
}

// brief returns the text of an error in a form that Postgres can store: shortened, as valid UTF-8 without NUL. The error may
// quote the event's data.
func brief(err error) string {
	const most = 500
	text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
