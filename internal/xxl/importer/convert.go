package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/xxl/quartz"
	"github.com/belfryhq/belfry/internal/xxl/source"
)

// Tag is the tag of every imported job.
const Tag = "xxl-job"

// Verdict says how well a job can be imported.
type Verdict string

// The verdicts.
const (
	Exact      Verdict = "exact"
	Differs    Verdict = "differs"
	Impossible Verdict = "impossible"
)

// Options are the decisions that the database does not hold.
type Options struct {
	Group    string         // only this app name; "" for all
	CronZone string         // an IANA name
	Quartz   quartz.Version // the release that the admin evaluates with
}

// Plan is what an import would create.
type Plan struct {
	Groups   []Group
	Jobs     []Job
	Channels []Channel
	Users    []User
}

// Group is an executor and its group.
type Group struct {
	AppName     string   `json:"app_name"`
	Name        string   `json:"group"`
	Description string   `json:"description"`
	Addresses   []string `json:"addresses,omitempty"` // entered by hand
	Notes       []string `json:"notes"`
}

// Job is a job and its verdict.
type Job struct {
	ID           int64 // in XXL-JOB
	AppName      string
	Spec         domain.JobSpec // without children; disabled
	Children     []int64        // ids in XXL-JOB
	Verdict      Verdict
	Differences  []string // of verdict differs
	Reason       string   // of verdict impossible
	EnabledThere bool
	NextThere    time.Time // zero if XXL-JOB does not fire it
	Theirs, Ours []time.Time
}

// Channel is an alert channel for a set of addresses.
type Channel struct {
	Name string   `json:"name"`
	To   []string `json:"to"`
}

// User is a user and its counterpart.
type User struct {
	Name     string   `json:"name"` // in XXL-JOB
	Username string   `json:"username"`
	Role     string   `json:"role"`
	Groups   []string `json:"groups"`
	Reason   string   `json:"reason,omitempty"` // why it is not imported
}

func (j *Job) differs(format string, args ...any) {
	j.Differences = append(j.Differences, fmt.Sprintf(format, args...))
}

func (j *Job) impossible(format string, args ...any) {
	if j.Reason == "" {
		j.Reason = fmt.Sprintf(format, args...)
	}
}

// Convert plans the import of a database.
func Convert(db *source.Database, o Options) *Plan {
	c := &converter{db: db, o: o, groups: map[int64]Group{}, jobs: map[int64]*source.Job{}, plan: &Plan{Groups: []Group{}, Jobs: []Job{}, Channels: []Channel{}, Users: []User{}}}
	c.allGroups()
	for i := range db.Jobs {
		c.jobs[db.Jobs[i].ID] = &db.Jobs[i]
	}
	names := c.jobNames()
	cycles := c.cycles()
	for i := range db.Jobs {
		j := &db.Jobs[i]
		if g, ok := c.groups[j.Group]; o.Group == "" || ok && g.AppName == o.Group {
			c.plan.Jobs = append(c.plan.Jobs, c.job(j, names[j.ID], cycles))
		}
	}
	if o.Group == "" {
		c.users()
	}
	return c.plan
}

type converter struct {
	db     *source.Database
	o      Options
	groups map[int64]Group
	jobs   map[int64]*source.Job
	plan   *Plan
}

func (c *converter) allGroups() {
	taken := map[string]bool{}
	for _, g := range c.db.Groups { // names that are valid as they are come first
		if domain.ValidGroupName(g.AppName) {
			taken[g.AppName] = true
		}
	}
	seen := map[string]string{}
	for _, g := range c.db.Groups {
		out := Group{AppName: g.AppName, Name: g.AppName, Description: strings.TrimSpace(clip(g.Title, 200)), Notes: []string{}}
		if name, twice := seen[g.AppName]; twice {
			out.Name = name
			out.Notes = append(out.Notes, "another executor has the same AppName; both become one group")
		} else if !domain.ValidGroupName(g.AppName) {
			out.Name = unique(groupName(g.AppName), taken)
			out.Notes = append(out.Notes, fmt.Sprintf("%q is not a valid group name; its executors need: belfry group xxl-token %s --alias '%s'", g.AppName, out.Name, g.AppName))
		}
		seen[g.AppName], taken[out.Name] = out.Name, true
		if g.Manual {
			out.Addresses = g.Addresses
			out.Notes = append(out.Notes, fmt.Sprintf("has manual addresses (%s); executors that register themselves need no entry", strings.Join(g.Addresses, ", ")))
		}
		c.groups[g.ID] = out
		if c.o.Group == "" || g.AppName == c.o.Group {
			c.plan.Groups = append(c.plan.Groups, out)
		}
	}
}

// groupName makes a group name of an AppName: lower case, with - for other characters.
func groupName(app string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_':
			return r
		}
		return '-'
	}, strings.ToLower(app)), "-_")
	if name == "" {
		name = "executor"
	}
	return name[:min(len(name), 60)]
}

func unique(name string, taken map[string]bool) string {
	out := name
	for n := 2; taken[out]; n++ {
		out = fmt.Sprintf("%s-%d", name[:min(len(name), 58)], n)
	}
	return out
}

// jobNames returns the jobs' names. XXL-JOB allows equal names, so all but the first get their id.
func (c *converter) jobNames() map[int64]string {
	names := make(map[int64]string, len(c.db.Jobs))
	taken := map[string]bool{}
	for _, j := range c.db.Jobs {
		name := clip(strings.Join(strings.Fields(printable(j.Description)), " "), 110)
		if name == "" {
			name = fmt.Sprintf("job %d", j.ID)
		}
		key := c.groups[j.Group].Name + "/"
		if taken[key+name] {
			name = fmt.Sprintf("%s #%d", name, j.ID)
		}
		taken[key+name], names[j.ID] = true, name
	}
	return names
}

var routes = map[string]domain.Route{
	"FIRST": domain.RouteFirst, "LAST": domain.RouteLast, "ROUND": domain.RouteRoundRobin, "RANDOM": domain.RouteRandom,
	"CONSISTENT_HASH": domain.RouteConsistentHash, "LEAST_FREQUENTLY_USED": domain.RouteLeastFrequentlyUsed,
	"LEAST_RECENTLY_USED": domain.RouteLeastRecentlyUsed, "FAILOVER": domain.RouteFailover, "BUSYOVER": domain.RouteBusyover,
	"SHARDING_BROADCAST": domain.RouteBroadcast,
}

var blocks = map[string]domain.Block{
	"SERIAL_EXECUTION": domain.BlockSerial, "DISCARD_LATER": domain.BlockDiscardLater, "COVER_EARLY": domain.BlockCoverEarly,
}

var languages = map[string]string{
	"GLUE_GROOVY": "groovy", "GLUE_SHELL": "bash", "GLUE_PYTHON": "python", "GLUE_NODEJS": "node", "GLUE_PHP": "php", "GLUE_POWERSHELL": "powershell",
}

func (c *converter) job(j *source.Job, name string, cycles map[int64][]int64) Job {
	spec := domain.DefaultJobSpec()
	group, known := c.groups[j.Group]
	spec.Group, spec.Name, spec.Enabled, spec.Tags = group.Name, name, false, []string{Tag}
	spec.BlockScope = domain.ScopeInstance
	spec.RetryBackoff = domain.RetryBackoff{Initial: domain.Duration(10 * time.Second), Factor: 1, Max: domain.Duration(10 * time.Second)}
	out := Job{ID: j.ID, AppName: group.AppName, EnabledThere: j.Enabled, Differences: []string{}, Theirs: []time.Time{}, Ours: []time.Time{}}
	out.NextThere, _ = j.NextTrigger()
	if !j.Enabled {
		out.NextThere = time.Time{}
	}
	if !known {
		out.impossible("its executor (job_group %d) does not exist", j.Group)
		spec.Group = "unknown"
	}
	if text := strings.TrimSpace(printable(j.Description)); text != name {
		spec.Description = clip(text, 1024)
	}
	spec.Author = clip(strings.TrimSpace(printable(j.Author)), 64)
	c.target(j, &spec, &out)
	c.policies(j, &spec, &out)
	c.children(j, &out, cycles)
	c.alert(j, &spec, &out)
	c.schedule(j, &spec, &out)
	out.Spec = spec
	switch {
	case out.Reason != "":
		out.Verdict = Impossible
	case len(out.Differences) > 0:
		out.Verdict = Differs
	default:
		out.Verdict = Exact
	}
	return out
}

func (c *converter) target(j *source.Job, spec *domain.JobSpec, out *Job) {
	switch {
	case len(j.Param) > domain.MaxParamBytes:
		out.impossible("its parameter has %d bytes; at most %d are allowed", len(j.Param), domain.MaxParamBytes)
	default:
		spec.Param = j.Param
	}
	kind := strings.TrimSpace(j.GlueType)
	if kind == "BEAN" || kind == "" {
		if spec.Handler = strings.TrimSpace(j.Handler); spec.Handler == "" {
			out.impossible("it has type BEAN and no handler")
		}
		return
	}
	language, known := languages[kind]
	switch {
	case kind == "GLUE_PYTHON2":
		out.impossible("GLUE_PYTHON2 needs Python 2, which Belfry does not have; change it to GLUE_PYTHON")
	case !known:
		out.impossible("its type %q is not known", kind)
	case strings.TrimSpace(j.GlueSource) == "":
		out.impossible("its script is empty")
	case len(j.GlueSource) > domain.MaxScriptBytes:
		out.impossible("its script has %d bytes; at most %d are allowed", len(j.GlueSource), domain.MaxScriptBytes)
	}
	spec.Script = &domain.Script{Language: language, Code: j.GlueSource, Remark: clip(printable(j.GlueRemark), 1024)}
}

func (c *converter) policies(j *source.Job, spec *domain.JobSpec, out *Job) {
	var known bool
	if spec.Route, known = routes[strings.TrimSpace(j.Route)]; !known {
		spec.Route = domain.RouteAny
		out.differs("route %q is not known; Belfry chooses any instance", j.Route)
	}
	if spec.Block, known = blocks[strings.TrimSpace(j.Block)]; !known {
		spec.Block = domain.BlockSerial
		if strings.TrimSpace(j.Block) != "" {
			out.differs("block strategy %q is not known; runs are serial", j.Block)
		}
	}
	switch strings.TrimSpace(j.Misfire) {
	case "DO_NOTHING", "":
		spec.Misfire = domain.MisfireSkip
	case "FIRE_ONCE_NOW":
		spec.Misfire = domain.MisfireFireOnce
	default:
		out.differs("misfire strategy %q is not known; missed fire times are skipped", j.Misfire)
	}
	if j.TimeoutSeconds > 0 {
		const most = 365 * 24 * 3600
		spec.Timeout = domain.Duration(time.Duration(min(j.TimeoutSeconds, most)) * time.Second)
		if j.TimeoutSeconds > most {
			out.differs("its timeout of %d s becomes a year", j.TimeoutSeconds)
		}
	}
	spec.Retries = int(min(max(j.Retries, 0), domain.MaxRetries))
	if j.Retries > domain.MaxRetries {
		out.differs("its %d retries become %d", j.Retries, domain.MaxRetries)
	}
}

// children reads the ids of the child jobs. The caller resolves them.
func (c *converter) children(j *source.Job, out *Job, cycles map[int64][]int64) {
	for text := range strings.SplitSeq(j.Children, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		id, err := strconv.ParseInt(text, 10, 64)
		switch child := c.jobs[id]; {
		case err != nil || id <= 0:
			out.differs("child %q is not a job id", text)
		case id == j.ID:
			out.differs("it is its own child, which XXL-JOB ignores")
		case child == nil:
			out.differs("child %d does not exist", id)
		case slices.Contains(cycles[j.ID], id):
			out.differs("child %d closes a cycle, which Belfry refuses", id)
		case slices.Contains(out.Children, id):
		case len(out.Children) == domain.MaxChildren:
			out.differs("child %d is over the limit of %d", id, domain.MaxChildren)
		default:
			out.Children = append(out.Children, id)
		}
	}
}

// cycles returns the children that must be left out, by parent: the edges that close a cycle, in the order of ids.
func (c *converter) cycles() map[int64][]int64 {
	closing := map[int64][]int64{}
	state := map[int64]int{} // 1: on the path, 2: done
	var visit func(j *source.Job)
	visit = func(j *source.Job) {
		state[j.ID] = 1
		for text := range strings.SplitSeq(j.Children, ",") {
			id, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			child := c.jobs[id]
			if err != nil || child == nil || id == j.ID {
				continue
			}
			switch state[id] {
			case 0:
				visit(child)
			case 1:
				closing[j.ID] = append(closing[j.ID], id)
			}
		}
		state[j.ID] = 2
	}
	for i := range c.db.Jobs {
		if state[c.db.Jobs[i].ID] == 0 {
			visit(&c.db.Jobs[i])
		}
	}
	return closing
}

// clip cuts a text to n characters.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}

// printable makes a text storable: valid UTF-8 without NUL.
func printable(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\ufffd")
}
