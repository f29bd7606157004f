package runs

import (
	"context"

	"github.com/belfryhq/belfry/console/api/jobs"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
)

type retryBody struct {
	Param    *string `json:"param,omitempty" doc:"Default: the run's own param; if it had none, the job's current param"`
	Instance string  `json:"instance,omitempty" doc:"The only instance that may run it; default: as the job's route decides, or for a shard of a broadcast to all instances, the instance of the shard"`
}

// Retry plans a new run for a final one. If its job now belongs to a group that the caller may not see, the error is Conflict.
func Retry(ctx context.Context, jobs Jobs, id auth.Identity, old *domain.Run) (domain.RunID, error) {
	if _, err := jobOf(ctx, jobs, id, old); err != nil && domain.CodeOf(err) != domain.NotFound {
		return domain.NilRunID, err
	}
	return jobs.RetryRun(ctx, old.ID, id.Actor())
}

// jobOf returns the job of the run that the caller retries. Conflict: the caller may not see the job. NotFound: it is deleted.
func jobOf(ctx context.Context, jobs Jobs, id auth.Identity, old *domain.Run) (domain.Job, error) {
	job, err := jobs.Job(ctx, old.JobID)
	if err == nil && !id.Sees(job.Group) {
		return domain.Job{}, domain.NewError(domain.Conflict, "the run's job is gone")
	}
	return job, err
}

func (a *API) retry(ctx context.Context, id auth.Identity, in *struct {
	rest.RunPath
	rest.JSONBody
}) (*rest.Output[rest.Accepted], error) {
	old, err := a.read(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	var b retryBody
	if len(in.RawBody) > 0 {
		err = in.Decode(&b)
	}
	retry, checked := a.checkRetry(ctx, id, &old, b)
	if err := strict.AlsoFaulty(err, checked); err != nil {
		return nil, err
	}
	run, err := a.Jobs.RetryRunWith(ctx, in.ID, id.Actor(), retry)
	if err != nil {
		return nil, err
	}
	answer := rest.Accepted{RunIDs: []domain.RunID{run}}
	before, after := changes(&old, retry, answer)
	a.Audit.Record(ctx, id, "run.retry", "run/"+in.ID.String(), before, after)
	return rest.Answer(answer), nil
}

// checkRetry returns the retry that the body asks for, and names its faults.
func (a *API) checkRetry(ctx context.Context, id auth.Identity, old *domain.Run, b retryBody) (domain.Retry, error) {
	retry := domain.Retry{Instance: b.Instance}
	job, err := jobOf(ctx, a.Jobs, id, old)
	switch {
	case domain.CodeOf(err) == domain.NotFound:
		return retry, nil // the store refuses the retry
	case err != nil:
		return retry, err
	case !old.State.Final():
		return retry, nil // the same
	}
	var f domain.Faults
	jobs.CheckTrigger(&f, a.Instances, &job.JobSpec, b.Param, b.Instance)
	if err := f.Err("the retry is not valid"); err != nil || b.Param == nil {
		return retry, err
	}
	param, err := domain.Unmask("param", *b.Param, old.Param)
	retry.Param = &param
	return retry, err
}

// changes returns the audit entry of a retry: the new run, and each value that differs from the old run.
func changes(old *domain.Run, retry domain.Retry, answer rest.Accepted) (before, after map[string]any) {
	before, after = map[string]any{}, map[string]any{"run_ids": answer.RunIDs}
	if retry.Param != nil && *retry.Param != old.Param {
		before["param"], after["param"] = old.Param, *retry.Param
	}
	if retry.Instance != "" {
		before["instance"], after["instance"] = old.Instance, retry.Instance
	}
	return before, after
}
