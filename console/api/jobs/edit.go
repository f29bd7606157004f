package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
)

func (a *API) replace(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.Conditional
	rest.JSONBody
	rest.Reader
}) (*versioned, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	return a.edit(ctx, id, in.ID, in.Conditional, &in.Reader, in.RawBody, func(_ domain.JobSpec, sent json.RawMessage) (json.RawMessage, error) {
		return sent, nil
	})
}

func (a *API) patch(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.Conditional
	rest.JSONBody
	rest.Reader
}) (*versioned, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	return a.edit(ctx, id, in.ID, in.Conditional, &in.Reader, in.RawBody, func(now domain.JobSpec, sent json.RawMessage) (json.RawMessage, error) {
		if now.Script != nil { // a remark belongs to one version of the script
			bare := *now.Script
			bare.Remark = ""
			now.Script = &bare
		}
		doc, err := json.Marshal(now)
		if err != nil {
			return nil, fmt.Errorf("encode the current job: %w", err)
		}
		return strict.MergePatch(doc, sent), nil
	})
}

// edit changes a job. next returns the new document from the current spec and the client's document. edit checks the shape of
// the client's document first, so that a null for an unknown field is refused too.
func (a *API) edit(ctx context.Context, id auth.Identity, job domain.JobID, c rest.Conditional, r *rest.Reader, sent json.RawMessage,
	next func(now domain.JobSpec, sent json.RawMessage) (json.RawMessage, error)) (*versioned, error) {
	present, err := a.Visible.Job(ctx, id, job)
	if err != nil {
		return nil, err
	}
	var asked domain.Job
	sound, err := strict.Decode(sent, &asked)
	if err != nil && sound == nil {
		return nil, err // the body is not JSON
	}
	if err != nil {
		spec, _ := edited(present.JobSpec, sound, next)
		return nil, strict.AlsoFaulty(err, CheckSpec(a.Zone, err, spec))
	}
	version, err := rest.OneVersion(c, asked.Version)
	if err != nil {
		return nil, err
	}
	if err := strict.SameID(asked.ID, job, "job"); err != nil {
		return nil, err
	}
	if err := a.checkChildren(ctx, id, asked.Children); err != nil {
		return nil, err
	}
	if planned, err := edited(present.JobSpec, sent, next); err == nil { // the store reports another error
		if err := CheckChannels(ctx, a.Channels, id, &present.JobSpec, planned); err != nil {
			return nil, err
		}
	}
	before, after, err := a.Store.EditJob(ctx, job, version, id.Actor(), func(spec *domain.JobSpec) error {
		if err := visible.Check(id, spec.Group, visible.NoJob); err != nil { // the job may have moved to another group meanwhile
			return err
		}
		if spec.Group != present.Group || !slices.Equal(spec.Alert.Channels, present.Alert.Channels) { // CheckChannels has seen the others
			return domain.NewError(domain.Conflict, "the job has changed meanwhile; try again")
		}
		changed, err := edited(*spec, sent, next)
		if err != nil {
			return err
		}
		if !id.Sees(changed.Group) && domain.ValidGroupName(changed.Group) {
			return visible.UnknownGroup(changed.Group)
		}
		if err := Unmask(&changed, spec); err != nil {
			return err
		}
		*spec = changed
		return nil
	})
	if err != nil {
		return nil, err
	}
	if before.Version != after.Version { // an edit without a change makes no version
		a.Audit.Record(ctx, id, "job.update", rest.JobObject(job), before, after)
	}
	return a.answer(after, r), nil
}

// edited calls next and returns the spec in its document, with defaults for absent fields.
func edited(now domain.JobSpec, sent json.RawMessage,
	next func(domain.JobSpec, json.RawMessage) (json.RawMessage, error)) (domain.JobSpec, error) {
	j := domain.Job{JobSpec: domain.DefaultJobSpec()}
	doc, err := next(now, sent)
	if err == nil {
		_, err = strict.Decode(doc, &j)
	}
	return j.JobSpec, err
}
