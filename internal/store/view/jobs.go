package view

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// JobFilter selects jobs; a zero field selects all.
type JobFilter struct {
	Only    []string // the groups that the caller may see; nil: all, empty: none
	Group   string
	Query   string // occurs in the name, the description or the handler, whatever the case
	Tag     string
	Enabled *bool
	Kind    domain.ScheduleKind
	After   domain.JobID
	Limit   int
}

// Jobs lists jobs by id.
func (s *Store) Jobs(ctx context.Context, f JobFilter) ([]domain.Job, error) {
	rows, err := s.q.Jobs(ctx, sqlcgen.JobsParams{
		After: int64(f.After), Only: f.Only, GroupName: nonZero(f.Group), Kind: nonZero(string(f.Kind)),
		Enabled: f.Enabled, Tag: nonZero(f.Tag), Needle: nonZero(strings.ToLower(f.Query)), MaxRows: int32(f.Limit),
	})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	jobs := make([]domain.Job, len(rows))
	for i, r := range rows {
		if jobs[i], err = toJob(r); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

func toJob(r sqlcgen.JobsRow) (domain.Job, error) {
	j := domain.Job{
		ID: domain.JobID(r.ID), Version: int(r.Version),
		CreatedAt: domain.At(r.CreatedAt), UpdatedAt: domain.At(r.UpdatedAt),
		LastFireTime: fireTime(r.LastFireTime), NextFireTime: fireTime(r.NextFireTime),
	}
	if err := json.Unmarshal(r.Spec, &j.JobSpec); err != nil {
		return j, domain.WrapError(domain.Internal, "a stored job cannot be read", err)
	}
	j.Normalize()
	j.Group, j.Name, j.Enabled = r.GroupName, r.Name, r.Enabled
	j.NotePause(domain.Pause{Group: r.GroupName, From: fromEpoch(r.PausedAt), To: fromEpoch(r.PausedUntil), Reason: r.PauseReason, By: r.PausedBy})
	return j, nil
}

// fireTime reads a fire time for which the epoch stands where there is none.
func fireTime(t time.Time) *domain.Instant {
	if t.Unix() == 0 {
		return nil
	}
	return domain.AtPtr(t)
}

// MissedEntry is an entry of the missed ledger with its id, by which lists go on.
type MissedEntry struct {
	ID int64
	domain.Missed
}

// Missed lists a job's missed ledger, newest first, before the given entry (0: from the newest on).
func (s *Store) Missed(ctx context.Context, job domain.JobID, before int64, limit int) ([]MissedEntry, error) {
	rows, err := s.q.MissedOfJob(ctx, sqlcgen.MissedOfJobParams{JobID: int64(job), BeforeID: before, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	entries := make([]MissedEntry, len(rows))
	for i, r := range rows {
		entries[i] = MissedEntry{r.ID, domain.Missed{
			First: domain.At(r.FirstFireTime), Last: domain.At(r.LastFireTime), Count: int(r.Count),
			Why: r.Why, Policy: domain.Misfire(r.Policy), At: domain.At(r.At),
		}}
	}
	return entries, nil
}
