package api

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/domain"
)

// decodeStrict decodes a JSON object into dst, a pointer to a struct, over what dst holds. Unlike encoding/json it
// names every unknown, doubled or wrongly typed field at once, by its path, and it compares names exactly. A null
// leaves its field as it is.
func decodeStrict(data []byte, dst any) error {
	if err := checkSyntax(data); err != nil {
		return err
	}
	var f domain.Faults
	checkShape("", data, reflect.TypeOf(dst).Elem(), &f)
	if err := f.Err("the body is not valid"); err != nil {
		return err
	}
	if err := json.Unmarshal(data, dst); err != nil {
		// checkShape sees all that Unmarshal can refuse; should a type be added that it does not understand,
		// the client still hears something.
		f.Add("body", "does not fit: "+err.Error())
	}
	return f.Err("the body is not valid")
}

// checkSyntax refuses what is not one JSON value in UTF-8, and says where it goes wrong.
func checkSyntax(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return badSyntax("a JSON object is needed")
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
	return newProblem(http.StatusBadRequest, message, domain.FieldError{Location: "body", Message: message})
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// checkShape compares a value, whose syntax is good, with a type.
func checkShape(path string, raw json.RawMessage, t reflect.Type, f *domain.Faults) {
	raw = bytes.TrimSpace(raw)
	got := kindOf(raw)
	if got == "null" && path != "" {
		return
	}
	if reflect.PointerTo(t).Implements(jsonUnmarshaler) || reflect.PointerTo(t).Implements(textUnmarshaler) {
		checkText(path, raw, got, t, f)
		return
	}
	expect := func(want string) bool {
		if got != want {
			f.Add(orBody(path), fmt.Sprintf("must be %s, not %s", withArticle(want), withArticle(got)))
		}
		return got == want
	}
	switch t.Kind() {
	case reflect.Pointer:
		checkShape(path, raw, t.Elem(), f)
	case reflect.Struct:
		if expect("object") {
			checkObject(path, raw, t, f)
		}
	case reflect.Slice:
		if expect("array") {
			for i, e := range elements(raw) {
				checkShape(fmt.Sprintf("%s[%d]", path, i), e, t.Elem(), f)
			}
		}
	case reflect.String:
		expect("string")
	case reflect.Bool:
		expect("boolean")
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		if expect("number") && json.Unmarshal(raw, reflect.New(t).Interface()) != nil {
			f.Add(path, map[bool]string{true: "is out of range", false: "must be a whole number in range"}[t.Kind() == reflect.Float64])
		}
	case reflect.Interface:
	default:
		panic(fmt.Sprintf("api: a body holds a %s, which checkShape does not know", t)) // caught by the first test
	}
}

func checkText(path string, raw json.RawMessage, got string, t reflect.Type, f *domain.Faults) {
	if got != "string" {
		f.Add(orBody(path), fmt.Sprintf("must be a string%s, not %s", example(t), withArticle(got)))
	} else if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
		f.Add(path, err.Error())
	}
}

func example(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[domain.Duration](), reflect.TypeFor[domain.OptionalDuration]():
		return ` like "90s" or "1h30m"`
	case reflect.TypeFor[domain.Instant]():
		return ` like "2026-03-29T01:30:00Z"`
	}
	return ""
}

func checkObject(path string, raw json.RawMessage, t reflect.Type, f *domain.Faults) {
	fields := map[string]reflect.Type{}
	names := fieldNames(t, fields)
	seen := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.Token() //nolint:errcheck // the syntax has been checked, here and below
	for dec.More() {
		token, _ := dec.Token()
		name, _ := token.(string)
		var value json.RawMessage
		dec.Decode(&value) //nolint:errcheck // as above
		at := strings.TrimPrefix(path+"."+name, ".")
		ft, known := fields[name]
		switch {
		case seen[name]:
			f.Add(at, "is given twice")
		case !known:
			f.Add(clip(at), "is not a known field; known are "+strings.Join(names, ", "))
		default:
			checkShape(at, value, ft, f)
		}
		seen[name] = true
	}
}

// clip bounds a name that a client made up.
func clip(s string) string {
	if r := []rune(s); len(r) > 100 {
		return string(r[:100]) + "…"
	}
	return s
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

// kindOf names the kind of a value whose syntax is good.
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

// mergePatch applies a JSON merge patch (RFC 7396) to a document; both have good syntax.
func mergePatch(doc, patch json.RawMessage) json.RawMessage {
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
			target[name] = mergePatch(target[name], value)
		}
	}
	merged, err := json.Marshal(target)
	if err != nil {
		panic(fmt.Sprintf("api: encode a merged document: %v", err)) // raw JSON always has a JSON form
	}
	return merged
}
