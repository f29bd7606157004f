package api

import (
	"context"
	"reflect"
	"unicode/utf8"

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

const noGroup = "there is no group of this name"

func (a *API) registerGroups() {
	const tag = "Groups"
	register(a, operation{method: "GET", path: "/groups", tag: tag, summary: "List groups", needs: account.Viewer}, a.groups)
	register(a, operation{method: "POST", path: "/groups", tag: tag, summary: "Create a group", needs: account.Admin,
		status: 201, body: reflect.TypeFor[groupBody]()}, a.createGroup)
	register(a, operation{method: "GET", path: "/groups/{name}", tag: tag, summary: "Show a group", needs: account.Viewer}, a.group)
	register(a, operation{method: "PATCH", path: "/groups/{name}", tag: tag, summary: "Change a group's description", needs: account.Admin,
		body: reflect.TypeFor[groupChange]()}, a.changeGroup)
	register(a, operation{method: "DELETE", path: "/groups/{name}", tag: tag, summary: "Delete a group", needs: account.Admin,
		description: "A group with jobs is not deleted (409)."}, a.deleteGroup)
	register(a, operation{method: "POST", path: "/groups/{name}/token", tag: tag, summary: "Replace a group's token", needs: account.Admin,
		description: "The old token admits nobody from then on."}, a.replaceGroupToken)
	register(a, operation{method: "GET", path: "/groups/{name}/instances", tag: tag, summary: "List a group's instances",
		description: "All that send heartbeats, in one page.", needs: account.Viewer}, a.instances)
	register(a, operation{method: "POST", path: "/groups/{name}/instances/{id}/drain", tag: tag, summary: "Drain an instance", needs: account.Operator,
		description: "It takes nothing more and ends what it runs.", status: 202}, a.drain)
}

func (a *API) groups(ctx context.Context, id auth.Identity, in *struct{ List }) (*output[page[domain.Group]], error) {
	after, err := decodeCursor("group", in.Cursor)
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
	p := cut(groups, in.Limit, func(g domain.Group) string { return encodeCursor("group", g.Name) })
	for i := range p.Items {
		a.fillGroup(&p.Items[i], jobs)
	}
	return &output[page[domain.Group]]{p}, nil
}

// fillGroup adds what the database does not keep with a group.
func (a *API) fillGroup(g *domain.Group, jobs map[string]report.JobCount) {
	g.Jobs = int(jobs[g.Name].Jobs)
	g.Instances = len(a.Dispatcher.Instances(g.Name))
}

// readGroup returns a group that the caller may see, NotFound for any other.
func (a *API) readGroup(ctx context.Context, id auth.Identity, name string) (domain.Group, error) {
	g, err := a.bareGroup(ctx, id, name)
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

// bareGroup is readGroup without its jobs and instances, for who asks whether it is there.
func (a *API) bareGroup(ctx context.Context, id auth.Identity, name string) (domain.Group, error) {
	if err := may(id, name, noGroup); err != nil {
		return domain.Group{}, err
	}
	return a.Accounts.Group(ctx, name)
}

// checkGroup refuses the group that a list was to be restricted to, if it is not there for the caller. It is asked
// about empty lists only: the runs of a group that was deleted are still to be seen.
func (a *API) checkGroup(ctx context.Context, id auth.Identity, name string) error {
	if name == "" {
		return nil
	}
	_, err := a.bareGroup(ctx, id, name)
	if err != nil && domain.CodeOf(err) == domain.NotFound {
		return unknownGroup(name)
	}
	return err
}

func (a *API) group(ctx context.Context, id auth.Identity, in *GroupPath) (*output[domain.Group], error) {
	g, err := a.readGroup(ctx, id, in.Name)
	return &output[domain.Group]{g}, err
}

func (a *API) createGroup(ctx context.Context, id auth.Identity, in *struct{ JSONBody }) (*output[newGroup], error) {
	var b groupBody
	shape := in.decode(&b)
	var f domain.Faults
	if !domain.ValidGroupName(b.Name) {
		f.Add("name", domain.GroupNameRule)
	}
	checkDescription(&f, b.Description)
	if err := alsoFaulty(shape, f.Err("the group is not valid")); err != nil {
		return nil, err
	}
	g, token, err := a.Accounts.CreateGroup(ctx, b.Name, b.Description)
	if err != nil {
		return nil, err
	}
	a.audit(ctx, id, "group.create", "group/"+g.Name, nil, g)
	return &output[newGroup]{newGroup{g, token}}, nil
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
	JSONBody
}) (*output[domain.Group], error) {
	before, err := a.readGroup(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	b := groupChange{Description: before.Description}
	if err := in.decode(&b); err != nil {
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
	a.audit(ctx, id, "group.update", "group/"+in.Name, before, after)
	return &output[domain.Group]{after}, nil
}

func (a *API) deleteGroup(ctx context.Context, id auth.Identity, in *GroupPath) (*struct{}, error) {
	before, err := a.readGroup(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	if err := a.Accounts.DeleteGroup(ctx, in.Name); err != nil {
		return nil, err
	}
	a.audit(ctx, id, "group.delete", "group/"+in.Name, before, nil)
	return nil, nil
}

func (a *API) replaceGroupToken(ctx context.Context, id auth.Identity, in *GroupPath) (*output[groupToken], error) {
	token, err := a.Accounts.RotateGroupToken(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	a.audit(ctx, id, "group.token", "group/"+in.Name, nil, nil)
	return &output[groupToken]{groupToken{token}}, nil
}

func (a *API) instances(ctx context.Context, id auth.Identity, in *GroupPath) (*output[page[domain.Instance]], error) {
	if _, err := a.bareGroup(ctx, id, in.Name); err != nil {
		return nil, err
	}
	found := a.Dispatcher.Instances(in.Name)
	p := page[domain.Instance]{Items: make([]domain.Instance, len(found))}
	for i, instance := range found {
		instance.Handlers = append([]string{}, instance.Handlers...)
		instance.Languages = append([]string{}, instance.Languages...)
		if instance.Labels == nil {
			instance.Labels = map[string]string{}
		}
		p.Items[i] = instance
	}
	return &output[page[domain.Instance]]{p}, nil
}

func (a *API) drain(ctx context.Context, id auth.Identity, in *struct {
	GroupPath
	Instance string `path:"id"`
}) (*struct{}, error) {
	if _, err := a.bareGroup(ctx, id, in.Name); err != nil {
		return nil, err
	}
	if err := a.Dispatcher.Drain(ctx, in.Name, in.Instance); err != nil {
		return nil, err
	}
	a.audit(ctx, id, "instance.drain", "instance/"+in.Name+"/"+in.Instance, nil, nil)
	return nil, nil
}
