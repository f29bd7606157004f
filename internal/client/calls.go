package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// Session is the result of a log-in.
type Session struct {
	Token     string         `json:"token"`
	ExpiresAt domain.Instant `json:"expires_at"`
}

// Login exchanges a user's password for a token. The client continues to use its own token.
func (c *Client) Login(ctx context.Context, username, password string) (Session, error) {
	var s Session
	err := c.call(ctx, http.MethodPost, "/auth/login", nil, map[string]string{"username": username, "password": password}, &s)
	if err == nil && s.Token == "" {
		err = errors.New("the server's response has no token")
	}
	return s, err
}

// JobFilter selects jobs; an empty field selects all.
type JobFilter struct {
	Group    string
	Query    string // a part of the name or description
	Tag      string
	Kind     string
	Calendar string // the calendar of the schedule
	Enabled  *bool
	Child    domain.JobID // a child of the job
	Health   string       // ok, failing or unknown
	Sort     string       // the order: name, next_fire_time, last_failure, failing_since or p95_ms; by id otherwise
}

// Jobs lists up to most jobs.
func (c *Client) Jobs(ctx context.Context, f JobFilter, most int) ([]domain.Job, error) {
	q := values("group", f.Group, "q", f.Query, "tag", f.Tag, "kind", f.Kind, "calendar", f.Calendar, "health", f.Health, "sort", f.Sort)
	if f.Enabled != nil {
		q.Set("enabled", strconv.FormatBool(*f.Enabled))
	}
	if f.Child != 0 {
		q.Set("child_id", strconv.FormatInt(int64(f.Child), 10))
	}
	return list[domain.Job](ctx, c, "/jobs", q, most)
}

// Job returns the job with this id.
func (c *Client) Job(ctx context.Context, id domain.JobID) (domain.Job, error) {
	return answer[domain.Job](ctx, c, http.MethodGet, jobPath(id), nil, nil)
}

// ErrNoJob means that no job of this group and name is visible.
var ErrNoJob = errors.New("there is no such job")

// maxSameName bounds the search for one name: at most this many jobs of a group may contain it.
const maxSameName = 10_000

// JobByName returns the job with this name in a group, or ErrNoJob.
func (c *Client) JobByName(ctx context.Context, group, name string) (domain.Job, error) {
	jobs, err := c.Jobs(ctx, JobFilter{Group: group, Query: name}, maxSameName)
	if NoGroup(err) {
		return domain.Job{}, fmt.Errorf("%s/%s: %w: %w", group, name, ErrNoJob, err)
	}
	if err != nil {
		return domain.Job{}, err
	}
	for _, j := range jobs {
		if j.Group == group && j.Name == name {
			return j, nil
		}
	}
	return domain.Job{}, fmt.Errorf("%s/%s: %w", group, name, ErrNoJob)
}

// NoGroup reports whether err means that the group of a filter does not exist.
func NoGroup(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusUnprocessableEntity &&
		len(e.Fields) == 1 && e.Fields[0].Location == "group"
}

// CreateJob creates a job from a spec: a domain.JobSpec, or any value that encodes to its JSON.
func (c *Client) CreateJob(ctx context.Context, spec any) (domain.Job, error) {
	return answer[domain.Job](ctx, c, http.MethodPost, "/jobs", nil, spec)
}

// ReplaceJob replaces the spec of a job. It takes the same specs as CreateJob. If spec carries a version, and the job has
// another version, the error has status 409.
func (c *Client) ReplaceJob(ctx context.Context, id domain.JobID, spec any) (domain.Job, error) {
	return answer[domain.Job](ctx, c, http.MethodPut, jobPath(id), nil, spec)
}

// DeleteJob deletes a job.
func (c *Client) DeleteJob(ctx context.Context, id domain.JobID) error {
	return c.call(ctx, http.MethodDelete, jobPath(id), nil, nil, nil)
}

// SetJobEnabled enables or disables a job.
func (c *Client) SetJobEnabled(ctx context.Context, id domain.JobID, enabled bool) error {
	action := "/disable"
	if enabled {
		action = "/enable"
	}
	return c.call(ctx, http.MethodPost, jobPath(id)+action, nil, struct{}{}, nil)
}

// Trigger describes a run of a job that starts now. A nil field stands for the value of the job.
type Trigger struct {
	Param    *string         `json:"param,omitempty"`
	Instance string          `json:"instance,omitempty"`
	FireTime *domain.Instant `json:"fire_time,omitempty"`
}

type runIDs struct {
	RunIDs []domain.RunID `json:"run_ids"`
	ID     domain.RunID   `json:"id"`
}

// TriggerJob triggers a job and returns the ids of the planned runs.
func (c *Client) TriggerJob(ctx context.Context, id domain.JobID, t Trigger) ([]domain.RunID, error) {
	var out runIDs
	err := c.callRuns(ctx, jobPath(id)+"/trigger", t, &out)
	return out.RunIDs, err
}

// callRuns posts body and returns an error if the response has no run id.
func (c *Client) callRuns(ctx context.Context, path string, body any, out *runIDs) error {
	if err := c.call(ctx, http.MethodPost, path, nil, body, out); err != nil {
		return err
	}
	if len(out.RunIDs) == 0 && !out.ID.IsZero() {
		out.RunIDs = []domain.RunID{out.ID}
	}
	if len(out.RunIDs) == 0 {
		return errors.New("the server's response has no run id")
	}
	return nil
}

// Preview holds the next fire times of a schedule, and its description.
type Preview struct {
	FireTimes   []domain.Instant `json:"fire_times"`
	Description string           `json:"description"`
}

// NextFireTimes returns the next fire times of a job.
func (c *Client) NextFireTimes(ctx context.Context, id domain.JobID, count int) (Preview, error) {
	return answer[Preview](ctx, c, http.MethodGet, jobPath(id)+"/next", values("count", strconv.Itoa(count)), nil)
}

// RunFilter selects runs; an empty field selects all.
type RunFilter struct {
	JobID    domain.JobID
	Group    string
	State    string
	Cause    string
	Reason   string
	Instance string
	From, To *domain.Instant
	// BulkID selects the new runs of a bulk action.
	BulkID int64
	// Unplanned leaves out runs that are planned and not yet due. It keeps runs that another run holds.
	Unplanned bool
}

// Runs lists up to most runs, newest first.
func (c *Client) Runs(ctx context.Context, f RunFilter, most int) ([]domain.Run, error) {
	return list[domain.Run](ctx, c, "/runs", f.values(), most)
}

// RunSearch is a page of a search, newest run first. A page may be short or empty and still have a NextCursor.
type RunSearch struct {
	Items      []domain.Run `json:"items"`
	NextCursor string       `json:"next_cursor"` // empty if the search has ended
	// SearchedBackTo is the instant from which on all runs are searched. It is nil if there is no run.
	SearchedBackTo *domain.Instant `json:"searched_back_to,omitempty"`
}

// SearchRuns returns up to most runs that contain a text, from a cursor on (empty: from the newest run).
func (c *Client) SearchRuns(ctx context.Context, f RunFilter, text, cursor string, most int) (RunSearch, error) {
	q := f.values()
	q.Set("q", text)
	q.Set("limit", strconv.Itoa(min(most, pageSize)))
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return answer[RunSearch](ctx, c, http.MethodGet, "/runs", q, nil)
}

// values are the parameters of the filter.
func (f *RunFilter) values() url.Values {
	q := values("group", f.Group, "state", f.State, "cause", f.Cause, "reason", f.Reason, "instance", f.Instance)
	if f.JobID != 0 {
		q.Set("job_id", strconv.FormatInt(int64(f.JobID), 10))
	}
	if f.From != nil {
		q.Set("from", f.From.String())
	}
	if f.To != nil {
		q.Set("to", f.To.String())
	}
	if f.BulkID != 0 {
		q.Set("bulk_id", strconv.FormatInt(f.BulkID, 10))
	}
	if f.Unplanned {
		q.Set("planned", "false")
	}
	return q
}

// Run returns one run with its attempts.
func (c *Client) Run(ctx context.Context, id domain.RunID) (domain.Run, error) {
	return answer[domain.Run](ctx, c, http.MethodGet, "/runs/"+id.String(), nil, nil)
}

// KillRun requests that an unfinished run is killed.
func (c *Client) KillRun(ctx context.Context, id domain.RunID) error {
	return c.call(ctx, http.MethodPost, "/runs/"+id.String()+"/kill", nil, struct{}{}, nil)
}

// Retry says how a retry differs from the run.
type Retry struct {
	Param    *string `json:"param,omitempty"`
	Instance string  `json:"instance,omitempty"`
}

// RetryRun runs a final run again, as a new run, and returns its id.
func (c *Client) RetryRun(ctx context.Context, id domain.RunID) ([]domain.RunID, error) {
	return c.RetryRunWith(ctx, id, Retry{})
}

// RetryRunWith is RetryRun with another param or on a given instance.
func (c *Client) RetryRunWith(ctx context.Context, id domain.RunID, r Retry) ([]domain.RunID, error) {
	var out runIDs
	err := c.callRuns(ctx, "/runs/"+id.String()+"/retry", r, &out)
	return out.RunIDs, err
}

// Groups lists up to most groups.
func (c *Client) Groups(ctx context.Context, most int) ([]domain.Group, error) {
	return list[domain.Group](ctx, c, "/groups", nil, most)
}

// Group returns one group.
func (c *Client) Group(ctx context.Context, name string) (domain.Group, error) {
	return answer[domain.Group](ctx, c, http.MethodGet, groupPath(name), nil, nil)
}

// GroupUsage returns how much of its limits a group uses.
func (c *Client) GroupUsage(ctx context.Context, name string) (domain.GroupUsage, error) {
	return answer[domain.GroupUsage](ctx, c, http.MethodGet, groupPath(name)+"/usage", nil, nil)
}

// NewGroup is a new group with the token of its executors. The server returns the token only once.
type NewGroup struct {
	domain.Group
	Token string `json:"token"`
}

// CreateGroup creates a group.
func (c *Client) CreateGroup(ctx context.Context, name, description string) (NewGroup, error) {
	return answer[NewGroup](ctx, c, http.MethodPost, "/groups", nil, map[string]string{"name": name, "description": description})
}

// ChangeGroup changes a group's description and some of its limits. A nil description keeps the stored one.
func (c *Client) ChangeGroup(ctx context.Context, name string, description *string, limits domain.GroupLimitsChange) (domain.Group, error) {
	body := struct {
		Description *string                  `json:"description,omitempty"`
		Limits      domain.GroupLimitsChange `json:"limits"`
	}{description, limits}
	return answer[domain.Group](ctx, c, http.MethodPatch, groupPath(name), nil, body)
}

// GroupToken is the new token of a group's executors.
type GroupToken struct {
	Token              string          `json:"token"`
	PreviousTokenUntil *domain.Instant `json:"previous_token_until"` // nil: the old token has ended
}

// ReplaceGroupToken replaces the token of a group's executors. The old token stays valid for the overlap.
func (c *Client) ReplaceGroupToken(ctx context.Context, name string, overlap time.Duration) (GroupToken, error) {
	body := map[string]domain.Duration{"overlap": domain.Duration(overlap)}
	return answer[GroupToken](ctx, c, http.MethodPost, groupPath(name)+"/token", nil, body)
}

// DeleteGroup deletes a group without jobs.
func (c *Client) DeleteGroup(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, groupPath(name), nil, nil, nil)
}

// Instances lists the live instances of a group, all at once.
func (c *Client) Instances(ctx context.Context, group string) ([]domain.Instance, error) {
	type list struct {
		Items []domain.Instance `json:"items"`
	}
	out, err := answer[list](ctx, c, http.MethodGet, groupPath(group)+"/instances", nil, nil)
	return append([]domain.Instance{}, out.Items...), err
}

// Token is an API token. Secret is set only in the result of CreateToken.
type Token struct {
	ID         int64           `json:"id"`
	User       string          `json:"user,omitempty"`
	Name       string          `json:"name"`
	Role       string          `json:"role"`
	Groups     []string        `json:"groups"`
	Scope      string          `json:"scope"`
	CreatedAt  *domain.Instant `json:"created_at"`
	ExpiresAt  *domain.Instant `json:"expires_at"`
	LastUsedAt *domain.Instant `json:"last_used_at"`
	Secret     string          `json:"token,omitempty"`
}

// NewToken is the input of CreateToken. The server sets empty fields to their defaults.
type NewToken struct {
	Name      string          `json:"name"`
	Role      string          `json:"role,omitempty"`
	Groups    []string        `json:"groups,omitempty"`
	Scope     string          `json:"scope,omitempty"` // events, or empty
	ExpiresAt *domain.Instant `json:"expires_at,omitempty"`
}

// Tokens lists up to most API tokens.
func (c *Client) Tokens(ctx context.Context, most int) ([]Token, error) {
	return list[Token](ctx, c, "/tokens", nil, most)
}

// CreateToken creates an API token.
func (c *Client) CreateToken(ctx context.Context, t NewToken) (Token, error) {
	return answer[Token](ctx, c, http.MethodPost, "/tokens", nil, t)
}

// DeleteToken deletes an API token, which becomes invalid at once.
func (c *Client) DeleteToken(ctx context.Context, id int64) error {
	return c.call(ctx, http.MethodDelete, "/tokens/"+strconv.FormatInt(id, 10), nil, nil, nil)
}

func jobPath(id domain.JobID) string { return "/jobs/" + strconv.FormatInt(int64(id), 10) }
func groupPath(name string) string   { return "/groups/" + url.PathEscape(name) }

// values returns query parameters for the pairs with a non-empty value.
func values(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v
}
