// Package visible reads the groups, jobs and runs that a caller may see. A resource that the caller may not see does not
// exist for the caller: every method answers NotFound for both.
package visible

import (
	"context"
	"fmt"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/view"
)

// The messages of the NotFound errors of this package.
const (
	NoGroup = "there is no group of this name"
	NoJob   = "there is no such job"
	NoRun   = "there is no such run"
)

// Groups reads one group.
type Groups interface {
	Group(ctx context.Context, name string) (domain.Group, error)
}

// Jobs reads one job.
type Jobs interface {
	Job(ctx context.Context, id domain.JobID) (domain.Job, error)
}

// Runs reads the state and the group of one run.
type Runs interface {
	State(ctx context.Context, id domain.RunID) (view.RunState, error)
}

// Reader reads with the rights of a caller. All fields must be set.
type Reader struct {
	Groups Groups
	Jobs   Jobs
	Runs   Runs
}

// Check returns nil if the caller may see the group, else NotFound with the message.
func Check(id auth.Identity, group, message string) error {
	if id.Sees(group) {
		return nil
	}
	return domain.NewError(domain.NotFound, message)
}

// Group returns a group as it is stored, without its numbers of jobs and instances.
func (r *Reader) Group(ctx context.Context, id auth.Identity, name string) (domain.Group, error) {
	if err := Check(id, name, NoGroup); err != nil {
		return domain.Group{}, err
	}
	return r.Groups.Group(ctx, name)
}

// Job returns a job.
func (r *Reader) Job(ctx context.Context, id auth.Identity, job domain.JobID) (domain.Job, error) {
	j, err := r.Jobs.Job(ctx, job)
	switch {
	case err == nil:
		return j, Check(id, j.Group, NoJob)
	case domain.CodeOf(err) == domain.NotFound:
		return j, domain.WrapError(domain.NotFound, NoJob, err)
	}
	return j, err
}

// Run returns nil if the run exists for the caller.
func (r *Reader) Run(ctx context.Context, id auth.Identity, run domain.RunID) error {
	s, err := r.Runs.State(ctx, run)
	if err != nil {
		return err
	}
	return Check(id, s.Group, NoRun)
}

// CheckGroup refuses a filter by a group that does not exist for the caller; "" is no filter. A list of runs calls it
// only if the list is empty, because the runs of a deleted group stay visible.
func (r *Reader) CheckGroup(ctx context.Context, id auth.Identity, name string) error {
	if name == "" {
		return nil
	}
	_, err := r.Group(ctx, id, name)
	if err != nil && domain.CodeOf(err) == domain.NotFound {
		return UnknownGroup(name)
	}
	return err
}

// Scope returns the groups that a request is about: the given one after a CheckGroup, or all that the caller may see.
// nil means every group.
func (r *Reader) Scope(ctx context.Context, id auth.Identity, group string) ([]string, error) {
	if group == "" {
		return id.Only(), nil
	}
	if err := r.CheckGroup(ctx, id, group); err != nil {
		return nil, err
	}
	return []string{group}, nil
}

// UnknownGroup is the error for a group in the request that does not exist for the caller.
func UnknownGroup(name string) error { return problem.Invalid("group", UnknownGroupText(name)) }

// UnknownGroupText is the message of UnknownGroup.
func UnknownGroupText(name string) string {
	return fmt.Sprintf("there is no group %q", problem.Clip(name))
}
