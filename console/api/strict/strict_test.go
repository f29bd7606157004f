package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// The examples of RFC 7396, appendix A.
func TestMergePatch(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		var got, want any
		if err := json.Unmarshal(MergePatch([]byte(c[0]), []byte(c[1])), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(c[2]), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s patched by %s is %v, want %v", c[0], c[1], got, want)
		}
	}
}

// A fault of a value is left out if the field's shape is faulty.
func TestAlsoFaulty(t *testing.T) {
	var shape, values domain.Faults
	for _, at := range []string{"name", "schedule.kind", "tags[1]", "script"} {
		shape.Add(at, "shape")
	}
	for _, at := range []string{"name", "names", "schedule", "schedule.kind", "tags[1]", "tags[10]", "script.code", "group"} {
		values.Add(at, "value")
	}
	var got []string
	var e *domain.Error
	if !errors.As(AlsoFaulty(shape.Err("bad"), values.Err("bad too")), &e) {
		t.Fatal("no domain error came back")
	}
	for _, f := range e.Fields {
		got = append(got, f.Location+" "+f.Message)
	}
	want := []string{"name shape", "schedule.kind shape", "tags[1] shape", "script shape", "names value", "schedule value", "tags[10] value", "group value"}
	if !slices.Equal(got, want) {
		t.Errorf("the faults are %q, want %q", got, want)
	}
	if len(shape.Err("").(*domain.Error).Fields) != 4 {
		t.Error("AlsoFaulty has changed the shape error")
	}
	if err := AlsoFaulty(nil, nil); err != nil {
		t.Errorf("without errors: %v", err)
	}
	syntax := badSyntax("cut off")
	if err := AlsoFaulty(syntax, values.Err("bad")); err != syntax {
		t.Errorf("with bad syntax: %v", err)
	}
}

// encoding/json decodes every input that Decode accepts to the same value, with unknown fields disallowed. Decode never
// panics, and its errors have a text.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"group":"default","name":"n","schedule":{"kind":"cron","expr":"* * * * *","at":null},"tags":["a"]}`,
		`{"children":[{"job_id":1,"on":"always"}],"retry_backoff":{"factor":1e2},"script":{"code":""}}`,
		`{"schedule":{"at":"2026-03-29T01:30:00+02:00","every":"90s"},"version":3,"last_fire_time":null,"alert":{"on":[]}}`,
		`{"retries":1.5}`, `{"":{}}`, `{"name":"\ud800"}`, ` {} `, `{"timeout":""}`, `null`, `[]`, `{"a"`, "{\"\xff\":1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got := domain.Job{JobSpec: domain.DefaultJobSpec()}
		if _, err := Decode(data, &got); err != nil {
			if err.Error() == "" {
				t.Error("the error has no text")
			}
			return
		}
		want := domain.Job{JobSpec: domain.DefaultJobSpec()}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&want); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("decoded as %+v; by encoding/json as %+v, %v", got, want, err)
		}
	})
}
