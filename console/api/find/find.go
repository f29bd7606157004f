// Package find is the REST API of the search by the beginnings of words, and of the tags of jobs.
package find

import (
	"context"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

// API finds groups, jobs, tags and instances. All fields must be set.
type API struct {
	Lists     Lists
	Instances Instances
	Visible   *visible.Reader
}

// Lists finds what is stored, in some groups (nil: all). Package view documents the methods.
type Lists interface {
	Find(ctx context.Context, only []string, text string, limit int) (view.Found, error)
	Tags(ctx context.Context, only []string, begin string, limit int) ([]view.TagCount, error)
}

// Instances knows the live instances of a group, or of all groups if group is empty.
type Instances interface {
	Instances(group string) []domain.Instance
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	rest.Register(r, rest.Operation{Method: "GET", Path: "/search", Tag: "Search", Summary: "Find groups, jobs, tags and instances", Needs: account.Viewer,
		Description: "Finds what the caller sees. A group is found if each word of q is the beginning of a word of its name; a job, if each word is the beginning " +
			"of a word of the job's or the group's name. Letters and digits form words, and upper and lower case are equal. Each character of Chinese, Japanese " +
			"and Korean text begins a word. Tags and instances are found if they begin with q. " +
			"The search reads 4,000 names of jobs at most: if all words are the beginnings of very many names, it may miss some jobs."}, a.search)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/tags", Tag: "Jobs", Summary: "List the tags of jobs", Needs: account.Viewer,
		Description: "The tags of the jobs that the caller sees, those of the most jobs first. If the groups and their tags have more than 10,000 pairs, " +
			"tags of few jobs may be missing or have too small a count."}, a.tags)
}

type found struct {
	Groups    []string        `json:"groups" nullable:"false"`
	Jobs      []foundJob      `json:"jobs" nullable:"false"`
	Tags      []string        `json:"tags" nullable:"false"`
	Instances []foundInstance `json:"instances" nullable:"false" doc:"Live instances"`
}

type foundJob struct {
	ID    domain.JobID `json:"id"`
	Group string       `json:"group"`
	Name  string       `json:"name"`
}

type foundInstance struct {
	Group    string `json:"group"`
	Instance string `json:"instance"`
}

func (a *API) search(ctx context.Context, id auth.Identity, in *struct {
	Q     string `query:"q" required:"true" maxLength:"128" doc:"Words, or their beginnings"`
	Limit int    `query:"limit" minimum:"1" maximum:"50" default:"10" doc:"The maximum number of results of each kind"`
}) (*rest.Output[found], error) {
	f, err := a.Lists.Find(ctx, id.Only(), in.Q, in.Limit)
	if err != nil {
		return nil, err
	}
	out := found{Groups: f.Groups, Tags: f.Tags, Instances: a.instances(id, strings.TrimSpace(in.Q), in.Limit)}
	out.Jobs = rest.Each(f.Jobs, func(j view.FoundJob) foundJob { return foundJob(j) })
	if out.Groups == nil {
		out.Groups = []string{}
	}
	if out.Tags == nil {
		out.Tags = []string{}
	}
	return rest.Answer(out), nil
}

// instances returns the instances of the caller's groups whose names begin with a text, by name.
func (a *API) instances(id auth.Identity, begin string, limit int) []foundInstance {
	out := []foundInstance{}
	if begin == "" {
		return out
	}
	begin = strings.ToLower(begin)
	for _, i := range a.Instances.Instances("") {
		if id.Sees(i.Group) && strings.HasPrefix(strings.ToLower(i.ID), begin) {
			out = append(out, foundInstance{i.Group, i.ID})
		}
	}
	slices.SortFunc(out, func(x, y foundInstance) int {
		return strings.Compare(x.Instance+"\x00"+x.Group, y.Instance+"\x00"+y.Group)
	})
	return out[:min(len(out), limit)]
}

type tagCounts struct {
	Items []tagCount `json:"items" nullable:"false"`
}

type tagCount struct {
	Tag  string `json:"tag"`
	Jobs int64  `json:"jobs" doc:"The number of jobs that have the tag"`
}

func (a *API) tags(ctx context.Context, id auth.Identity, in *struct {
	Q     string `query:"q" maxLength:"128" doc:"Only tags that begin with this text"`
	Group string `query:"group" doc:"Only tags of jobs of this group"`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
}) (*rest.Output[tagCounts], error) {
	only := id.Only()
	if in.Group != "" {
		if _, err := a.Visible.Group(ctx, id, in.Group); err != nil {
			return nil, err
		}
		only = []string{in.Group}
	}
	tags, err := a.Lists.Tags(ctx, only, in.Q, in.Limit)
	return rest.Answer(tagCounts{rest.Each(tags, func(t view.TagCount) tagCount { return tagCount(t) })}), err
}
