// Package strict decodes JSON bodies. Unlike encoding/json it names every unknown, doubled or wrongly typed field at
// once, by its path, and compares names exactly.
package strict

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
)

// Decode decodes a JSON object into dst, a pointer to a struct, over the values that dst holds. A null leaves its field
// as it is.
//
// If some fields have faults, dst and sound hold the other fields: Decode leaves out unknown fields, and counts fields of
// a wrong type as null. The caller can check the values of the other fields too, and join both errors with AlsoFaulty. If
// the data is not JSON, sound is nil.
func Decode(data []byte, dst any) (sound json.RawMessage, err error) {
	if err := CheckSyntax(data); err != nil {
		return nil, err
	}
	var f domain.Faults
	sound = checkShape("", data, reflect.TypeOf(dst).Elem(), &f)
	err = f.Err("the body is not valid")
	if err == nil {
		sound = data
	}
	if misfit := json.Unmarshal(sound, dst); misfit != nil && err == nil {
		// checkShape finds everything that Unmarshal refuses. If a new type escapes it, the client still gets an error.
		err = problem.Invalid("body", "does not match the schema: "+misfit.Error())
	}
	return sound, err
}

// AlsoFaulty joins the error about a body's shape and the error about its values. Each may be nil. It leaves out faults
// of values at or below a field whose shape is wrong.
func AlsoFaulty(shape, values error) error {
	var s, v *domain.Error
	switch {
	case shape == nil:
		return values
	case !errors.As(shape, &s) || !errors.As(values, &v):
		return shape
	}
	both := *s
	both.Fields = slices.Clone(s.Fields)
	for _, field := range v.Fields {
		if !NamesFault(shape, field.Location) {
			both.Fields = append(both.Fields, field)
		}
	}
	return &both
}

// NamesFault reports whether an error names a location or a field that contains it.
func NamesFault(err error, location string) bool {
	var e *domain.Error
	return errors.As(err, &e) && slices.ContainsFunc(e.Fields, func(f domain.FieldError) bool {
		rest, within := strings.CutPrefix(location, f.Location)
		return f.Location == "body" || within && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// CheckSyntax returns an error with the line and column if the data is not one JSON value in UTF-8.
func CheckSyntax(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return badSyntax("the body is empty; JSON is needed")
	}
	if !utf8.Valid(data) {
		return badSyntax("the body is not UTF-8")
	}
	var v json.RawMessage
	err := json.Unmarshal(data, &v)
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return badSyntax("the body is not JSON")
	}
	before := data[:min(int(max(syntax.Offset-1, 0)), len(data))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return badSyntax(fmt.Sprintf("the body is not JSON: line %d, column %d: %s", line, column, syntax))
}

func badSyntax(message string) error {
	return problem.New(http.StatusBadRequest, message, domain.FieldError{Location: "body", Message: message})
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// checkShape compares a value, whose syntax is valid, with a type. It returns the parts of the value that match.
func checkShape(path string, raw json.RawMessage, t reflect.Type, f *domain.Faults) json.RawMessage {
	raw = bytes.TrimSpace(raw)
	got := kindOf(raw)
	if got == "null" && path != "" {
		return raw
	}
	list := t.Implements(alsoAlone)
	if list && got != "array" {
		t, list = t.Elem(), false
	}
	if !list && reflect.PointerTo(t).Implements(jsonUnmarshaler) || reflect.PointerTo(t).Implements(textUnmarshaler) {
		return soundIf(checkText(path, raw, got, t, f), raw)
	}
	expect := func(want string) bool {
		if got != want {
			f.Add(orBody(path), fmt.Sprintf("must be %s, not %s", withArticle(want), withArticle(got)))
		}
		return got == want
	}
	sound := true
	switch t.Kind() {
	case reflect.Pointer:
		return checkShape(path, raw, t.Elem(), f)
	case reflect.Struct:
		if sound = expect("object"); sound {
			return checkObject(path, raw, t, f)
		}
	case reflect.Slice:
		if sound = expect("array"); sound {
			return checkElements(path, raw, t, f)
		}
	case reflect.String:
		sound = expect("string")
	case reflect.Bool:
		sound = expect("boolean")
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		sound = expect("number")
		if sound && json.Unmarshal(raw, reflect.New(t).Interface()) != nil {
			sound = false
			f.Add(path, map[bool]string{true: "is out of range", false: "must be a whole number in range"}[t.Kind() == reflect.Float64])
		}
	case reflect.Interface:
	default:
		panic(fmt.Sprintf("api: a body holds a %s, which checkShape does not know", t)) // caught by the first test
	}
	return soundIf(sound, raw)
}

// OneOrMore is a list of texts. A single text may be given without the brackets, as in the query of a GET.
type OneOrMore[T ~string] []T

func (OneOrMore[T]) alsoAlone() {}

// UnmarshalJSON reads either form.
func (l *OneOrMore[T]) UnmarshalJSON(data []byte) error {
	if kindOf(data) != "string" {
		return json.Unmarshal(data, (*[]T)(l))
	}
	var alone T
	err := json.Unmarshal(data, &alone)
	*l = OneOrMore[T]{alone}
	return err
}

var alsoAlone = reflect.TypeFor[interface{ alsoAlone() }]()

// soundIf returns the value if sound is true, else null, which leaves the default.
func soundIf(sound bool, raw json.RawMessage) json.RawMessage {
	if sound {
		return raw
	}
	return json.RawMessage("null")
}

func checkText(path string, raw json.RawMessage, got string, t reflect.Type, f *domain.Faults) (sound bool) {
	if got != "string" {
		f.Add(orBody(path), fmt.Sprintf("must be a string%s, not %s", example(t), withArticle(got)))
		return false
	}
	err := json.Unmarshal(raw, reflect.New(t).Interface())
	if err != nil {
		f.Add(path, err.Error())
	}
	return err == nil
}

func example(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[domain.Duration](), reflect.TypeFor[domain.OptionalDuration]():
		return ` like "90s" or "1h30m"`
	case reflect.TypeFor[domain.Instant]():
		return ` like "2026-03-29T01:30:00Z"`
	case reflect.TypeFor[domain.Date]():
		return ` like "2026-12-25"`
	}
	return ""
}

func checkObject(path string, raw json.RawMessage, t reflect.Type, f *domain.Faults) json.RawMessage {
	fields := map[string]reflect.Type{}
	known := strings.Join(fieldNames(t, fields), ", ")
	seen := map[string]json.RawMessage{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.Token() //nolint:errcheck // the syntax has been checked, here and below
	for dec.More() {
		token, _ := dec.Token()
		name, _ := token.(string)
		var value json.RawMessage
		dec.Decode(&value) //nolint:errcheck // as above
		at := strings.TrimPrefix(path+"."+name, ".")
		ft, isKnown := fields[name]
		_, twice := seen[name]
		switch {
		case twice:
			f.Add(problem.Clip(at), "is given twice")
		case !isKnown && slices.Contains(readOnly[t], name):
			f.Add(at, "is read only: it is set by the server; leave it out")
			seen[name] = nil
		case !isKnown:
			f.Add(problem.Clip(at), "is not a known field; the known fields are "+known)
			seen[name] = nil
		default:
			seen[name] = checkShape(at, value, ft, f)
		}
	}
	maps.DeleteFunc(seen, func(_ string, sound json.RawMessage) bool { return sound == nil })
	return Encode(seen)
}

// readOnly lists the fields that answers have and that a body which creates the resource must not have.
var readOnly = map[reflect.Type][]string{
	reflect.TypeFor[domain.JobSpec](): {"id", "last_fire_time", "next_fire_time", "created_at", "updated_at", "version", "note", "health", "schedule_description",
		"paused_at", "paused_until", "pause_reason", "paused_by"},
	reflect.TypeFor[domain.CalendarSpec](): {"jobs", "version", "created_at", "updated_at", "updated_by"},
	reflect.TypeFor[event.TriggerSpec]():   {"id", "job_name", "group", "version", "created_at", "updated_at"},
}

// SameID refuses a body whose id is not that of the resource it edits. Other read-only fields may differ, because the
// server may have changed them since the client read them.
func SameID[T ~int64](sent, is T, what string) error {
	if sent == 0 || sent == is {
		return nil
	}
	return problem.Invalid("id", fmt.Sprintf("is read only: this is %s %d; leave it out", what, is))
}

func checkElements(path string, raw json.RawMessage, t reflect.Type, f *domain.Faults) json.RawMessage {
	sound := elements(raw)
	for i, e := range sound {
		sound[i] = checkShape(fmt.Sprintf("%s[%d]", path, i), e, t.Elem(), f)
	}
	return Encode(sound)
}

// Encode returns the JSON form of a value that is known to have one.
func Encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("api: encode a checked document: %v", err)) // raw JSON always has a JSON form
	}
	return b
}

// fieldNames collects the JSON names of a struct, those of embedded structs included, in order.
func fieldNames(t reflect.Type, into map[string]reflect.Type) (names []string) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			names = append(names, fieldNames(field.Type, into)...)
		case field.IsExported() && name != "" && name != "-":
			into[name] = field.Type
			names = append(names, name)
		}
	}
	return names
}

func elements(raw json.RawMessage) (list []json.RawMessage) {
	json.Unmarshal(raw, &list) //nolint:errcheck // the syntax has been checked
	return list
}

// kindOf names the kind of a value whose syntax is valid.
func kindOf(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

func withArticle(kind string) string {
	switch kind {
	case "null":
		return kind
	case "object", "array":
		return "an " + kind
	}
	return "a " + kind
}

func orBody(path string) string {
	if path == "" {
		return "body"
	}
	return path
}

// MergePatch applies a JSON merge patch (RFC 7396) to a document. Both must have valid syntax.
func MergePatch(doc, patch json.RawMessage) json.RawMessage {
	if kindOf(bytes.TrimSpace(patch)) != "object" {
		return patch
	}
	target := map[string]json.RawMessage{}
	if len(doc) > 0 && kindOf(bytes.TrimSpace(doc)) == "object" {
		json.Unmarshal(doc, &target) //nolint:errcheck // the syntax has been checked
	}
	changes := map[string]json.RawMessage{}
	json.Unmarshal(patch, &changes) //nolint:errcheck // as above
	for name, value := range changes {
		if kindOf(value) == "null" {
			delete(target, name)
		} else {
			target[name] = MergePatch(target[name], value)
		}
	}
	return Encode(target)
}

// NotText is the fault of a text that Postgres cannot store or compare.
const NotText = "must be text in UTF-8 without NUL"

// IsText reports whether s is UTF-8 without NUL.
func IsText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
