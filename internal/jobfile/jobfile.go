// Package jobfile reads and writes files of groups and jobs, and compares jobs.
//
// A file has one or several YAML documents (JSON is YAML). Each is a job, a list of jobs, or an export: a mapping with
// `groups`, `calendars`, `jobs` and more. Jobs are identified by group and name, and so are their children: instead of
// {job_id: 7} a child may be {job: group/name}, so that a file has the same meaning on another server.
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

// Version is the version of exports, in their field belfry.
const Version = 1

// Job is a job in a file. Its fields are not interpreted, so that the server validates each of them.
type Job struct {
	Source      string // its location, for messages
	Group, Name string
	Fields      map[string]any
}

// Key identifies a job across servers.
func (j *Job) Key() string { return Key(j.Group, j.Name) }

// Key returns group/name.
func Key(group, name string) string { return group + "/" + name }

// Group is a group in a file.
type Group struct {
	Source      string `json:"-"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Trigger is an event trigger in a file, with its job by name.
type Trigger struct {
	Source    string
	Job, Name string         // Name is the pattern
	Fields    map[string]any // without the job
}

// Channel is an alert channel in a file. It has no secrets, so it cannot be created from the file.
type Channel struct{ Source, Name string }

// Calendar is a calendar in a file. Its fields are not interpreted.
type Calendar struct {
	Source, Name string
	Fields       map[string]any
}

// File is the content of one or several files.
type File struct {
	Groups    []Group
	Calendars []Calendar
	Jobs      []Job
	Triggers  []Trigger
	Channels  []Channel
	seen      map[string]string // source by key
}

// readOnly are the fields that the server adds to a job. An exported file may contain them.
var readOnly = []string{"id", "last_fire_time", "next_fire_time", "created_at", "updated_at", "version", "note", "health", "schedule_description",
	"paused_at", "paused_until", "pause_reason", "paused_by"}

// New returns an empty File.
func New() *File { return &File{seen: make(map[string]string)} }

// Parse reads one file. source is its name in errors.
func Parse(source string, data []byte) (*File, error) {
	f := New()
	return f, f.Read(source, data)
}

// Read adds the content of data.
func (f *File) Read(source string, data []byte) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("%s is larger than %d MiB", source, MaxBytes>>20)
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
	mostNested = 64 // nested values
	// mostDocuments bounds the documents of a file: the parser's work for each document grows with their number.
	mostDocuments = 5000
)

// tame refuses input that makes a small file large, the parser's stack deep or its work long: aliases, deep nesting,
// and very many documents.
func tame(data []byte) error {
	depth, line, entries, documents := 0, 0, 0, 0
	for _, t := range lexer.Tokenize(string(data)) {
		switch t.Type { //nolint:exhaustive // the others neither nest nor repeat
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return fmt.Errorf("line %d: anchors and aliases are not supported", t.Position.Line)
		case token.DocumentHeaderType:
			if documents++; documents > mostDocuments {
				return fmt.Errorf("line %d: the file has more than %d documents; put the jobs into a list in one document, which has no such limit", t.Position.Line, mostDocuments)
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
			return fmt.Errorf("line %d: values are nested more than %d levels deep", t.Position.Line, mostNested)
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
	return fmt.Errorf("%s: is not a job: a job is a mapping of fields such as group, name, schedule and handler", at)
}

func (f *File) addJobs(at string, list []any) error {
	for i, item := range list {
		where := fmt.Sprintf("%s %d", at, i+1)
		fields, ok := item.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: is not a job", where)
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
		return fmt.Errorf("%s: a job needs a group and a name", at)
	}
	for _, field := range readOnly {
		delete(fields, field)
	}
	if first, twice := f.seen[j.Key()]; twice {
		return fmt.Errorf("%s: %s is already defined at %s", at, j.Key(), first)
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
				return fmt.Errorf("%s: belfry: %v is not a supported version; write %d", at, v[field], Version)
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
				return fmt.Errorf("%s: %s is not known or not a text; a group has name and description", where, field)
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
			return fmt.Errorf("%s: calendar %s is already defined at %s", c.Source, c.Name, first)
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

// Children returns the names of a job's children that are given by name.
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

// Resolve replaces children's names by ids. It returns the names that find does not know, which stay unchanged.
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

// InOrder returns the jobs with children before their parents if there is such an order, otherwise in the order of the
// file.
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

// Difference is a field in which two jobs differ; a missing field is empty.
type Difference struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// Diff returns the changes from one job to another, by field.
func Diff(from, to domain.JobSpec) []Difference {
	from.Normalize()
	to.Normalize()
	to.ContinueScript(from.Script)
	a, b := flat(from), flat(to)
	for _, made := range []string{"script.version", "script.sha256"} { // derived from the code, which is compared itself
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

// flat returns the fields of a job by their paths, as JSON; strings have no quotes.
func flat(spec domain.JobSpec) map[string]string {
	data, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("jobfile: encode a job: %v", err)) // it always has a JSON encoding
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
