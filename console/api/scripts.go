package api

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

const noScript = "the job's script has no such version"

// ScriptPath names a version of a job's script in the path.
type ScriptPath struct {
	rest.JobPath
	Version int `path:"version" minimum:"1"`
}

func (a *API) registerScripts() {
	const tag = "Jobs"
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/jobs/{id}/scripts", Tag: tag, Summary: "List the versions of a job's script, newest first",
		Description: "Without their code.", Needs: account.Viewer}, a.scripts)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/jobs/{id}/scripts", Tag: tag, Summary: "Give a job a new version of its script", Needs: account.Operator,
		Description: "An edit of the job, used by its next run; so is a changed script in PUT or PATCH of the job. The same code again, " +
			"without a new remark, makes no version. The job must have a script already: a PATCH with handler null turns a handler into one.",
		Status: 201, Body: rest.BodyOf[scriptBody]()}, a.saveScript)
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/jobs/{id}/scripts/{version}", Tag: tag, Summary: "Show a version of a job's script", Needs: account.Viewer}, a.script)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/jobs/{id}/scripts/{version}/restore", Tag: tag, Summary: "Make an old version of a job's script the newest one",
		Description: "As a new version with the same code. That of the newest one makes none.", Needs: account.Operator,
		Status: 201, Body: rest.BodyOf[restoreBody](), BodyOptional: true}, a.restoreScript)
}

func (a *API) scripts(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.List
}) (*rest.Output[rest.Page[domain.ScriptVersion]], error) {
	before, err := rest.DecodeNumberCursor("script", in.Cursor)
	if err != nil {
		return nil, err
	}
	if _, err := a.visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	versions, err := a.Views.ScriptVersions(ctx, in.ID, int(min(before, 1<<31-1)), in.Limit+1)
	if err != nil {
		return nil, err
	}
	return rest.Answer(rest.Cut(versions, in.Limit, func(v domain.ScriptVersion) string { return rest.NumberCursor("script", int64(v.Version)) })), nil
}

func (a *API) script(ctx context.Context, id auth.Identity, in *struct {
	ScriptPath
	Diff int `query:"diff" minimum:"1" maximum:"2147483647" doc:"Show also what has changed since this version, as a unified diff"`
}) (*rest.Output[domain.ScriptVersion], error) {
	if _, err := a.visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	v, err := a.scriptVersion(ctx, in.ID, in.Version)
	if err != nil || in.Diff == 0 {
		return rest.Answer(v), err
	}
	from, err := a.scriptVersion(ctx, in.ID, in.Diff)
	if domain.CodeOf(err) == domain.NotFound && err != nil {
		return nil, problem.Invalid("diff", noScript)
	}
	if err != nil {
		return nil, err
	}
	text := string(diff.Diff(diffName(from), []byte(from.Code), diffName(v), []byte(v.Code)))
	v.Diff, v.DiffFrom = &text, in.Diff
	return rest.Answer(v), nil
}

func diffName(v domain.ScriptVersion) string {
	return fmt.Sprintf("version %d (%s)", v.Version, v.Language)
}

// scriptVersion reads a version that is asked for; versions beyond the database's numbers are not there.
func (a *API) scriptVersion(ctx context.Context, job domain.JobID, version int) (domain.ScriptVersion, error) {
	if version > 1<<31-1 {
		return domain.ScriptVersion{}, domain.NewError(domain.NotFound, noScript)
	}
	v, err := a.Views.ScriptVersion(ctx, job, version)
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

func (a *API) saveScript(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.Conditional
	rest.JSONBody
}) (*rest.Output[domain.ScriptVersion], error) {
	if _, err := a.visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	var b scriptBody
	shape := in.Decode(&b)
	script := domain.Script{Language: b.Language, Code: b.Code, Remark: b.Remark}
	if err := strict.AlsoFaulty(shape, script.Validate()); err != nil {
		return nil, err
	}
	return a.changeScript(ctx, id, in.ID, in.Conditional, "script.save", func(domain.Script) domain.Script { return script })
}

type restoreBody struct {
	Remark string `json:"remark,omitempty" doc:"About the new version; default: which one was restored"`
}

func (a *API) restoreScript(ctx context.Context, id auth.Identity, in *struct {
	ScriptPath
	rest.Conditional
	rest.JSONBody
}) (*rest.Output[domain.ScriptVersion], error) {
	if _, err := a.visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	var b restoreBody
	if len(in.RawBody) > 0 {
		if err := in.Decode(&b); err != nil {
			return nil, err
		}
	}
	old, err := a.scriptVersion(ctx, in.ID, in.Version)
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
	return a.changeScript(ctx, id, in.ID, in.Conditional, "script.restore", func(now domain.Script) domain.Script {
		if now.Language == old.Language && now.Code == old.Code {
			return now
		}
		return restored
	})
}

// changeScript changes a job's script, and answers the version that it has then.
func (a *API) changeScript(ctx context.Context, id auth.Identity, job domain.JobID, c rest.Conditional, action string,
	next func(now domain.Script) domain.Script) (*rest.Output[domain.ScriptVersion], error) {
	version, err := c.Match()
	if err != nil {
		return nil, err
	}
	before, after, err := a.Engine.EditJob(ctx, job, version, id.Actor(), func(spec *domain.JobSpec) error {
		if err := visible.Check(id, spec.Group, visible.NoJob); err != nil { // it may have moved since it was read
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
		a.audit.Record(ctx, id, action, jobObject(job), before.Script, after.Script)
	}
	if after.Script == nil { // another edit came in between
		return nil, domain.NewError(domain.Conflict, "the job's script was taken away meanwhile")
	}
	v, err := a.scriptVersion(ctx, job, after.Script.Version)
	return rest.Answer(v), err
}
