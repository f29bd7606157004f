// Package scripts is the REST API of the versions of a job's script.
package scripts

import (
	"context"
	"fmt"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// API serves script versions. All fields must be set.
type API struct {
	Jobs    Jobs
	Store   Store
	Visible *visible.Reader
	Audit   *rest.Audit
}

// Jobs changes jobs. A new script is an edit of its job.
type Jobs interface {
	EditJob(ctx context.Context, id domain.JobID, version int, by string, edit func(*domain.JobSpec) error) (before, after domain.Job, err error)
}

// Store reads script versions.
type Store interface {
	ScriptVersions(ctx context.Context, job domain.JobID, before, limit int) ([]domain.ScriptVersion, error)
	ScriptVersion(ctx context.Context, job domain.JobID, version int) (domain.ScriptVersion, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Jobs"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/jobs/{id}/scripts", Tag: tag, Summary: "List the versions of a job's script, newest first",
		Description: "The list leaves out the code.", Needs: account.Viewer}, a.list)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/jobs/{id}/scripts", Tag: tag, Summary: "Save a new version of a job's script", Needs: account.Operator,
		Description: "This is an edit of the job, and its next run uses the new version. A PUT or PATCH of the job that changes the script also makes a version. " +
			"If neither the code nor the remark changes, no version is made. The job must already have a script. To replace a handler by a script, " +
			"PATCH the job with handler null and the script.",
		Status: 201, Body: rest.BodyOf[scriptBody]()}, a.save)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/jobs/{id}/scripts/{version}", Tag: tag, Summary: "Show a version of a job's script", Needs: account.Viewer}, a.show)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/jobs/{id}/scripts/{version}/restore", Tag: tag, Summary: "Restore an old version of a job's script",
		Description: "Saves a new version with the same code. If the newest version has that code already, no version is made.", Needs: account.Operator,
		Status: 201, Body: rest.BodyOf[restoreBody](), BodyOptional: true}, a.restore)
}

const noScript = "the job's script has no such version"

// ScriptPath names a version of a job's script in the path.
type ScriptPath struct {
	rest.JobPath
	Version int `path:"version" minimum:"1"`
}

func (a *API) list(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.List
}) (*rest.Output[rest.Page[domain.ScriptVersion]], error) {
	before, err := rest.DecodeNumberCursor("script", in.Cursor)
	if err != nil {
		return nil, err
	}
	if _, err := a.Visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	versions, err := a.Store.ScriptVersions(ctx, in.ID, int(min(before, 1<<31-1)), in.Limit+1)
	if err != nil {
		return nil, err
	}
	return rest.Answer(rest.Cut(versions, in.Limit, func(v domain.ScriptVersion) string { return rest.NumberCursor("script", int64(v.Version)) })), nil
}

func (a *API) show(ctx context.Context, id auth.Identity, in *struct {
	ScriptPath
	Diff int `query:"diff" minimum:"1" maximum:"2147483647" doc:"Also show the changes since this version, as a unified diff"`
}) (*rest.Output[domain.ScriptVersion], error) {
	if _, err := a.Visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	v, err := a.version(ctx, in.ID, in.Version)
	if err != nil || in.Diff == 0 {
		return rest.Answer(v), err
	}
	from, err := a.version(ctx, in.ID, in.Diff)
	if domain.CodeOf(err) == domain.NotFound && err != nil {
		return nil, problem.Invalid("diff", noScript)
	}
	if err != nil {
		return nil, err
	}
	before, after := from.Code, v.Code
	if rest.HidesSecrets(id) { // a change of a secret is not shown either
		before, after = domain.Mask(before), domain.Mask(after)
	}
	text := string(diff.Diff(diffName(from), []byte(before), diffName(v), []byte(after)))
	v.Diff, v.DiffFrom = &text, in.Diff
	return rest.Answer(v), nil
}

func diffName(v domain.ScriptVersion) string {
	return fmt.Sprintf("version %d (%s)", v.Version, v.Language)
}

// version reads a version. A number that the database cannot store is NotFound.
func (a *API) version(ctx context.Context, job domain.JobID, version int) (domain.ScriptVersion, error) {
	if version > 1<<31-1 {
		return domain.ScriptVersion{}, domain.NewError(domain.NotFound, noScript)
	}
	v, err := a.Store.ScriptVersion(ctx, job, version)
	if domain.CodeOf(err) == domain.NotFound && err != nil {
		return v, domain.WrapError(domain.NotFound, noScript, err)
	}
	return v, err
}

type scriptBody struct {
	Language string `json:"language" enum:"bash,sh,python,node,php,powershell,go"`
	Code     string `json:"code" doc:"Up to 256 KiB"`
	Remark   string `json:"remark,omitempty" doc:"Up to 1024 characters about this version"`
}

func (a *API) save(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.Conditional
	rest.JSONBody
}) (*rest.Output[domain.ScriptVersion], error) {
	job, err := a.Visible.Job(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	var b scriptBody
	shape := in.Decode(&b)
	script := domain.Script{Language: b.Language, Code: b.Code, Remark: b.Remark}
	if err := strict.AlsoFaulty(shape, script.Validate()); err != nil {
		return nil, err
	}
	stored := ""
	if job.Script != nil {
		stored = job.Script.Code
	}
	if script.Code, err = domain.Unmask("code", script.Code, stored); err != nil {
		return nil, err
	}
	return a.change(ctx, id, in.ID, in.Conditional, "script.save", func(domain.Script) domain.Script { return script })
}

type restoreBody struct {
	Remark string `json:"remark,omitempty" doc:"A remark about the new version. Default: the number of the restored version"`
}

func (a *API) restore(ctx context.Context, id auth.Identity, in *struct {
	ScriptPath
	rest.Conditional
	rest.JSONBody
}) (*rest.Output[domain.ScriptVersion], error) {
	if _, err := a.Visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	var b restoreBody
	if len(in.RawBody) > 0 {
		if err := in.Decode(&b); err != nil {
			return nil, err
		}
	}
	old, err := a.version(ctx, in.ID, in.Version)
	if err != nil {
		return nil, err
	}
	if b.Remark == "" {
		b.Remark = fmt.Sprintf("version %d restored", old.Version)
	}
	restored := domain.Script{Language: old.Language, Code: old.Code, Remark: b.Remark}
	if err := restored.Validate(); err != nil {
		return nil, err
	}
	return a.change(ctx, id, in.ID, in.Conditional, "script.restore", func(now domain.Script) domain.Script {
		if now.Language == old.Language && now.Code == old.Code {
			return now
		}
		return restored
	})
}

// change changes a job's script, and answers its newest version.
func (a *API) change(ctx context.Context, id auth.Identity, job domain.JobID, c rest.Conditional, action string,
	next func(now domain.Script) domain.Script) (*rest.Output[domain.ScriptVersion], error) {
	version, err := c.Match()
	if err != nil {
		return nil, err
	}
	before, after, err := a.Jobs.EditJob(ctx, job, version, id.Actor(), func(spec *domain.JobSpec) error {
		if err := visible.Check(id, spec.Group, visible.NoJob); err != nil { // the job may have moved to another group meanwhile
			return err
		}
		if spec.Script == nil {
			return domain.NewError(domain.Conflict, fmt.Sprintf(
				"the job runs the handler %q; to give it a script, change the job itself: handler null and script in one PATCH", problem.Clip(spec.Handler)))
		}
		script := next(*spec.Script)
		spec.Script = &script
		return nil
	})
	if err != nil {
		return nil, err
	}
	if before.Version != after.Version {
		a.Audit.Record(ctx, id, action, rest.JobObject(job), before.Script, after.Script)
	}
	if after.Script == nil { // another edit came in between
		return nil, domain.NewError(domain.Conflict, "the job's script was removed meanwhile")
	}
	v, err := a.version(ctx, job, after.Script.Version)
	return rest.Answer(v), err
}
