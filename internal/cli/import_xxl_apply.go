package cli

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/jobfile"
	"github.com/belfryhq/belfry/internal/xxl/importer"
)

// The further actions of an import from XXL-JOB.
const (
	exists  = "exists"  // it is there and stays as it is
	skipped = "skipped" // it is not imported
)

// xxlImport sends a plan to a console. cl is nil in a dry run without a console.
type xxlImport struct {
	a      *app
	cl     *client.Client
	dryRun bool
	source string
	plan   *importer.Plan
	out    *xxlReport
	failed bool

	there    map[string]bool                    // groups by name
	records  map[string]map[int64]domain.WireID // by group and wire id
	jobs     map[string]map[string]domain.Job   // by group and name
	ids      map[int64]domain.JobID             // of imported jobs, by their ids in XXL-JOB
	channels map[string]bool
}

// groups reads the names of the console's groups.
func (x *xxlImport) groups() (map[string]bool, error) {
	x.there = map[string]bool{}
	if x.cl == nil {
		return x.there, nil
	}
	groups, err := x.cl.Groups(x.a.ctx, mostListed)
	for _, g := range groups {
		x.there[g.Name] = true
	}
	return x.there, err
}

func (x *xxlImport) run() error {
	x.records, x.jobs, x.ids, x.channels = map[string]map[int64]domain.WireID{}, map[string]map[string]domain.Job{}, map[int64]domain.JobID{}, map[string]bool{}
	for _, step := range []func() error{x.putGroups, x.readGroups, x.putChannels, x.putJobs, x.putUsers} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// note prints a refusal of the server and continues, unless no later request could succeed.
func (x *xxlImport) note(what string, err error) (text string, fatal error) {
	if err == nil {
		return "", nil
	}
	if x.a.ctx.Err() != nil || !authorized(err) {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	x.failed = true
	x.a.printError(fmt.Errorf("%s: %w", what, err))
	return err.Error(), nil
}

func (x *xxlImport) putGroups() error {
	for _, g := range x.plan.Groups {
		row := xxlGroup{Group: g, Action: exists}
		if !x.there[g.Name] {
			row.Action = created
			var err error
			if !x.dryRun {
				_, err = x.cl.CreateGroup(x.a.ctx, g.Name, g.Description)
			}
			if row.Error, err = x.note("group "+g.Name, err); err != nil {
				return err
			}
			if row.Error != "" {
				row.Action = refused
			}
			x.there[g.Name] = !x.dryRun && row.Error == ""
		}
		x.out.Groups = append(x.out.Groups, row)
	}
	return nil
}

// readGroups reads the jobs and the wire ids of the groups.
func (x *xxlImport) readGroups() error {
	for name, there := range x.there {
		imported := slices.ContainsFunc(x.plan.Groups, func(g importer.Group) bool { return g.Name == name })
		if !there || !imported && len(x.plan.Jobs) == 0 {
			continue
		}
		records, err := x.cl.WireIDs(x.a.ctx, name, mostIndexed)
		if err != nil {
			return err
		}
		x.records[name] = map[int64]domain.WireID{}
		for _, r := range records {
			x.records[name][r.WireID] = r
			if r.Source == x.source && !r.JobDeleted {
				x.ids[r.WireID] = r.JobID
			}
		}
		if !imported {
			continue // only children may be there
		}
		jobs, err := x.cl.Jobs(x.a.ctx, client.JobFilter{Group: name}, mostIndexed)
		if err != nil {
			return err
		}
		x.jobs[name] = map[string]domain.Job{}
		for _, j := range jobs {
			x.jobs[name][j.Name] = j
		}
	}
	return nil
}

func (x *xxlImport) putChannels() error {
	if len(x.plan.Channels) == 0 {
		return nil
	}
	if x.cl != nil {
		channels, err := x.cl.AlertChannels(x.a.ctx, mostListed)
		if err != nil && client.StatusOf(err) != 403 {
			return err
		}
		for _, c := range channels {
			x.channels[c.Name] = true
		}
	}
	for _, c := range x.plan.Channels {
		row := xxlChannel{Channel: c, Action: exists}
		if !x.channels[c.Name] {
			row.Action = created
			var err error
			if !x.dryRun {
				_, err = x.cl.CreateAlertChannel(x.a.ctx, map[string]any{"name": c.Name, "kind": "email", "description": "Alarm addresses of XXL-JOB; set the mail server",
					"email": map[string]any{"host": "smtp.invalid", "from": "belfry@smtp.invalid", "to": c.To}})
			}
			if row.Error, err = x.note("alert channel "+c.Name, err); err != nil {
				return err
			}
			if row.Error != "" {
				row.Action = refused
			}
			x.channels[c.Name] = row.Error == ""
		}
		x.out.Channels = append(x.out.Channels, row)
	}
	return nil
}

// putJobs creates and updates the jobs, children before their parents, and reports them in the order of their ids.
func (x *xxlImport) putJobs() error {
	byID := make(map[int64]*importer.Job, len(x.plan.Jobs))
	for i := range x.plan.Jobs {
		byID[x.plan.Jobs[i].ID] = &x.plan.Jobs[i]
	}
	rows := make(map[int64]xxlJob, len(byID))
	var put func(j *importer.Job) error
	put = func(j *importer.Job) error {
		if _, done := rows[j.ID]; done {
			return nil
		}
		rows[j.ID] = xxlJob{} // children have no cycles, because Convert leaves out the edges that close one
		for _, id := range j.Children {
			if child := byID[id]; child != nil {
				if err := put(child); err != nil {
					return err
				}
			}
		}
		row, err := x.putJob(j)
		rows[j.ID] = row
		return err
	}
	for i := range x.plan.Jobs {
		if err := put(&x.plan.Jobs[i]); err != nil {
			return err
		}
	}
	for i := range x.plan.Jobs {
		x.out.Jobs = append(x.out.Jobs, rows[x.plan.Jobs[i].ID])
	}
	return nil
}

func (x *xxlImport) putJob(j *importer.Job) (xxlJob, error) {
	x.resolve(j)
	row := xxlJob{XXLID: j.ID, AppName: j.AppName, Group: j.Spec.Group, Name: j.Spec.Name, Verdict: j.Verdict, Differences: j.Differences, Reason: j.Reason,
		Action: skipped, Updated: []string{}, Kept: []importer.Kept{}, Enabled: j.EnabledThere,
		FireTimes: xxlFireTimes{instantsOf(j.Theirs), instantsOf(j.Ours)}}
	if !j.NextThere.IsZero() {
		at := domain.At(j.NextThere)
		row.NextTrigger = &at
	}
	if j.Verdict == importer.Impossible {
		return row, nil
	}
	err := x.write(j, &row)
	text, fatal := x.note(fmt.Sprintf("job %d, %s", j.ID, jobfile.Key(row.Group, row.Name)), err)
	if text != "" {
		row.Action, row.Verdict, row.Reason = refused, importer.Impossible, "the server refuses it: "+text
	}
	return row, fatal
}

// resolve replaces the children's ids and leaves out what the import could not create.
func (x *xxlImport) resolve(j *importer.Job) {
	differs := func(format string, args ...any) {
		j.Differences = append(j.Differences, fmt.Sprintf(format, args...))
		if j.Verdict == importer.Exact {
			j.Verdict = importer.Differs
		}
	}
	j.Spec.Children = []domain.Child{}
	for _, id := range j.Children {
		if child, known := x.ids[id]; known {
			j.Spec.Children = append(j.Spec.Children, domain.Child{JobID: child, On: domain.OnSuccess})
		} else {
			differs("child %d is not imported", id)
		}
	}
	if len(j.Spec.Alert.Channels) > 0 && !x.channels[j.Spec.Alert.Channels[0]] {
		j.Spec.Alert = domain.DefaultJobSpec().Alert
		differs("its alarm addresses are not kept, because the alert channel could not be created")
	}
}

// write creates or updates a job, and then its wire id.
func (x *xxlImport) write(j *importer.Job, row *xxlJob) error {
	theirs := j.Spec
	record, recorded := x.records[theirs.Group][j.ID]
	switch {
	case recorded && record.Source != x.source && !record.JobDeleted:
		row.Verdict, row.Reason = importer.Impossible, fmt.Sprintf("its id %d belongs to job %d of the group, which was imported from %s", j.ID, record.JobID, record.Source)
		return nil
	case recorded && record.Source == x.source && record.JobDeleted:
		row.Kept = append(row.Kept, importer.Kept{Field: "job", Belfry: "deleted", XXLJob: theirs.Name})
		return nil
	case recorded && !record.JobDeleted:
		return x.update(j, row, record)
	}
	if present, taken := x.jobs[theirs.Group][theirs.Name]; taken {
		if slices.Contains(present.Tags, importer.Tag) && !x.hasRecord(theirs.Group, present.ID) {
			// An earlier import ended between the creation of the job and that of its record.
			return x.update(j, row, domain.WireID{WireID: j.ID, JobID: present.ID})
		}
		theirs.Name = fmt.Sprintf("%s #%d", theirs.Name, j.ID)
		row.Name = theirs.Name
	}
	row.Action = created
	if x.dryRun {
		x.ids[j.ID] = notYet
		return nil
	}
	fields, err := toFields(theirs)
	if err != nil {
		return err
	}
	job, err := x.cl.CreateJob(x.a.ctx, fields)
	if err != nil {
		return err
	}
	row.ID, x.ids[j.ID] = job.ID, job.ID
	return x.record(j.ID, job.ID, theirs)
}

func (x *xxlImport) hasRecord(group string, id domain.JobID) bool {
	for _, r := range x.records[group] {
		if r.JobID == id {
			return true
		}
	}
	return false
}

func (x *xxlImport) update(j *importer.Job, row *xxlJob, record domain.WireID) error {
	now, err := x.cl.Job(x.a.ctx, record.JobID)
	if err != nil {
		return err
	}
	row.ID, row.Name, x.ids[j.ID] = now.ID, now.Name, now.ID
	theirs, base := j.Spec, domain.DefaultJobSpec()
	if record.Imported == nil || json.Unmarshal(record.Imported, &base) != nil {
		base = now.JobSpec
	}
	if other, taken := x.jobs[theirs.Group][theirs.Name]; taken && other.ID != now.ID { // the import has avoided this name before
		theirs.Name = fmt.Sprintf("%s #%d", theirs.Name, j.ID)
	}
	merged, updates, kept := importer.Merge(base, now.JobSpec, theirs)
	row.Updated, row.Kept, row.Action = append(row.Updated, updates...), append(row.Kept, kept...), unchanged
	if len(updates) > 0 {
		row.Action = updated
	}
	if x.dryRun {
		return nil
	}
	if len(updates) > 0 {
		fields, err := toFields(merged)
		if err != nil {
			return err
		}
		fields["version"] = now.Version
		if _, err := x.cl.ReplaceJob(x.a.ctx, now.ID, fields); err != nil {
			return err
		}
	}
	return x.record(j.ID, now.ID, theirs)
}

// record notes what was imported, if it changed.
func (x *xxlImport) record(wire int64, id domain.JobID, spec domain.JobSpec) error {
	raw, err := json.Marshal(importer.Base(spec))
	if err != nil {
		return err
	}
	w := domain.WireID{WireID: wire, JobID: id, Source: x.source, Imported: raw}
	if before, recorded := x.records[spec.Group][wire]; recorded && sameRecord(before, w) {
		return nil
	}
	return x.cl.SetWireID(x.a.ctx, spec.Group, w)
}

// sameRecord reports whether a record already says what another one would.
func sameRecord(before, now domain.WireID) bool {
	var was, is any
	if json.Unmarshal(before.Imported, &was) != nil || json.Unmarshal(now.Imported, &is) != nil {
		return false
	}
	before.Imported, now.Imported = nil, nil
	return reflect.DeepEqual(before, now) && reflect.DeepEqual(was, is)
}

// putUsers creates disabled users with a random password, which it forgets.
func (x *xxlImport) putUsers() error {
	there := map[string]bool{}
	if x.cl != nil && len(x.plan.Users) > 0 {
		users, err := x.cl.Users(x.a.ctx, mostListed)
		if err != nil && client.StatusOf(err) != 403 {
			return err
		}
		for _, u := range users {
			there[u.Username] = true
		}
	}
	for _, u := range x.plan.Users {
		row := xxlUser{User: u, Action: created}
		switch {
		case u.Reason != "":
			row.Action = skipped
		case there[u.Username]:
			row.Action = exists
		case !x.dryRun:
			err := x.createUser(u)
			if row.Error, err = x.note("user "+u.Username, err); err != nil {
				return err
			}
			if row.Error != "" {
				row.Action = refused
			}
		}
		x.out.Users = append(x.out.Users, row)
	}
	return nil
}

func (x *xxlImport) createUser(u importer.User) error {
	disabled := true
	_, err := x.cl.CreateUser(x.a.ctx, client.NewUser{Username: u.Username, Password: rand.Text() + rand.Text(), Role: u.Role, Groups: u.Groups, MustChangePassword: true})
	if err == nil {
		_, err = x.cl.ChangeUser(x.a.ctx, u.Username, client.UserChange{Disabled: &disabled})
	}
	return err
}
