package groups

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// WireIDs keeps the ids that jobs have for executors of XXL-JOB.
type WireIDs interface {
	WireIDs(ctx context.Context, group string, after int64, limit int) ([]domain.WireID, error)
	// SetWireID gives an id to a job. Conflict: it belongs to another job, or the job has another one.
	SetWireID(ctx context.Context, group string, w domain.WireID) error
}

func (a *API) registerWireIDs(r *rest.Router, tag string) {
	rest.Register(r, rest.Operation{Method: "GET", Path: "/groups/{name}/wire-ids", Tag: tag, Summary: "List the wire ids of a group's jobs",
		Description: "A wire id is the id that a job has for executors of XXL-JOB. Ordered by wire id. An imported job keeps the id that it had in XXL-JOB.", Needs: account.Viewer}, a.wireIDs)
	rest.Register(r, rest.Operation{Method: "PUT", Path: "/groups/{name}/wire-ids/{wire_id}", Tag: tag, Summary: "Give a wire id to a job of the group",
		Description: "An import uses this to keep the id of XXL-JOB, and to note what it imported. If the id belongs to another job, or the job has another id, the answer is 409.",
		Needs:       account.Operator, Body: rest.BodyOf[wireIDBody]()}, a.setWireID)
}

type wireIDBody struct {
	JobID    domain.JobID `json:"job_id" doc:"A job of the group"`
	Source   string       `json:"source,omitempty" maxLength:"256" doc:"Where the job was imported from"`
	Imported any          `json:"imported,omitempty" doc:"The job as the import wrote it"`
}

func (a *API) wireIDs(ctx context.Context, id auth.Identity, in *struct {
	GroupPath
	rest.List
}) (*rest.Output[rest.Page[domain.WireID]], error) {
	if _, err := a.Visible.Group(ctx, id, in.Name); err != nil {
		return nil, err
	}
	after, err := rest.DecodeNumberCursor("wire id", in.Cursor)
	if err != nil {
		return nil, err
	}
	found, err := a.Store.WireIDs(ctx, in.Name, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return rest.Answer(rest.Cut(found, in.Limit, func(w domain.WireID) string { return rest.NumberCursor("wire id", w.WireID) })), nil
}

func (a *API) setWireID(ctx context.Context, id auth.Identity, in *struct {
	GroupPath
	WireID int64 `path:"wire_id"`
	rest.JSONBody
}) (*struct{}, error) {
	if _, err := a.Visible.Group(ctx, id, in.Name); err != nil {
		return nil, err
	}
	var b wireIDBody
	shape := in.Decode(&b)
	var f domain.Faults
	if in.WireID < 1 || in.WireID > domain.MaxWireID {
		f.Add("wire_id", fmt.Sprintf("must be 1 to %d", domain.MaxWireID))
	}
	if b.JobID < 1 {
		f.Add("job_id", "is required: a job of the group")
	}
	if len(b.Source) > 256 {
		f.Add("source", "is longer than 256 bytes")
	}
	object, isObject := b.Imported.(map[string]any)
	if b.Imported != nil && !isObject {
		f.Add("imported", "must be a JSON object")
	}
	if err := strict.AlsoFaulty(shape, f.Err("the wire id is not valid")); err != nil {
		return nil, err
	}
	var imported json.RawMessage
	if isObject {
		var err error
		if imported, err = json.Marshal(object); err != nil {
			return nil, fmt.Errorf("encode the imported job: %w", err)
		}
	}
	job, err := a.Visible.Job(ctx, id, b.JobID)
	if err != nil && domain.CodeOf(err) != domain.NotFound {
		return nil, err
	}
	if err != nil || job.Group != in.Name {
		f.Add("job_id", fmt.Sprintf("the group has no job %d", b.JobID))
		return nil, f.Err("the wire id is not valid")
	}
	if err := a.Store.SetWireID(ctx, in.Name, domain.WireID{WireID: in.WireID, JobID: b.JobID, Source: b.Source, Imported: imported}); err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "group.wire_id", "group/"+in.Name, nil, map[string]any{"wire_id": in.WireID, "job_id": b.JobID, "source": b.Source})
	return nil, nil
}
