package jobfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
)

// Export is the input of Write.
type Export struct {
	Groups    []domain.Group
	Calendars []domain.Calendar
	Jobs      []domain.Job
	Triggers  []event.Trigger
	Channels  []json.RawMessage // without secrets
	// JobName returns the group/name of a child. If it returns false, Write keeps the id of the child.
	JobName func(domain.JobID) (string, bool)
}

// Write returns an export, which Parse can read. It leaves out job fields with their default values, and keeps the
// order of everything.
func Write(x Export) ([]byte, error) {
	type trigger struct {
		Name    string `json:"name"`
		Job     string `json:"job"`
		Filter  string `json:"filter"`
		Param   string `json:"param"`
		Enabled bool   `json:"enabled"`
	}
	out := struct {
		Belfry    int                   `json:"belfry"`
		Groups    []Group               `json:"groups"`
		Calendars []domain.CalendarSpec `json:"calendars,omitempty"`
		Jobs      []json.RawMessage     `json:"jobs"`
		Triggers  []trigger             `json:"event_triggers,omitempty"`
		Channels  []json.RawMessage     `json:"alert_channels,omitempty"`
	}{Belfry: Version, Groups: []Group{}, Jobs: []json.RawMessage{}, Channels: x.Channels}
	for _, g := range x.Groups {
		out.Groups = append(out.Groups, Group{Name: g.Name, Description: g.Description})
	}
	for _, c := range x.Calendars {
		out.Calendars = append(out.Calendars, c.CalendarSpec)
	}
	for _, j := range x.Jobs {
		raw, err := brief(j.JobSpec, x.JobName)
		if err != nil {
			return nil, fmt.Errorf("write job %s/%s: %w", j.Group, j.Name, err)
		}
		out.Jobs = append(out.Jobs, raw)
	}
	for _, t := range x.Triggers {
		out.Triggers = append(out.Triggers, trigger{t.Name, Key(t.Group, t.JobName), t.Filter, t.Param, t.Enabled})
	}
	return YAML(out)
}

// brief returns a job without the fields that have their default values.
func brief(spec domain.JobSpec, name func(domain.JobID) (string, bool)) (json.RawMessage, error) {
	spec.Normalize()
	if spec.Script != nil {
		script := *spec.Script
		script.Version, script.SHA256 = 0, ""
		spec.Script = &script
	}
	defaults := domain.DefaultJobSpec()
	defaults.Normalize()
	common, err := fieldsOf(defaults)
	if err != nil {
		return nil, err
	}
	fields, err := fieldsOf(spec)
	if err != nil {
		return nil, err
	}
	value := make(map[string]json.RawMessage, len(common))
	for _, f := range common {
		value[f.name] = f.value
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for _, f := range fields {
		if bytes.Equal(f.value, value[f.name]) && f.name != "group" && f.name != "name" && f.name != "schedule" {
			continue
		}
		if f.name == "children" {
			if f.value, err = named(spec.Children, name); err != nil {
				return nil, err
			}
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", f.name, f.value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func named(children []domain.Child, name func(domain.JobID) (string, bool)) (json.RawMessage, error) {
	type child struct {
		Job   string         `json:"job,omitempty"`
		JobID domain.JobID   `json:"job_id,omitempty"`
		On    domain.ChildOn `json:"on"`
	}
	out := make([]child, len(children))
	for i, c := range children {
		out[i] = child{JobID: c.JobID, On: c.On}
		if n, known := name(c.JobID); known {
			out[i].Job, out[i].JobID = n, 0
		}
	}
	return json.Marshal(out)
}

type field struct {
	name  string
	value json.RawMessage
}

// fieldsOf returns the fields of a job's JSON encoding, in order.
func fieldsOf(spec domain.JobSpec) (fields []field, err error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(spec); err != nil {
		return nil, err
	}
	d := json.NewDecoder(&b)
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		fields = append(fields, field{key.(string), value})
	}
	return fields, nil
}

// YAML writes the JSON encoding of v as YAML, so that names, order and values are those of the API.
func YAML(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	d := json.NewDecoder(&b)
	d.UseNumber()
	ordered, err := decodeOrdered(d)
	if err != nil {
		return nil, err
	}
	return yaml.MarshalWithOptions(ordered, yaml.UseLiteralStyleIfMultiline(true), yaml.IndentSequence(true))
}

// decodeOrdered reads one JSON value and keeps the order of its fields.
func decodeOrdered(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			list := []any{}
			for d.More() {
				v, err := decodeOrdered(d)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err := d.Token()
			return list, err
		}
		fields := yaml.MapSlice{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := decodeOrdered(d)
			if err != nil {
				return nil, err
			}
			fields = append(fields, yaml.MapItem{Key: key, Value: v})
		}
		_, err := d.Token()
		return fields, err
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return n, nil
		}
		return t.Float64()
	case string:
		if t != "" && !plain.MatchString(t) && !(strings.ContainsRune(t, '\n') && blockSafe(t)) {
			return quoted(t), nil
		}
	}
	return token, nil
}

// plain matches strings that the YAML package may write in any style; it quotes strings that would be a number, null or
// another value.
var plain = regexp.MustCompile(`^[\pL\pN_./]([\pL\pN_./*?,()%=+ -]*[\pL\pN_./*?()%+])?$`)

// quoted is a string that is written in double quotes with escapes.
type quoted string

// MarshalYAML implements yaml.BytesMarshaler. A JSON string is a YAML string.
func (q quoted) MarshalYAML() ([]byte, error) { return json.Marshal(string(q)) }

// blockSafe reports whether text is unchanged after a round trip through a YAML literal block. These blocks treat the
// first line's spaces as indentation, and recognize other line breaks than \n.
func blockSafe(text string) bool {
	if strings.HasPrefix(text, " ") || strings.HasPrefix(text, "\t") || strings.HasPrefix(text, "\n") || strings.HasSuffix(text, "\n\n") {
		return false
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "\t") || strings.TrimRight(line, " \t") != line || strings.TrimSpace(line) == "" && line != "" {
			return false
		}
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
}
