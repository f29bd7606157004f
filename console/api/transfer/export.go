// Package transfer is the REST API that exports and imports groups, calendars, jobs and event triggers as YAML.
package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/console/api/alerts"
	"github.com/belfryhq/belfry/console/api/groups"
	"github.com/belfryhq/belfry/console/api/jobs"
	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/jobfile"
	"github.com/belfryhq/belfry/internal/store/account"
	storeevent "github.com/belfryhq/belfry/internal/store/event"
	"github.com/belfryhq/belfry/internal/store/view"
)

// API serves exports and imports. All fields must be set.
type API struct {
	Jobs      Jobs
	Lists     Lists
	Groups    Groups
	Counted   *groups.API // reads groups with their numbers
	Calendars Calendars
	Triggers  Triggers
	Channels  Channels
	Visible   *visible.Reader
	Audit     *rest.Audit
	Log       *slog.Logger
	Zone      *time.Location // of schedules that name none
}

// Jobs changes jobs.
type Jobs interface {
	CreateJob(ctx context.Context, spec domain.JobSpec, by string) (domain.Job, error)
	EditJob(ctx context.Context, id domain.JobID, version int, by string, edit func(*domain.JobSpec) error) (before, after domain.Job, err error)
}

// Lists reads jobs by page.
type Lists interface {
	Jobs(ctx context.Context, f view.JobFilter) ([]domain.Job, domain.JobID, error)
}

// Groups keeps groups.
type Groups interface {
	Groups(ctx context.Context, only []string, after string, limit int) ([]domain.Group, error)
	CreateGroup(ctx context.Context, name, description string) (domain.Group, string, error)
	DescribeGroup(ctx context.Context, name, description string) error
}

// Calendars keeps calendars.
type Calendars interface {
	Calendars(ctx context.Context, after string, limit int) ([]domain.Calendar, error)
	Calendar(ctx context.Context, name string) (domain.Calendar, error)
	CreateCalendar(ctx context.Context, spec domain.CalendarSpec, by string) (domain.Calendar, error)
	EditCalendar(ctx context.Context, name string, version int, by string, edit func(*domain.CalendarSpec) error) (before, after domain.Calendar, err error)
}

// Triggers keeps event triggers.
type Triggers interface {
	Triggers(ctx context.Context, f storeevent.TriggerFilter) ([]event.Trigger, error)
	CreateTrigger(ctx context.Context, spec event.TriggerSpec) (event.Trigger, error)
	EditTrigger(ctx context.Context, id int64, version int, edit func(*event.TriggerSpec) error) (before, after event.Trigger, err error)
}

// Channels reads alert channels.
type Channels interface {
	jobs.Channels
	Channels(ctx context.Context, after string, limit int) ([]alert.Channel, error)
	Channel(ctx context.Context, name string) (alert.Channel, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Export and import"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/export", Tag: tag, Summary: "Export groups, calendars, jobs, event triggers and alert channels", Needs: account.Viewer,
		Description: "YAML that POST /import accepts: everything that the caller may see, without tokens. An export of one group has only the calendars that its jobs use. " +
			"For admins, an export of all groups also has the alert channels, without secrets and addresses. Fields with their default value are left out, and children are " +
			"named by group/name. At most 50,000 jobs.",
		Responses: rest.TextResponse(yamlType, "The file")}, a.export)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/import", Tag: tag, Summary: "Import groups, calendars, jobs and event triggers", Needs: account.Operator,
		Description: "The body is YAML that GET /export has written, or a job file, of at most 1 MiB. Groups, calendars and jobs are identified by name, event triggers " +
			"by job and pattern. They are created, updated or left unchanged. Nothing is deleted. The whole file is checked before the first change. If it has any " +
			"fault, nothing is changed (locations are jobs[i].field). Then each item is changed in its own transaction, children first. If a change fails, " +
			"for example because of another change at the same time, the item has an error and counts in failed. Then import the file again. " +
			"The token of a new group is not shown: replace it to get one. New groups, and new or changed calendars, need the role admin. " +
			"Alert channels must already exist, and are not changed."}, a.importFile)
}

const (
	maxExported  = 50_000 // jobs, which take about 100 MB of memory
	exportPage   = 500
	yamlType     = "application/yaml"
	maxImportErr = 1000 // characters of one item's error
)

type exported struct {
	ContentType string `header:"Content-Type"`
	Disposition string `header:"Content-Disposition"`
	Body        []byte
}

func (a *API) export(ctx context.Context, id auth.Identity, in *struct {
	Group string `query:"group" doc:"Only this group"`
}) (*exported, error) {
	only := id.Only()
	if in.Group != "" {
		if _, err := a.Visible.Group(ctx, id, in.Group); err != nil {
			if domain.CodeOf(err) == domain.NotFound {
				err = visible.UnknownGroup(in.Group)
			}
			return nil, err
		}
		only = []string{in.Group}
	}
	found, err := a.allGroups(ctx, only)
	if err != nil {
		return nil, err
	}
	jobs, err := a.allJobs(ctx, view.JobFilter{Only: only})
	if err != nil {
		return nil, err
	}
	names := make(map[domain.JobID]string, len(jobs))
	for _, j := range jobs {
		names[j.ID] = jobfile.Key(j.Group, j.Name)
	}
	for _, j := range jobs { // children in groups that are not exported
		for _, c := range j.Children {
			if _, known := names[c.JobID]; known {
				continue
			}
			if child, err := a.Visible.Job(ctx, id, c.JobID); err == nil {
				names[c.JobID] = jobfile.Key(child.Group, child.Name)
			}
		}
	}
	hides := rest.HidesSecrets(id)
	if hides {
		for i := range jobs {
			jobs[i].Param = domain.Mask(jobs[i].Param)
			if jobs[i].Script != nil {
				script := *jobs[i].Script
				script.Code = domain.Mask(script.Code)
				jobs[i].Script = &script
			}
		}
	}
	slices.SortStableFunc(jobs, func(a, b domain.Job) int {
		return strings.Compare(jobfile.Key(a.Group, a.Name), jobfile.Key(b.Group, b.Name))
	})
	x := jobfile.Export{Groups: found, Jobs: jobs, JobName: func(id domain.JobID) (string, bool) { n, ok := names[id]; return n, ok }}
	if x.Triggers, err = a.allTriggers(ctx, only); err != nil {
		return nil, err
	}
	if hides {
		for i := range x.Triggers {
			x.Triggers[i].Param = domain.Mask(x.Triggers[i].Param)
		}
	}
	if x.Calendars, err = a.calendarsOf(ctx, jobs, in.Group == ""); err != nil {
		return nil, err
	}
	if id.Role == account.Admin && in.Group == "" {
		if x.Channels, err = a.bareChannels(ctx); err != nil {
			return nil, err
		}
	}
	text, err := jobfile.Write(x)
	if err != nil {
		return nil, err
	}
	return &exported{yamlType, `attachment; filename="belfry.yaml"`, text}, nil
}

func (a *API) allGroups(ctx context.Context, only []string) (all []domain.Group, err error) {
	for after := ""; ; {
		found, err := a.Groups.Groups(ctx, only, after, exportPage)
		if err != nil {
			return nil, err
		}
		if all = append(all, found...); len(found) < exportPage {
			return all, nil
		}
		after = found[len(found)-1].Name
	}
}

func (a *API) allTriggers(ctx context.Context, only []string) (all []event.Trigger, err error) {
	for after := int64(0); ; {
		triggers, err := a.Triggers.Triggers(ctx, storeevent.TriggerFilter{Only: only, After: after, Limit: exportPage})
		if err != nil {
			return nil, err
		}
		if all = append(all, triggers...); len(triggers) < exportPage {
			return all, nil
		}
		after = triggers[len(triggers)-1].ID
	}
}

// calendarsOf returns the calendars that the jobs use, or all calendars.
func (a *API) calendarsOf(ctx context.Context, jobs []domain.Job, all bool) (out []domain.Calendar, err error) {
	used := map[string]bool{}
	for _, j := range jobs {
		used[j.Schedule.Calendar] = true
	}
	for after := ""; ; {
		calendars, err := a.Calendars.Calendars(ctx, after, exportPage)
		if err != nil {
			return nil, err
		}
		for _, c := range calendars {
			if after = c.Name; all || used[c.Name] {
				out = append(out, c)
			}
		}
		if len(calendars) < exportPage {
			return out, nil
		}
	}
}

// bareChannels returns the alert channels without their secrets and addresses.
func (a *API) bareChannels(ctx context.Context) (all []json.RawMessage, err error) {
	for after := ""; ; {
		channels, err := a.Channels.Channels(ctx, after, exportPage)
		if err != nil {
			return nil, err
		}
		for _, c := range channels {
			b := alerts.BodyOf(c)
			b.URL, b.Secret = "", ""
			if b.Email != nil {
				b.Email.Password = ""
			}
			raw, err := json.Marshal(b) //nolint:gosec // it was emptied above
			if err != nil {
				return nil, fmt.Errorf("encode an alert channel: %w", err)
			}
			all = append(all, raw)
			after = c.Name
		}
		if len(channels) < exportPage {
			return all, nil
		}
	}
}

func (a *API) allJobs(ctx context.Context, f view.JobFilter) (all []domain.Job, err error) {
	for f.Limit = exportPage; ; {
		jobs, next, err := a.Lists.Jobs(ctx, f)
		if err != nil {
			return nil, err
		}
		if all = append(all, jobs...); next == 0 {
			return all, nil
		}
		if len(all) > maxExported {
			return nil, problem.Invalid("group", fmt.Sprintf("there are more than %d jobs; export one group at a time", maxExported))
		}
		f.After = next
	}
}
