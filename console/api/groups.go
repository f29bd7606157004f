package api

import (
	"context"
	"unicode/utf8"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/report"
)

type groupBody struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

type groupChange struct {
	Description string `json:"description"`
}

type newGroup struct {
	domain.Group
	Token string `json:"token" doc:"What the group's executors connect with, shown this once"`
}

type groupToken struct {
	Token string `json:"token" doc:"The group's new token, shown this once"`
}

// GroupPath names a group in the path.
type GroupPath struct {
	Name string `path:"name"`
}

func (a *API) registerGroups() {
	const tag = "Groups"
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/groups", Tag: tag, Summary: "List groups", Needs: account.Viewer}, a.groups)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/groups", Tag: tag, Summary: "Create a group", Needs: account.Admin,
		Status: 201, Body: rest.BodyOf[groupBody]()}, a.createGroup)
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/groups/{name}", Tag: tag, Summary: "Show a group", Needs: account.Viewer}, a.group)
	rest.Register(a.rest, rest.Operation{Method: "PATCH", Path: "/groups/{name}", Tag: tag, Summary: "Change a group's description", Needs: account.Admin,
		Body: rest.BodyOf[groupChange]()}, a.changeGroup)
	rest.Register(a.rest, rest.Operation{Method: "DELETE", Path: "/groups/{name}", Tag: tag, Summary: "Delete a group", Needs: account.Admin,
		Description: "A group with jobs is not deleted (409)."}, a.deleteGroup)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/groups/{name}/token", Tag: tag, Summary: "Replace a group's token", Needs: account.Admin,
		Description: "The old token admits nobody from then on."}, a.replaceGroupToken)
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/groups/{name}/instances", Tag: tag, Summary: "List a group's instances",
		Description: "All that send heartbeats, in one page.", Needs: account.Viewer}, a.instances)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/groups/{name}/instances/{id}/drain", Tag: tag, Summary: "Drain an instance", Needs: account.Operator,
		Description: "It takes nothing more and ends what it runs.", Status: 202}, a.drain)
}

func (a *API) groups(ctx context.Context, id auth.Identity, in *struct{ rest.List }) (*rest.Output[rest.Page[domain.Group]], error) {
	after, err := rest.DecodeCursor("group", in.Cursor)
	if err != nil {
		return nil, err
	}
	groups, err := a.Accounts.Groups(ctx, id.Only(), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	jobs, err := a.Reports.JobCounts(ctx)
	if err != nil {
		return nil, err
	}
	p := rest.Cut(groups, in.Limit, func(g domain.Group) string { return rest.EncodeCursor("group", g.Name) })
	for i := range p.Items {
		a.fillGroup(&p.Items[i], jobs)
	}
	return rest.Answer(p), nil
}

// fillGroup adds what the database does not keep with a group.
func (a *API) fillGroup(g *domain.Group, jobs map[string]report.JobCount) {
	g.Jobs = int(jobs[g.Name].Jobs)
	g.Instances = len(a.Dispatcher.Instances(g.Name))
}

// readGroup returns a group that the caller may see, NotFound for any other.
func (a *API) readGroup(ctx context.Context, id auth.Identity, name string) (domain.Group, error) {
	g, err := a.visible.Group(ctx, id, name)
	if err != nil {
		return g, err
	}
	jobs, err := a.Reports.JobCounts(ctx)
	if err != nil {
		return g, err
	}
	a.fillGroup(&g, jobs)
	return g, nil
}

func (a *API) group(ctx context.Context, id auth.Identity, in *GroupPath) (*rest.Output[domain.Group], error) {
	g, err := a.readGroup(ctx, id, in.Name)
	return rest.Answer(g), err
}

func (a *API) createGroup(ctx context.Context, id auth.Identity, in *struct{ rest.JSONBody }) (*rest.Output[newGroup], error) {
	var b groupBody
	shape := in.Decode(&b)
	var f domain.Faults
	if !domain.ValidGroupName(b.Name) {
		f.Add("name", domain.GroupNameRule)
	}
	checkDescription(&f, b.Description)
	if err := strict.AlsoFaulty(shape, f.Err("the group is not valid")); err != nil {
		return nil, err
	}
	g, token, err := a.Accounts.CreateGroup(ctx, b.Name, b.Description)
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "group.create", "group/"+g.Name, nil, g)
	return rest.Answer(newGroup{g, token}), nil
}

func checkDescription(f *domain.Faults, s string) {
	if n := utf8.RuneCountInString(s); n > 1024 {
		f.Add("description", "has more than 1024 characters")
	}
	for _, c := range s {
		if c == 0 {
			f.Add("description", "must not have a NUL")
			return
		}
	}
}

func (a *API) changeGroup(ctx context.Context, id auth.Identity, in *struct {
	GroupPath
	rest.JSONBody
}) (*rest.Output[domain.Group], error) {
	before, err := a.readGroup(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	b := groupChange{Description: before.Description}
	if err := in.Decode(&b); err != nil {
		return nil, err
	}
	var f domain.Faults
	checkDescription(&f, b.Description)
	if err := f.Err("the group is not valid"); err != nil {
		return nil, err
	}
	if err := a.Accounts.DescribeGroup(ctx, in.Name, b.Description); err != nil {
		return nil, err
	}
	after, err := a.readGroup(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "group.update", "group/"+in.Name, before, after)
	return rest.Answer(after), nil
}

func (a *API) deleteGroup(ctx context.Context, id auth.Identity, in *GroupPath) (*struct{}, error) {
	before, err := a.readGroup(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	if err := a.Accounts.DeleteGroup(ctx, in.Name); err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "group.delete", "group/"+in.Name, before, nil)
	return nil, nil
}

func (a *API) replaceGroupToken(ctx context.Context, id auth.Identity, in *GroupPath) (*rest.Output[groupToken], error) {
	token, err := a.Accounts.RotateGroupToken(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "group.token", "group/"+in.Name, nil, nil)
	return rest.Answer(groupToken{token}), nil
}

func (a *API) instances(ctx context.Context, id auth.Identity, in *GroupPath) (*rest.Output[rest.Page[domain.Instance]], error) {
	if _, err := a.visible.Group(ctx, id, in.Name); err != nil {
		return nil, err
	}
	found := a.Dispatcher.Instances(in.Name)
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
	if _, err := a.visible.Group(ctx, id, in.Name); err != nil {
		return nil, err
	}
	if err := a.Dispatcher.Drain(ctx, in.Name, in.Instance); err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "instance.drain", "instance/"+in.Name+"/"+in.Instance, nil, nil)
	return nil, nil
}
