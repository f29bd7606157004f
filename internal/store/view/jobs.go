package view

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/runstats"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// JobFilter selects jobs; a zero field selects all.
type JobFilter struct {
	Only     []string // the groups that the caller may see; nil: all, empty: none
	Group    string
	Query    string // occurs in the name, the description or the handler, ignoring case
	Tag      string
	Enabled  *bool
	Kind     domain.ScheduleKind
	Child    domain.JobID       // is a child of the job
	Calendar string             // is the calendar of the schedule
	Health   domain.HealthState // only for SortedJobs
	After    domain.JobID
	Limit    int
}

const (
	searchRows = 10_000 // jobs that one page reads at most; the next page continues
	firstRows  = 250    // read by the first statement of a page; each later statement reads four times as many
)

// Jobs lists jobs by id. next is the After of the next page, or 0 if there is none. If few jobs match, a page may be
// short or empty and still not be the last, because it reads 10,000 jobs at most.
func (s *Store) Jobs(ctx context.Context, f JobFilter) (jobs []domain.Job, next domain.JobID, err error) {
	if g := f.groups(); g != nil && len(g) == 0 {
		return []domain.Job{}, 0, nil
	}
	var ids []int64
	after, looked, rows := int64(f.After), 0, max(f.Limit+1, firstRows)
	if f.plain() {
		rows = f.Limit + 1 // all of them match
	}
	for more := true; more && next == 0; rows *= 4 {
		rows = max(min(rows, searchRows-looked), f.Limit+1)
		keys, err := s.jobKeys(ctx, f, after, rows)
		if err != nil {
			return nil, 0, pgerr.Translate(err)
		}
		for _, k := range keys {
			if !k.fits {
				continue
			}
			if len(ids) == f.Limit {
				next = domain.JobID(ids[f.Limit-1])
				break
			}
			ids = append(ids, k.id)
		}
		if more = len(keys) == rows; more {
			after = keys[len(keys)-1].id
		}
		if looked += len(keys); more && next == 0 && (looked >= searchRows || len(ids) == f.Limit) {
			next = domain.JobID(after)
		}
	}
	jobs, err = s.jobsByID(ctx, f, ids)
	return jobs, next, err
}

type jobKey struct {
	id   int64
	fits bool
}

// jobKeys walks the index that fits the filter best.
func (s *Store) jobKeys(ctx context.Context, f JobFilter, after int64, rows int) ([]jobKey, error) {
	kind, needle := nonZero(string(f.Kind)), nonZero(strings.ToLower(f.Query))
	switch groups := f.groups(); {
	case f.Child != 0:
		got, err := s.q.JobKeysOfChild(ctx, sqlcgen.JobKeysOfChildParams{After: after, ChildID: int64(f.Child), Groups: groups, Tag: nonZero(f.Tag), Calendar: nonZero(f.Calendar), Kind: kind,
			Enabled: f.Enabled, Needle: needle, MaxRows: int32(rows)})
		return convert(got, func(r sqlcgen.JobKeysOfChildRow) jobKey { return jobKey{r.ID, r.Fits} }), err
	case f.Calendar != "":
		got, err := s.q.JobKeysOfCalendar(ctx, sqlcgen.JobKeysOfCalendarParams{After: after, Calendar: f.Calendar, Groups: groups, Tag: nonZero(f.Tag), Kind: kind,
			Enabled: f.Enabled, Needle: needle, MaxRows: int32(rows)})
		return convert(got, func(r sqlcgen.JobKeysOfCalendarRow) jobKey { return jobKey{r.ID, r.Fits} }), err
	case f.Tag != "" && groups != nil:
		got, err := s.q.JobKeysOfTagInGroups(ctx, sqlcgen.JobKeysOfTagInGroupsParams{After: after, Tag: f.Tag, Groups: groups, Kind: kind,
			Enabled: f.Enabled, Needle: needle, MaxRows: int32(rows)})
		return convert(got, func(r sqlcgen.JobKeysOfTagInGroupsRow) jobKey { return jobKey{r.ID, r.Fits} }), err
	case f.Tag != "":
		got, err := s.q.JobKeysOfTag(ctx, sqlcgen.JobKeysOfTagParams{After: after, Tag: f.Tag, Kind: kind,
			Enabled: f.Enabled, Needle: needle, MaxRows: int32(rows)})
		return convert(got, func(r sqlcgen.JobKeysOfTagRow) jobKey { return jobKey{r.ID, r.Fits} }), err
	case groups != nil && f.Enabled != nil:
		got, err := s.q.JobKeysOfGroupsByState(ctx, sqlcgen.JobKeysOfGroupsByStateParams{After: after, Groups: groups, Kind: kind,
			Enabled: *f.Enabled, Needle: needle, MaxRows: int32(rows)})
		return convert(got, func(r sqlcgen.JobKeysOfGroupsByStateRow) jobKey { return jobKey{r.ID, r.Fits} }), err
	case groups == nil && f.Enabled != nil && !*f.Enabled:
		got, err := s.q.JobKeysDisabled(ctx, sqlcgen.JobKeysDisabledParams{After: after, Kind: kind, Needle: needle, MaxRows: int32(rows)})
		return convert(got, func(r sqlcgen.JobKeysDisabledRow) jobKey { return jobKey{r.ID, r.Fits} }), err
	case groups != nil:
		got, err := s.q.JobKeysOfGroups(ctx, sqlcgen.JobKeysOfGroupsParams{After: after, Groups: groups, Kind: kind,
			Enabled: f.Enabled, Needle: needle, MaxRows: int32(rows)})
		return convert(got, func(r sqlcgen.JobKeysOfGroupsRow) jobKey { return jobKey{r.ID, r.Fits} }), err
	default:
		got, err := s.q.JobKeys(ctx, sqlcgen.JobKeysParams{After: after, Kind: kind, Enabled: f.Enabled, Needle: needle, MaxRows: int32(rows)})
		return convert(got, func(r sqlcgen.JobKeysRow) jobKey { return jobKey{r.ID, r.Fits} }), err
	}
}

// plain reports whether every job in the chosen index matches, so that only one page of jobs has to be read.
func (f JobFilter) plain() bool {
	return f.Query == "" && f.Enabled == nil && f.Kind == "" && f.Child == 0 && f.Calendar == ""
}

// groups returns the possible groups of matching jobs without duplicates; nil means all.
func (f JobFilter) groups() []string {
	if g := (RunFilter{Only: f.Only, Group: f.Group}).groups(); g != nil {
		g = slices.Clone(g)
		slices.Sort(g)
		return slices.Compact(g)
	}
	return nil
}

// jobsByID reads jobs by id. A job that has moved to a group outside the filter meanwhile is left out.
func (s *Store) jobsByID(ctx context.Context, f JobFilter, ids []int64) ([]domain.Job, error) {
	jobs := make([]domain.Job, 0, len(ids))
	if len(ids) == 0 {
		return jobs, nil
	}
	rows, err := s.q.JobsByID(ctx, ids)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	groups := f.groups()
	for _, r := range rows {
		if groups != nil && !slices.Contains(groups, r.GroupName) {
			continue
		}
		j, err := toJob(r)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func toJob(r sqlcgen.JobsByIDRow) (domain.Job, error) {
	j := domain.Job{
		ID: domain.JobID(r.ID), Version: int(r.Version),
		CreatedAt: domain.At(r.CreatedAt), UpdatedAt: domain.At(r.UpdatedAt),
		LastFireTime: fireTime(r.LastFireTime), NextFireTime: fireTime(r.NextFireTime),
	}
	if err := domain.DecodeSpec(r.Spec, &j.JobSpec); err != nil {
		return j, domain.WrapError(domain.Internal, "a stored job cannot be read", err)
	}
	j.Normalize()
	j.Group, j.Name, j.Enabled = r.GroupName, r.Name, r.Enabled
	own := domain.Pause{JobID: j.ID, From: fromEpoch(r.JobPausedAt), To: fromEpoch(r.JobPausedUntil), Reason: r.JobPauseReason, By: r.JobPausedBy}
	j.PauseState = own.State()
	j.NotePauses(
		domain.Pause{Group: r.GroupName, From: fromEpoch(r.PausedAt), To: fromEpoch(r.PausedUntil), Reason: r.PauseReason, By: r.PausedBy}, own)
	return j, nil
}

// fireTime returns nil for the epoch, which stands for a missing fire time.
func fireTime(t time.Time) *domain.Instant {
	if t.Unix() == 0 {
		return nil
	}
	return domain.AtPtr(t)
}

// MissedEntry is an entry of the missed ledger with its id, which serves as the cursor of lists.
type MissedEntry struct {
	ID int64
	domain.Missed
}

// Missed lists a job's missed ledger, newest first, before the given entry (0: starting with the newest).
func (s *Store) Missed(ctx context.Context, job domain.JobID, before int64, limit int) ([]MissedEntry, error) {
	rows, err := s.q.MissedOfJob(ctx, sqlcgen.MissedOfJobParams{JobID: int64(job), BeforeID: before, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	entries := make([]MissedEntry, len(rows))
	for i, r := range rows {
		entries[i] = MissedEntry{r.ID, domain.Missed{
			First: domain.At(r.FirstFireTime), Last: domain.At(r.LastFireTime), Count: int(r.Count),
			Why: explain.Read(explain.Note(orZero(r.WhyNote)), r.Why), Policy: domain.Misfire(r.Policy), At: domain.At(r.At),
		}}
	}
	return entries, nil
}

// LatestMissed lists the newest entries of the missed ledger of some groups (nil: all) that were made in [from, to),
// newest first. Group and name are the job's at that time.
func (s *Store) LatestMissed(ctx context.Context, only []string, from, to time.Time, limit int) ([]runstats.RecentMissed, error) {
	out := []runstats.RecentMissed{}
	if only == nil {
		rows, err := s.q.LatestMissed(ctx, sqlcgen.LatestMissedParams{FromAt: from, ToAt: to, MaxRows: int32(limit)})
		if err != nil {
			return nil, pgerr.Translate(err)
		}
		for _, r := range rows {
			out = append(out, recentMissed(r))
		}
		return out, nil
	}
	rows, err := s.q.LatestMissedOfGroups(ctx, sqlcgen.LatestMissedOfGroupsParams{Groups: JobFilter{Only: only}.groups(), FromAt: from, ToAt: to, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	for _, r := range rows {
		out = append(out, recentMissed(sqlcgen.LatestMissedRow(r)))
	}
	return out, nil
}

func recentMissed(r sqlcgen.LatestMissedRow) runstats.RecentMissed {
	return runstats.RecentMissed{
		JobID: domain.JobID(r.JobID), JobName: r.JobName, Group: r.GroupName,
		Missed: domain.Missed{First: domain.At(r.FirstFireTime), Last: domain.At(r.LastFireTime), Count: int(r.Count),
			Why: explain.Read(explain.Note(orZero(r.WhyNote)), r.Why), Policy: domain.Misfire(r.Policy), At: domain.At(r.At)},
	}
}
