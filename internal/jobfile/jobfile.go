// Package jobfile reads and writes files of groups and jobs, and says how two jobs differ.
//
// A file holds one or several YAML documents (JSON is YAML), each of which is a job, a list of jobs, or what an export
// writes: a mapping with `groups`, `calendars`, `jobs` and more. Jobs are known by group and name, and so are their children: beside
// {job_id: 7} a child may be {job: group/name}, so that a file means the same on another server.
package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/belfryhq/belfry/internal/domain"
)

// MaxBytes bounds a file.
const MaxBytes = 16 << 20

// Version is the export's, in its field belfry.
const Version = 1

// Job is a job as a file has it. Its fields stay as they are, so that the server judges each of them.
type Job struct {
	Source      string // where it stands, for people
	Group, Name string
	Fields      map[string]any
}

// Key is how jobs are known across servers.
func (j *Job) Key() string { return Key(j.Group, j.Name) }

// Key returns group/name.
func Key(group, name string) string { return group + "/" + name }

// Group is a group as a file has it.
type Group struct {
	Source      string `json:"-"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Trigger is an event trigger as a file has it, with its job by name.
type Trigger struct {
	Source    string
	Job, Name string         // Name is the pattern
	Fields    map[string]any // but the job
}

// Channel is an alert channel as a file has it: without its secrets, so that nothing can be made of it.
type Channel struct{ Source, Name string }

// Calendar is a calendar as a file has it. Its fields stay as they are.
type Calendar struct {
	Source, Name string
	Fields       map[string]any
}

// File is what was read.
type File struct {
	Groups    []Group
	Calendars []Calendar
	Jobs      []Job
	Triggers  []Trigger
	Channels  []Channel
	seen      map[string]string // source by key
}

// readOnly are the fields that the server adds to a job. They may stand in a file that it wrote.
var readOnly = []string{"id", "last_fire_time", "next_fire_time", "created_at", "updated_at", "version", "note"}

// New returns an empty File.
func New() *File { return &File{seen: make(map[string]string)} }

// Parse reads one file; source names it in errors.
func Parse(source string, data []byte) (*File, error) {
	f := New()
	return f, f.Read(source, data)
}

// Read adds what data holds.
func (f *File) Read(source string, data []byte) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("%s is over %d MiB", source, MaxBytes>>20)
	}
	if err := tame(data); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	for document := 1; ; document++ {
		at := source
		if document > 1 {
			at = fmt.Sprintf("%s, document %d", source, document)
		}
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %s", at, yaml.FormatError(err, false, false))
		}
		if err := f.add(at, v); err != nil {
			return err
		}
	}
}

const (
	mostNested = 64 // values that may lie in each other
	// mostDocuments is how many documents one file may have: the parser looks at all of them for each.
	mostDocuments = 5000
)

// tame refuses what makes a small file large, a parser's stack deep or its work long: aliases, values nested without end,
// and very many documents.
func tame(data []byte) error {
	depth, line, entries, documents := 0, 0, 0, 0
	for _, t := range lexer.Tokenize(string(data)) {
		switch t.Type { //nolint:exhaustive // the others neither nest nor repeat
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return fmt.Errorf("line %d: anchors and aliases are not taken", t.Position.Line)
		case token.DocumentHeaderType:
			if documents++; documents > mostDocuments {
				return fmt.Errorf("line %d: the file has more than %d documents; a list of jobs in one document has no such bound", t.Position.Line, mostDocuments)
			}
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType:
			if t.Position.Line != line {
				line, entries = t.Position.Line, 0
			}
			entries++
		}
		if depth > mostNested || entries > mostNested || t.Position.IndentNum > 4*mostNested {
			return fmt.Errorf("line %d: values lie more than %d deep in each other", t.Position.Line, mostNested)
		}
	}
	return nil
}

func (f *File) add(at string, v any) error {
	switch v := v.(type) {
	case nil:
		return nil // an empty document
	case []any:
		return f.addJobs(at+", item", v)
	case map[string]any:
		_, jobs := v["jobs"]
		_, groups := v["groups"]
		_, triggers := v["event_triggers"]
		_, calendars := v["calendars"]
		if _, versioned := v["belfry"]; jobs || groups || triggers || calendars || versioned {
			return f.addExport(at, v)
		}
		return f.addJob(at, v)
	}
	return fmt.Errorf("%s: is no job: a job is a mapping of fields such as group, name, schedule and handler", at)
}

func (f *File) addJobs(at string, list []any) error {
	for i, item := range list {
		where := fmt.Sprintf("%s %d", at, i+1)
		fields, ok := item.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: is no job", where)
		}
		if err := f.addJob(where, fields); err != nil {
			return err
		}
	}
	return nil
}

func (f *File) addJob(at string, fields map[string]any) error {
	j := Job{Source: at, Fields: fields}
	j.Group, _ = fields["group"].(string)
	j.Name, _ = fields["name"].(string)
	if j.Group == "" || j.Name == "" {
		return fmt.Errorf("%s: a job needs a group and a name, by which it is known", at)
	}
	for _, field := range readOnly {
		delete(fields, field)
	}
	if first, twice := f.seen[j.Key()]; twice {
		return fmt.Errorf("%s: %s stands already at %s", at, j.Key(), first)
	}
	f.seen[j.Key()] = at
	f.Jobs = append(f.Jobs, j)
	return nil
}

func (f *File) addExport(at string, v map[string]any) error {
	for field := range maps.Keys(v) {
		switch field {
		case "groups", "calendars", "jobs", "event_triggers", "alert_channels":
			if _, ok := v[field].([]any); !ok && v[field] != nil {
				return fmt.Errorf("%s: %s must be a list", at, field)
			}
		case "belfry":
			if fmt.Sprint(v[field]) != fmt.Sprint(Version) {
				return fmt.Errorf("%s: belfry: %v is not a version that is known here; it is %d", at, v[field], Version)
			}
		default:
			return fmt.Errorf("%s: %s is not known; use groups, calendars, jobs, event_triggers and alert_channels", at, field)
		}
	}
	groups, _ := v["groups"].([]any)
	for i, item := range groups {
		where := fmt.Sprintf("%s, group %d", at, i+1)
		fields, _ := item.(map[string]any)
		g := Group{Source: where}
		g.Name, _ = fields["name"].(string)
		g.Description, _ = fields["description"].(string)
		for field, value := range fields {
			if _, text := value.(string); field != "name" && field != "description" || !text {
				return fmt.Errorf("%s: %s is not known, or no text; a group has name and description", where, field)
			}
		}
		if !domain.ValidGroupName(g.Name) {
			return fmt.Errorf("%s: name: %s", where, domain.GroupNameRule)
		}
		f.Groups = append(f.Groups, g)
	}
	calendars, _ := v["calendars"].([]any)
	for i, item := range calendars {
		c := Calendar{Source: fmt.Sprintf("%s, calendar %d", at, i+1)}
		c.Fields, _ = item.(map[string]any)
		if c.Name, _ = c.Fields["name"].(string); c.Name == "" {
			return fmt.Errorf("%s: a calendar needs a name", c.Source)
		}
		key := "calendar " + c.Name
		if first, twice := f.seen[key]; twice {
			return fmt.Errorf("%s: calendar %s stands already at %s", c.Source, c.Name, first)
		}
		f.seen[key] = c.Source
		f.Calendars = append(f.Calendars, c)
	}
	jobs, _ := v["jobs"].([]any)
	if err := f.addJobs(at+", job", jobs); err != nil {
		return err
	}
	triggers, _ := v["event_triggers"].([]any)
	for i, item := range triggers {
		t := Trigger{Source: fmt.Sprintf("%s, event trigger %d", at, i+1)}
		t.Fields, _ = item.(map[string]any)
		t.Job, _ = t.Fields["job"].(string)
		t.Name, _ = t.Fields["name"].(string)
		if t.Job == "" || t.Name == "" {
			return fmt.Errorf("%s: an event trigger needs a name, and a job as group/name", t.Source)
		}
		delete(t.Fields, "job")
		f.Triggers = append(f.Triggers, t)
	}
	channels, _ := v["alert_channels"].([]any)
	for i, item := range channels {
		c := Channel{Source: fmt.Sprintf("%s, alert channel %d", at, i+1)}
		fields, _ := item.(map[string]any)
		if c.Name, _ = fields["name"].(string); c.Name == "" {
			return fmt.Errorf("%s: an alert channel needs a name", c.Source)
		}
		f.Channels = append(f.Channels, c)
	}
	return nil
}

// Children returns the names of the children that a job names by name.
func (j *Job) Children() (names []string) {
	for _, c := range j.children() {
		if name, ok := c["job"].(string); ok {
			names = append(names, name)
		}
	}
	return names
}

func (j *Job) children() (out []map[string]any) {
	list, _ := j.Fields["children"].([]any)
	for _, item := range list {
		if c, ok := item.(map[string]any); ok {
			out = append(out, c)
		}
	}
	return out
}

// Resolve puts ids in the place of children's names. It returns what find does not know; those stay as they are.
func (j *Job) Resolve(find func(name string) (domain.JobID, bool)) (unknown []string) {
	for _, c := range j.children() {
		name, ok := c["job"].(string)
		if !ok {
			continue
		}
		if id, known := find(name); known {
			delete(c, "job")
			c["job_id"] = int64(id)
		} else {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// InOrder returns the jobs with children before their parents, as far as there is such an order, else as they stand.
func (f *File) InOrder() []*Job {
	byKey := make(map[string]*Job, len(f.Jobs))
	for i := range f.Jobs {
		byKey[f.Jobs[i].Key()] = &f.Jobs[i]
	}
	out := make([]*Job, 0, len(f.Jobs))
	seen := make(map[string]bool, len(f.Jobs))
	var visit func(j *Job)
	visit = func(j *Job) {
		if seen[j.Key()] {
			return
		}
		seen[j.Key()] = true
		for _, name := range j.Children() {
			if c := byKey[name]; c != nil {
				visit(c)
			}
		}
		out = append(out, j)
	}
	for i := range f.Jobs {
		visit(&f.Jobs[i])
	}
	return out
}

// Difference is a field in which two jobs differ; a field that is not there is empty.
type Difference struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// Diff returns what changes from one job to another, by field.
func Diff(from, to domain.JobSpec) []Difference {
	from.Normalize()
	to.Normalize()
	to.ContinueScript(from.Script)
	a, b := flat(from), flat(to)
	for _, made := range []string{"script.version", "script.sha256"} { // of the code, which is compared itself
		delete(a, made)
		delete(b, made)
	}
	fields := slices.Sorted(maps.Keys(a))
	for field := range b {
		if _, both := a[field]; !both {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	changes := []Difference{}
	for _, field := range fields {
		if a[field] != b[field] {
			changes = append(changes, Difference{field, a[field], b[field]})
		}
	}
	return changes
}

// flat returns the fields of a job by their paths, as JSON; strings without quotes.
func flat(spec domain.JobSpec) map[string]string {
	data, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("jobfile: encode a job: %v", err)) // it always has a JSON form
	}
	out := make(map[string]string)
	flatten(out, "", data)
	return out
}

func flatten(out map[string]string, path string, raw json.RawMessage) {
	var fields map[string]json.RawMessage
	if raw[0] == '{' && json.Unmarshal(raw, &fields) == nil {
		for name, v := range fields {
			flatten(out, strings.TrimPrefix(path+"."+name, "."), v)
		}
		return
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	out[path] = text
}
