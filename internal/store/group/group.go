// Package group keeps executor groups and the tokens of their executors.
//
// Every error is a domain.Error.
package group

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/bearer"
	"github.com/belfryhq/belfry/internal/store/group/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// ErrToken means that a group token is wrong or was replaced. It does not reveal which. Its code is Forbidden, because the
// token was checked and rejected.
var ErrToken = domain.NewError(domain.Forbidden, "the group token is not valid")

// Store keeps executor groups in Postgres. It is safe for concurrent use.
type Store struct{ q *sqlcgen.Queries }

// New returns a Store on a pool whose connections have Belfry's schema on their search path.
func New(pool *pgxpool.Pool) *Store { return &Store{q: sqlcgen.New(pool)} }

// CreateGroup creates an executor group and returns the token for its executors, which cannot be read again. Conflict
// means that the name is taken.
func (s *Store) CreateGroup(ctx context.Context, name, description string) (domain.Group, string, error) {
	token, digest := bearer.New(bearer.Group)
	g, err := s.q.InsertGroup(ctx, sqlcgen.InsertGroupParams{Name: name, Description: description, TokenSha256: digest})
	if err != nil {
		return domain.Group{}, "", pgerr.Translate(err)
	}
	return domain.Group{Name: g.Name, Description: g.Description, CreatedAt: domain.At(g.CreatedAt), UpdatedAt: domain.At(g.UpdatedAt),
		Limits: domain.DefaultGroupLimits()}, token, nil
}

// EnsureGroup creates the group if it is missing. No one knows its token until RotateGroupToken replaces it.
func (s *Store) EnsureGroup(ctx context.Context, name, description string) (created bool, err error) {
	_, digest := bearer.New(bearer.Group)
	n, err := s.q.EnsureGroup(ctx, sqlcgen.EnsureGroupParams{Name: name, Description: description, TokenSha256: digest})
	return n == 1, pgerr.Translate(err)
}

// RotateGroupToken replaces the group's token and returns the new one. The old token stays valid for the overlap; with 0
// it is no longer accepted. An older token that is still valid ends at once. The error is NotFound if there is no such
// group.
func (s *Store) RotateGroupToken(ctx context.Context, name string, overlap time.Duration) (string, error) {
	token, digest := bearer.New(bearer.Group)
	n, err := s.q.SetGroupToken(ctx, sqlcgen.SetGroupTokenParams{Name: name, TokenSha256: digest, OverlapSeconds: overlap.Seconds()})
	if err != nil {
		return "", pgerr.Translate(err)
	}
	if n == 0 {
		return "", noGroup()
	}
	return token, nil
}

// GroupOfToken returns the name of the group that a token belongs to, or ErrToken. left is how long the token stays
// valid, or 0 for the group's current token.
func (s *Store) GroupOfToken(ctx context.Context, token string) (name string, left time.Duration, err error) {
	if !bearer.Is(token, bearer.Group) {
		return "", 0, ErrToken
	}
	g, err := s.q.GroupOfToken(ctx, bearer.Digest(token))
	if err = pgerr.Translate(err); err != nil && domain.CodeOf(err) == domain.NotFound {
		return "", 0, ErrToken
	}
	return g.Name, time.Duration(g.LeftSeconds * float64(time.Second)), err
}

// TokensOfGroups returns the SHA-256 of all valid tokens of the named groups.
func (s *Store) TokensOfGroups(ctx context.Context, groups []string) (map[string][][]byte, error) {
	rows, err := s.q.TokensOfGroups(ctx, groups)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	tokens := make(map[string][][]byte, len(rows))
	for _, r := range rows {
		tokens[r.Name] = [][]byte{r.TokenSha256}
		if r.Previous != nil {
			tokens[r.Name] = append(tokens[r.Name], r.Previous)
		}
	}
	return tokens, nil
}

// Group returns a group, or NotFound. It leaves out the numbers of instances and jobs, because the roster counts instances
// and package internal/store/runstats counts jobs.
func (s *Store) Group(ctx context.Context, name string) (domain.Group, error) {
	g, err := s.q.Group(ctx, name)
	if err != nil {
		if err = pgerr.Translate(err); domain.CodeOf(err) == domain.NotFound {
			err = noGroup()
		}
		return domain.Group{}, err
	}
	return toGroup(sqlcgen.GroupsRow(g))
}

// Groups lists groups by name, starting after the given name. only restricts them to the named groups; nil means all.
// Like Group, it leaves out the numbers of instances and jobs.
func (s *Store) Groups(ctx context.Context, only []string, after string, limit int) ([]domain.Group, error) {
	rows, err := s.q.Groups(ctx, sqlcgen.GroupsParams{After: after, Only: only, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	groups := make([]domain.Group, len(rows))
	for i, r := range rows {
		if groups[i], err = toGroup(r); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// DescribeGroup changes a group's description. The error is NotFound if there is no such group.
func (s *Store) DescribeGroup(ctx context.Context, name, description string) error {
	n, err := s.q.SetGroupDescription(ctx, sqlcgen.SetGroupDescriptionParams{Name: name, Description: description})
	if err == nil && n == 0 {
		return noGroup()
	}
	return pgerr.Translate(err)
}

// LimitGroup changes some of a group's limits. The error is NotFound if there is no such group.
func (s *Store) LimitGroup(ctx context.Context, name string, change domain.GroupLimitsChange) error {
	limits, err := json.Marshal(change)
	if err != nil {
		return domain.WrapError(domain.Internal, "encode the limits", err)
	}
	n, err := s.q.SetGroupLimits(ctx, sqlcgen.SetGroupLimitsParams{Name: name, Limits: limits})
	if err == nil && n == 0 {
		return noGroup()
	}
	return pgerr.Translate(err)
}

// GroupLimits returns the limits of the named groups. Groups that do not exist are missing in the answer.
func (s *Store) GroupLimits(ctx context.Context, names []string) (map[string]domain.GroupLimits, error) {
	rows, err := s.q.GroupLimits(ctx, names)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make(map[string]domain.GroupLimits, len(rows))
	for _, r := range rows {
		if out[r.Name], err = domain.GroupLimitsFrom(r.Limits); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// GroupUsage returns the usage of a group's limits, or NotFound. It leaves out the number of instances, because the
// roster counts them.
func (s *Store) GroupUsage(ctx context.Context, name string) (domain.GroupUsage, error) {
	rows, err := s.q.GroupUsages(ctx, sqlcgen.GroupUsagesParams{Only: []string{name}, MaxRows: 1})
	if err != nil {
		return domain.GroupUsage{}, pgerr.Translate(err)
	}
	if len(rows) == 0 {
		return domain.GroupUsage{}, noGroup()
	}
	return toUsage(&rows[0])
}

// GroupUsages returns the usage of the limits of up to limit groups, the first ones by name. Like GroupUsage, it leaves out
// the numbers of instances.
func (s *Store) GroupUsages(ctx context.Context, limit int) (map[string]domain.GroupUsage, error) {
	rows, err := s.q.GroupUsages(ctx, sqlcgen.GroupUsagesParams{MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make(map[string]domain.GroupUsage, len(rows))
	for i := range rows {
		if out[rows[i].Name], err = toUsage(&rows[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func toUsage(r *sqlcgen.GroupUsagesRow) (domain.GroupUsage, error) {
	l, err := domain.GroupLimitsFrom(r.Limits)
	return domain.GroupUsage{
		Jobs:           domain.Usage{Used: r.Jobs, Limit: int64(l.MaxJobs)},
		LiveRuns:       domain.Usage{Used: r.LiveRuns, Limit: int64(l.MaxLiveRuns)},
		FiresPerMinute: domain.Usage{Used: r.Fires, Limit: int64(l.MaxFiresPerMinute)},
		LogBytesToday:  domain.Usage{Used: r.LogBytes, Limit: l.MaxLogBytesPerDay},
		ScriptVersions: domain.Usage{Used: r.ScriptVersions, Limit: int64(l.MaxScriptVersions)},
		Instances:      domain.Usage{Limit: int64(l.MaxInstances)},
	}, err
}

// DeleteGroup deletes a group. Conflict means that it has jobs, NotFound that there is no such group.
func (s *Store) DeleteGroup(ctx context.Context, name string) error {
	n, err := s.q.DeleteGroup(ctx, name)
	if err == nil && n == 0 {
		return noGroup()
	}
	return pgerr.TranslateDelete(err)
}

func noGroup() error { return domain.NewError(domain.NotFound, "there is no group of this name") }

func toGroup(r sqlcgen.GroupsRow) (domain.Group, error) {
	l, err := domain.GroupLimitsFrom(r.Limits)
	return domain.Group{Name: r.Name, Description: r.Description,
		CreatedAt: domain.At(r.CreatedAt), UpdatedAt: domain.At(r.UpdatedAt),
		PauseState: domain.PauseState{
			PausedAt: fromEpoch(r.PausedAt), PausedUntil: fromEpoch(r.PausedUntil), PauseReason: r.PauseReason, PausedBy: r.PausedBy,
		},
		PreviousTokenUntil: fromEpoch(r.PreviousTokenUntil), Limits: l}, err
}

// fromEpoch returns nil for the epoch, which stands for a missing instant.
func fromEpoch(t time.Time) *domain.Instant {
	if t.Unix() == 0 {
		return nil
	}
	return domain.AtPtr(t)
}
