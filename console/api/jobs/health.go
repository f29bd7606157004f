package jobs

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/view"
)

// Health reads the health of jobs, and lists jobs by it. Package view documents the methods.
type Health interface {
	AddHealth(ctx context.Context, jobs []domain.Job) error
	// AddChanges sets what changed since the last success of a failing job.
	AddChanges(ctx context.Context, j *domain.Job) error
	SortedJobs(ctx context.Context, f view.JobFilter, sort view.JobSort, after view.JobPlace) ([]domain.Job, *view.JobPlace, error)
}

// page reads a page of jobs with their health. It returns the cursor of the next page, or "" if there is none.
func (a *API) page(ctx context.Context, f view.JobFilter, in *jobsInput) ([]domain.Job, string, error) {
	if in.Health == "" && in.Sort == "" {
		return a.pageByID(ctx, f, in.Cursor)
	}
	f.Health = in.Health
	kind := "job by " + string(in.Sort)
	after, err := decodePlace(kind, in.Cursor)
	if err != nil {
		return nil, "", err
	}
	jobs, next, err := a.Lists.SortedJobs(ctx, f, in.Sort, after)
	if errors.Is(err, view.ErrPlace) {
		return nil, "", rest.BadCursor()
	}
	if err != nil {
		return nil, "", err
	}
	if err := a.Lists.AddHealth(ctx, jobs); err != nil || next == nil {
		return jobs, "", err
	}
	return jobs, encodePlace(kind, *next), nil
}

func (a *API) pageByID(ctx context.Context, f view.JobFilter, cursor string) ([]domain.Job, string, error) {
	after, err := rest.DecodeNumberCursor("job", cursor)
	if err != nil {
		return nil, "", err
	}
	f.After = domain.JobID(after)
	jobs, next, err := a.Lists.Jobs(ctx, f)
	if err != nil {
		return nil, "", err
	}
	if err := a.Lists.AddHealth(ctx, jobs); err != nil || next == 0 {
		return jobs, "", err
	}
	return jobs, rest.NumberCursor("job", int64(next)), nil
}

// encodePlace packs a place: whether the job has no value, its id, and its value.
func encodePlace(kind string, p view.JobPlace) string {
	return rest.EncodeCursor(kind, strings.Join([]string{strconv.FormatBool(p.Rest), strconv.FormatInt(int64(p.ID), 10), p.Key}, ","))
}

func decodePlace(kind, cursor string) (p view.JobPlace, err error) {
	key, err := rest.DecodeCursor(kind, cursor)
	if err != nil || key == "" {
		return p, err
	}
	parts := strings.SplitN(key, ",", 3)
	if len(parts) != 3 {
		return p, rest.BadCursor()
	}
	without, err1 := strconv.ParseBool(parts[0])
	id, err2 := strconv.ParseInt(parts[1], 10, 64)
	if err1 != nil || err2 != nil || id < 0 || strings.ContainsRune(parts[2], 0) {
		return p, rest.BadCursor()
	}
	return view.JobPlace{Rest: without, ID: domain.JobID(id), Key: parts[2]}, nil
}
