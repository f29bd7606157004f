package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/trace"
)

type triggerBody struct {
	Param    *string         `json:"param,omitempty" doc:"Default: the job's param"`
	Instance string          `json:"instance,omitempty" doc:"The only instance that may run the job"`
	FireTime *domain.Instant `json:"fire_time,omitempty" doc:"The nominal instant that the handler sees; default: now"`
}

func (a *API) trigger(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.JSONBody
	Traceparent string `header:"traceparent" doc:"The W3C trace context that the run continues. It is ignored if it is not valid"`
}) (*rest.Output[rest.Accepted], error) {
	j, err := a.Visible.Job(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	var b triggerBody
	if len(in.RawBody) > 0 {
		err = in.Decode(&b)
	}
	if err := strict.AlsoFaulty(err, a.checkTrigger(&j.JobSpec, b)); err != nil {
		return nil, err
	}
	if b.Param != nil {
		param, err := domain.Unmask("param", *b.Param, j.Param)
		if err != nil {
			return nil, err
		}
		b.Param = &param
	}
	t := domain.Trigger{Param: b.Param, Instance: b.Instance, Cause: domain.CauseAPI, Trace: trace.Continue(in.Traceparent)}
	if id.Interactive() {
		t.Cause = domain.CauseManual
	}
	if b.FireTime != nil {
		t.FireTime = &b.FireTime.Time
	}
	runs, err := a.Store.Trigger(ctx, in.ID, t)
	if err != nil {
		return nil, err
	}
	answer := rest.Accepted{RunIDs: append([]domain.RunID{}, runs...)}
	a.Audit.Record(ctx, id, "job.trigger", rest.JobObject(in.ID), nil, answer)
	return rest.Answer(answer), nil
}

func (a *API) checkTrigger(job *domain.JobSpec, b triggerBody) error {
	var f domain.Faults
	CheckTrigger(&f, a.Instances, job, b.Param, b.Instance)
	return f.Err("the trigger is not valid")
}

// CheckTrigger refuses a param that is too long or has a NUL, and an instance that is not live or cannot run the job. A nil
// param and an empty instance are absent.
func CheckTrigger(f *domain.Faults, fleet Instances, job *domain.JobSpec, param *string, instance string) {
	switch {
	case param == nil:
	case len(*param) > domain.MaxParamBytes:
		f.Add("param", fmt.Sprintf("is %d bytes long; at most %d are allowed", len(*param), domain.MaxParamBytes))
	case strings.ContainsRune(*param, 0):
		f.Add("param", "must not have a NUL")
	}
	if instance != "" {
		checkInstance(f, fleet, job, instance)
	}
}

// checkInstance refuses an instance that is not live or cannot run the job. A run for such an instance would wait until the
// start deadline, and all runs of a serial job would wait behind it.
func checkInstance(f *domain.Faults, fleet Instances, job *domain.JobSpec, instance string) {
	const most = 10
	all := fleet.Instances(job.Group)
	if at := slices.IndexFunc(all, func(i domain.Instance) bool { return i.ID == instance }); at >= 0 {
		if !all[at].Offers(job.Target()) {
			f.Add("instance", fmt.Sprintf("%s is live, but does not offer %s", instance, job.Target()))
		} else if all[at].Draining {
			f.Add("instance", instance+" is draining and takes no new runs")
		}
		return
	}
	live := rest.Each(all, func(i domain.Instance) string { return i.ID })
	slices.Sort(live)
	text := fmt.Sprintf("group %s has no live instance %q; ", job.Group, problem.Clip(instance))
	switch n := len(live); {
	case n == 0:
		text += "none is live"
	case n > most:
		text += fmt.Sprintf("live are %s and %d more", strings.Join(live[:most], ", "), n-most)
	default:
		text += "live: " + strings.Join(live, ", ")
	}
	f.Add("instance", text)
}
