package event

import (
	"context"
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
)

// Trigger is a compiled event trigger.
type Trigger struct {
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
func Compile(id int64, version int, spec *domain.EventTriggerSpec) *Trigger {
	t := &Trigger{ID: id, Version: version, Name: spec.Name, JobID: spec.JobID, Enabled: spec.Enabled}
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
func Check(spec *domain.EventTriggerSpec) error {
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

// Decide says what each trigger makes of an event, and which runs that makes. The triggers are those whose pattern
// matches, in the order of their ids. A job is fired once: by the first trigger that lets the event pass.
func Decide(ctx context.Context, v *View, triggers []*Trigger) ([]domain.Delivery, []domain.EventRun) {
	deliveries := make([]domain.Delivery, 0, len(triggers))
	var runs []domain.EventRun
	fired := make(map[domain.JobID]bool)
	for _, t := range triggers {
		d := domain.Delivery{TriggerID: t.ID, Name: t.Name, JobID: t.JobID, Group: t.Group}
		var param string
		switch d.Outcome, d.Why, param = t.judge(ctx, v); {
		case d.Outcome == domain.DeliveryFired && fired[t.JobID]:
			d.Outcome, d.Why = domain.DeliveryRepeated, "another trigger of the job fired it for this event"
		case d.Outcome == domain.DeliveryFired:
			fired[t.JobID] = true
			id := domain.EventRunID(v.id, t.ID)
			d.RunID = &id
			runs = append(runs, domain.EventRun{RunID: id, EventID: v.id, JobID: t.JobID, Param: param})
		}
		deliveries = append(deliveries, d)
	}
	return deliveries, runs
}

func (t *Trigger) judge(ctx context.Context, v *View) (outcome domain.DeliveryOutcome, why, param string) {
	if !t.Enabled {
		return domain.DeliveryDisabled, "the trigger is disabled", ""
	}
	if t.filterFault != "" {
		return domain.DeliveryFilterError, "its filter no longer compiles: " + t.filterFault, ""
	}
	pass, err := t.filter.Pass(ctx, v)
	switch {
	case err != nil:
		return domain.DeliveryFilterError, "its filter failed: " + brief(err), ""
	case !pass:
		return domain.DeliveryFiltered, "its filter said false", ""
	case t.paramFault != "":
		return domain.DeliveryParamError, "its param no longer compiles: " + t.paramFault, ""
	}
	if param, err = t.param.Render(ctx, v); err != nil {
		return domain.DeliveryParamError, "its param: " + brief(err), ""
	}
	return domain.DeliveryFired, "", param
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
