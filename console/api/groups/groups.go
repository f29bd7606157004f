// Package groups is the REST API of executor groups: their tokens, instances and pauses.
package groups

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
)

// API serves groups. All fields must be set.
type API struct {
	Store  Store
	Pauses Pauses
	Counts Counts
	Fleet  Fleet
	// Gateways keeps which groups are open for executors of XXL-JOB.
	Gateways Gateways
	Visible  *visible.Reader
	Audit    *rest.Audit
}

// Store keeps groups.
type Store interface {
	Groups(ctx context.Context, only []string, after string, limit int) ([]domain.Group, error)
	CreateGroup(ctx context.Context, name, description string) (domain.Group, string, error)
	DescribeGroup(ctx context.Context, name, description string) error
	LimitGroup(ctx context.Context, name string, change domain.GroupLimitsChange) error
	// GroupUsage returns the usage of a group's limits, without the number of instances.
	GroupUsage(ctx context.Context, name string) (domain.GroupUsage, error)
	// DeleteGroup deletes a group. Conflict: it has jobs.
	DeleteGroup(ctx context.Context, name string) error
	// RotateGroupToken replaces a group's token. The old one stays valid for the overlap.
	RotateGroupToken(ctx context.Context, name string, overlap time.Duration) (string, error)
	WireIDs
}

// Pauses pauses the schedules of a group's jobs.
type Pauses interface {
	// PauseGroup starts a pause, or changes the reason and the end of the current one.
	PauseGroup(ctx context.Context, group, reason string, until *time.Time, by string) (domain.Pause, error)
	// ResumeGroup ends a pause. Conflict: the group is not paused.
	ResumeGroup(ctx context.Context, group, by string) (domain.Pause, error)
}

// Counts counts jobs.
type Counts interface {
	// JobCounts returns the number of jobs of each group with jobs.
	JobCounts(ctx context.Context) (map[string]statstore.JobCount, error)
	// GroupStates returns how many jobs of the groups are failing or paused.
	GroupStates(ctx context.Context, groups []string) (map[string]statstore.GroupState, error)
}

// Fleet knows the live instances, and reaches them.
type Fleet interface {
	Instances(group string) []domain.Instance
	Drain(ctx context.Context, group, instance string) error
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Groups"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/groups", Tag: tag, Summary: "List groups", Needs: account.Viewer,
		Description: "With health=true, each group has the numbers of its jobs by state."}, a.list)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/groups", Tag: tag, Summary: "Create a group", Needs: account.Admin,
		Status: 201, Body: rest.BodyOf[groupBody]()}, a.create)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/groups/{name}", Tag: tag, Summary: "Show a group", Needs: account.Viewer}, a.show)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/groups/{name}/usage", Tag: tag, Summary: "Show how much of its limits a group uses",
		Description: "The usage may be higher than a limit, for example after the limit was lowered.", Needs: account.Viewer}, a.usage)
	rest.Register(r, rest.Operation{Method: "PATCH", Path: "/groups/{name}", Tag: tag, Summary: "Change a group's description or limits", Needs: account.Admin,
		Description: "Fields that are absent keep their values, also those of `limits`.", Body: rest.BodyOf[groupChange]()}, a.change)
	rest.Register(r, rest.Operation{Method: "DELETE", Path: "/groups/{name}", Tag: tag, Summary: "Delete a group", Needs: account.Admin,
		Description: "If the group has jobs, the answer is 409."}, a.remove)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/groups/{name}/token", Tag: tag, Summary: "Replace a group's token", Needs: account.Admin,
		Description: "Without `overlap`, the old token stops working at once: it opens no new connections, and its connections end within a minute. " +
			"With `overlap`, it stays valid for this time, at most 168h, so that executors can be restarted one after the other. " +
			"A group has at most two valid tokens: older ones become invalid at once.",
		Body: rest.BodyOf[replaceTokenBody](), BodyOptional: true}, a.replaceToken)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/groups/{name}/instances", Tag: tag, Summary: "List a group's instances",
		Description: "All instances that send heartbeats, in one page.", Needs: account.Viewer}, a.instances)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/groups/{name}/instances/{id}/drain", Tag: tag, Summary: "Drain an instance", Needs: account.Operator,
		Description: "The instance accepts no more runs. Its active runs may continue until its drain timeout has passed.", Status: 202}, a.drain)
	a.registerWireIDs(r, tag)
	a.registerXXLJob(r, tag)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/groups/{name}/pause", Tag: tag, Summary: "Pause the schedules of a group's jobs",
		Description: "Until the pause ends, no job of the group fires by its schedule. Then each job's misfire policy applies to the missed fire times. " +
			"Manual, API, event and child runs, retries and running runs are not affected. If the group is already paused, " +
			"the pause gets the new reason and end.",
		Needs: account.Operator, Body: rest.BodyOf[rest.PauseBody]()}, a.pause)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/groups/{name}/resume", Tag: tag, Summary: "End a group's pause",
		Description: "If the group is not paused, the answer is 409.", Needs: account.Operator}, a.resume)
}

type groupBody struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

type groupChange struct {
	Description string                   `json:"description,omitempty"`
	Limits      domain.GroupLimitsChange `json:"limits,omitzero" doc:"The quotas of the group for shared resources"`
}

type newGroup struct {
	domain.Group
	Token string `json:"token" doc:"The token with which the group's executors connect. It is shown only in this answer"`
}

type replaceTokenBody struct {
	Overlap domain.Duration `json:"overlap,omitempty" doc:"How long the old token stays valid, such as 24h; at most 168h. Default: it becomes invalid at once"`
}

type groupToken struct {
	Token              string          `json:"token" doc:"The group's new token. It is shown only in this answer"`
	PreviousTokenUntil *domain.Instant `json:"previous_token_until" doc:"When the old token becomes invalid; null: it is already invalid"`
}

// maxOverlap is the longest time for which a replaced token may stay valid.
const maxOverlap = 7 * 24 * time.Hour

// GroupPath names a group in the path.
type GroupPath struct {
	Name string `path:"name"`
}

// listedGroup is a group in a list, or on its own without its health.
type listedGroup struct {
	domain.Group
	XXLJob bool         `json:"xxl_job" doc:"Whether the group is open for executors of XXL-JOB; GET /groups/{name}/xxl-job shows how"`
	Health *groupHealth `json:"health,omitempty" doc:"How the jobs of the group fare; only with health=true"`
}

// groupHealth counts the jobs of a group. A job can be in several of the counts.
type groupHealth struct {
	Jobs     int64 `json:"jobs"`
	Disabled int64 `json:"disabled"`
	Failing  int64 `json:"failing" doc:"Jobs whose health is failing, disabled ones too; 1,000 at most"`
	Paused   int64 `json:"paused" doc:"Jobs that are paused themselves, whether the group is paused or not; 1,000 at most"`
	AtLeast  bool  `json:"at_least,omitempty" doc:"More than 1,000 jobs are failing or paused"`
}

func (a *API) list(ctx context.Context, id auth.Identity, in *struct {
	rest.List
	Health bool `query:"health" doc:"Include the numbers of failing, disabled and paused jobs"`
}) (*rest.Output[rest.Page[listedGroup]], error) {
	after, err := rest.DecodeCursor("group", in.Cursor)
	if err != nil {
		return nil, err
	}
	groups, err := a.Store.Groups(ctx, id.Only(), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	jobs, err := a.Counts.JobCounts(ctx)
	if err != nil {
		return nil, err
	}
	p := rest.Cut(groups, in.Limit, func(g domain.Group) string { return rest.EncodeCursor("group", g.Name) })
	names := rest.Each(p.Items, func(g domain.Group) string { return g.Name })
	open, err := a.Gateways.OpenAmong(ctx, names)
	if err != nil {
		return nil, err
	}
	var states map[string]statstore.GroupState
	if in.Health {
		if states, err = a.Counts.GroupStates(ctx, names); err != nil {
			return nil, err
		}
	}
	items := rest.Each(p.Items, func(g domain.Group) listedGroup {
		a.fill(&g, jobs)
		item := listedGroup{Group: g, XXLJob: slices.Contains(open, g.Name)}
		if n, s := jobs[g.Name], states[g.Name]; in.Health {
			item.Health = &groupHealth{Jobs: n.Jobs, Disabled: n.Jobs - n.Enabled, Failing: s.Failing, Paused: s.Paused, AtLeast: s.AtLeast}
		}
		return item
	})
	return rest.Answer(rest.Page[listedGroup]{Items: items, NextCursor: p.NextCursor}), nil
}

// fill adds the number of jobs and the number of instances.
func (a *API) fill(g *domain.Group, jobs map[string]statstore.JobCount) {
	g.Jobs = int(jobs[g.Name].Jobs)
	g.Instances = len(a.Fleet.Instances(g.Name))
}

// Read returns a group with its numbers if the caller may see it, NotFound otherwise.
func (a *API) Read(ctx context.Context, id auth.Identity, name string) (domain.Group, error) {
	g, err := a.Visible.Group(ctx, id, name)
	if err != nil {
		return g, err
	}
	jobs, err := a.Counts.JobCounts(ctx)
	if err != nil {
		return g, err
	}
	a.fill(&g, jobs)
	return g, nil
}

func (a *API) show(ctx context.Context, id auth.Identity, in *GroupPath) (*rest.Output[listedGroup], error) {
	g, err := a.Read(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	open, err := a.Gateways.OpenAmong(ctx, []string{g.Name})
	return rest.Answer(listedGroup{Group: g, XXLJob: len(open) > 0}), err
}

func (a *API) usage(ctx context.Context, id auth.Identity, in *GroupPath) (*rest.Output[domain.GroupUsage], error) {
	if _, err := a.Visible.Group(ctx, id, in.Name); err != nil {
		return nil, err
	}
	u, err := a.Store.GroupUsage(ctx, in.Name)
	u.Instances.Used = int64(len(a.Fleet.Instances(in.Name)))
	return rest.Answer(u), err
}

func (a *API) create(ctx context.Context, id auth.Identity, in *struct{ rest.JSONBody }) (*rest.Output[newGroup], error) {
	var b groupBody
	shape := in.Decode(&b)
	var f domain.Faults
	if !domain.ValidGroupName(b.Name) {
		f.Add("name", domain.GroupNameRule)
	}
	CheckDescription(&f, b.Description)
	if err := strict.AlsoFaulty(shape, f.Err("the group is not valid")); err != nil {
		return nil, err
	}
	g, token, err := a.Store.CreateGroup(ctx, b.Name, b.Description)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "group.create", "group/"+g.Name, nil, g)
	return rest.Answer(newGroup{g, token}), nil
}

// CheckDescription adds the faults of a group's description.
func CheckDescription(f *domain.Faults, s string) {
	if n := utf8.RuneCountInString(s); n > 1024 {
		f.Add("description", "has more than 1024 characters")
	}
	for _, c := range s {
		if c == 0 {
			f.Add("description", "must not contain NUL")
			return
		}
	}
}

func (a *API) change(ctx context.Context, id auth.Identity, in *struct {
	GroupPath
	rest.JSONBody
}) (*rest.Output[domain.Group], error) {
	before, err := a.Read(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	b := groupChange{Description: before.Description}
	if err := in.Decode(&b); err != nil {
		return nil, err
	}
	var f domain.Faults
	CheckDescription(&f, b.Description)
	b.Limits.Apply(before.Limits).Check(&f, "limits")
	if err := f.Err("the group is not valid"); err != nil {
		return nil, err
	}
	if b.Description != before.Description {
		if err := a.Store.DescribeGroup(ctx, in.Name, b.Description); err != nil {
			return nil, err
		}
	}
	if b.Limits != (domain.GroupLimitsChange{}) {
		if err := a.Store.LimitGroup(ctx, in.Name, b.Limits); err != nil {
			return nil, err
		}
	}
	after, err := a.Read(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "group.update", "group/"+in.Name, before, after)
	return rest.Answer(after), nil
}

func (a *API) remove(ctx context.Context, id auth.Identity, in *GroupPath) (*struct{}, error) {
	before, err := a.Read(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	if err := a.Store.DeleteGroup(ctx, in.Name); err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "group.delete", "group/"+in.Name, before, nil)
	return nil, nil
}

func (a *API) replaceToken(ctx context.Context, id auth.Identity, in *struct {
	GroupPath
	rest.JSONBody
}) (*rest.Output[groupToken], error) {
	var b replaceTokenBody
	var shape error
	if len(in.RawBody) > 0 {
		shape = in.Decode(&b)
	}
	var f domain.Faults
	if d := time.Duration(b.Overlap); d < 0 || d > maxOverlap {
		f.Add("overlap", "must be between 0s and 168h")
	}
	if err := strict.AlsoFaulty(shape, f.Err("the overlap is not valid")); err != nil {
		return nil, err
	}
	token, err := a.Store.RotateGroupToken(ctx, in.Name, time.Duration(b.Overlap))
	if err != nil {
		return nil, err
	}
	var until *domain.Instant
	if b.Overlap > 0 {
		g, err := a.Visible.Group(ctx, id, in.Name)
		if err != nil {
			return nil, err
		}
		until = g.PreviousTokenUntil
	}
	a.Audit.Record(ctx, id, "group.token", "group/"+in.Name, nil, map[string]any{"previous_token_until": until})
	return rest.Answer(groupToken{token, until}), nil
}

func (a *API) instances(ctx context.Context, id auth.Identity, in *GroupPath) (*rest.Output[rest.Page[domain.Instance]], error) {
	if _, err := a.Visible.Group(ctx, id, in.Name); err != nil {
		return nil, err
	}
	found := a.Fleet.Instances(in.Name)
	p := rest.Page[domain.Instance]{Items: make([]domain.Instance, len(found))}
	for i, instance := range found {
		instance.Handlers = append([]string{}, instance.Handlers...)
		instance.Languages = append([]string{}, instance.Languages...)
		if instance.Labels == nil {
			instance.Labels = map[string]string{}
		}
		p.Items[i] = instance
	}
	return rest.Answer(p), nil
}

func (a *API) drain(ctx context.Context, id auth.Identity, in *struct {
	GroupPath
	Instance string `path:"id"`
}) (*struct{}, error) {
	if _, err := a.Visible.Group(ctx, id, in.Name); err != nil {
		return nil, err
	}
	if err := a.Fleet.Drain(ctx, in.Name, in.Instance); err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "instance.drain", "instance/"+in.Name+"/"+in.Instance, nil, nil)
	return nil, nil
}
