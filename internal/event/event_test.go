package event_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
)

func TestNamesAndPatterns(t *testing.T) {
	for name, valid := range map[string]bool{
		"orders": true, "orders.created": true, "a.b.c-d_E.9": true, "": false, ".": false, "a.": false, ".a": false, "a..b": false,
		"orders.*": false, "orders.>": false, "a b": false, "a\x00": false, "ä": false,
		strings.Repeat("x", 128): true, strings.Repeat("x", 129): false, "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p": true, "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q": false,
	} {
		if event.ValidName(name) != valid {
			t.Errorf("name %q: want valid %t", name, valid)
		}
	}
	for pattern, valid := range map[string]bool{
		"orders.created": true, "*": true, ">": true, "orders.*": true, "*.created": true, "orders.>": true, "*.*.>": true,
		"orders.>.x": false, "orders*": false, "o>": false, "": false, "a..>": false,
	} {
		if event.ValidPattern(pattern) != valid {
			t.Errorf("pattern %q: want valid %t", pattern, valid)
		}
	}
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"orders.created", "orders.created", true}, {"orders.created", "orders.deleted", false}, {"orders", "orders.created", false},
		{"orders.created", "orders", false}, {"orders.*", "orders.created", true}, {"orders.*", "orders", false}, {"orders.*", "orders.a.b", false},
		{"*.created", "orders.created", true}, {"orders.>", "orders.a.b", true}, {"orders.>", "orders", false}, {">", "orders", true},
		{"*.>", "orders", false}, {"*", "orders", true}, {"*", "orders.created", false},
	} {
		if event.Matches(tt.pattern, tt.name) != tt.want {
			t.Errorf("%q and %q: want %t", tt.pattern, tt.name, tt.want)
		}
	}
}

// Triggers are looked up by their heads, so a matching pattern's head must be one of the name's heads. The test also compares
// Matches with a word-by-word implementation of the rule.
func TestHeads(t *testing.T) {
	word := rapid.SampledFrom([]string{"a", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SliceOfN(word, 1, 5).Draw(t, "name")
		pattern := rapid.SliceOfN(rapid.OneOf(word, rapid.Just("*")), 1, 5).Draw(t, "pattern")
		if rapid.Bool().Draw(t, "tail") {
			pattern[len(pattern)-1] = ">"
		}
		want := true
		for i, p := range pattern {
			if p == ">" {
				want = want && i < len(name)
				break
			}
			want = want && i < len(name) && (p == "*" || p == name[i]) && (i < len(pattern)-1 || len(name) == len(pattern))
		}
		n, p := strings.Join(name, "."), strings.Join(pattern, ".")
		if got := event.Matches(p, n); got != want {
			t.Fatalf("%s and %s: got %t", p, n, got)
		}
		if want && !slices.Contains(event.Heads(n), event.Head(p)) {
			t.Fatalf("%s matches %s, but its head %q is none of %q", p, n, event.Head(p), event.Heads(n))
		}
	})
}

func read(contentType, body string, headers ...string) ([]event.Incoming, bool, error) {
	h := map[string]string{"content-type": contentType}
	for i := 0; i < len(headers); i += 2 {
		h[headers[i]] = headers[i+1]
	}
	return event.Read("orders.created", func(name string) string { return h[name] }, []byte(body))
}

func TestRead(t *testing.T) {
	at := time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)
	for _, tt := range []struct {
		name, contentType, body string
		headers                 []string
		want                    event.Incoming
	}{
		{"plain", "application/json", ` {"a": 1} `, nil, event.Incoming{Data: []byte(`{"a":1}`)}},
		{"no type", "", `3`, nil, event.Incoming{Data: []byte(`3`)}},
		{"structured", "application/cloudevents+json; charset=utf-8", `{"specversion":"1.0","id":"1","source":"/s","type":"t","subject":"x","time":"2026-03-29T03:30:00+02:00","data":{"a":1},"ext":5}`, nil,
			event.Incoming{Source: "/s", Type: "t", Subject: "x", Time: at, Key: "1", KeyKind: event.KeyCloudEvent, Data: []byte(`{"a":1}`)}},
		{"structured without data", "application/cloudevents+json", `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`, nil,
			event.Incoming{Source: "/s", Type: "t", Key: "1", KeyKind: event.KeyCloudEvent, Data: []byte(`null`)}},
		{"base64", "application/cloudevents+json", `{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"AQI="}`, nil,
			event.Incoming{Source: "/s", Type: "t", Key: "1", KeyKind: event.KeyCloudEvent, Data: []byte(`"AQI="`)}},
		{"base64 of JSON", "application/cloudevents+json", `{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"application/json; charset=utf-8","data_base64":"eyJhIjogMX0="}`, nil,
			event.Incoming{Source: "/s", Type: "t", Key: "1", KeyKind: event.KeyCloudEvent, Data: []byte(`{"a":1}`)}},
		{"base64 of a text", "application/cloudevents+json", `{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"text/plain","data_base64":"aGVsbG8="}`, nil,
			event.Incoming{Source: "/s", Type: "t", Key: "1", KeyKind: event.KeyCloudEvent, Data: []byte(`"hello"`)}},
		{"binary", "application/json", `[1]`, []string{"ce-specversion", "1.0", "ce-id", "2%20b", "ce-source", "/s", "ce-type", "t", "ce-time", "2026-03-29T01:30:00Z"},
			event.Incoming{Source: "/s", Type: "t", Time: at, Key: "2 b", KeyKind: event.KeyCloudEvent, Data: []byte(`[1]`)}},
		{"binary text", "text/plain", `hello`, []string{"ce-specversion", "1.0", "ce-id", "2", "ce-source", "/s", "ce-type", "t"},
			event.Incoming{Source: "/s", Type: "t", Key: "2", KeyKind: event.KeyCloudEvent, Data: []byte(`"hello"`)}},
	} {
		got, batch, err := read(tt.contentType, tt.body, tt.headers...)
		tt.want.Name = "orders.created"
		if err != nil || batch || len(got) != 1 || fmt.Sprintf("%+v", got[0]) != fmt.Sprintf("%+v", tt.want) {
			t.Errorf("%s: got %+v, %v", tt.name, got, err)
		}
	}
	const ce = `{"specversion":"1.0","id":"%d","source":"/s","type":"t"}`
	got, batch, err := read("application/cloudevents-batch+json", "["+fmt.Sprintf(ce, 1)+","+fmt.Sprintf(ce, 2)+"]")
	if err != nil || !batch || len(got) != 2 || got[1].Key != "2" {
		t.Errorf("a batch: got %+v, %v", got, err)
	}
}

func TestReadFaults(t *testing.T) {
	many := "[" + strings.Repeat("{},", event.MaxBatch) + "{}]"
	for _, tt := range []struct {
		name, contentType, body string
		headers                 []string
		want                    []string // locations; none: ErrMediaType
	}{
		{"malformed", "", `{"a":`, nil, []string{"body"}},
		{"empty", "", ``, nil, []string{"body"}},
		{"not UTF-8", "", "\"\xff\"", nil, []string{"body"}},
		{"a form", "application/x-www-form-urlencoded", `a=b`, nil, nil},
		{"malformed type", ";;", `1`, nil, nil},
		{"no object", "application/cloudevents+json", `[]`, nil, []string{"body"}},
		{"null", "application/cloudevents+json", `null`, nil, []string{"body"}},
		{"all faults", "application/cloudevents+json", `{"specversion":"2","id":5,"time":"noon","data":1,"data_base64":"!"}`, nil, []string{"specversion", "source", "type", "id", "id", "time", "data_base64"}},
		{"control", "application/cloudevents+json", `{"specversion":"1.0","id":"\u0000","source":"` + strings.Repeat("s", 1025) + `","type":"t"}`, nil, []string{"source", "id"}},
		{"bad base64", "application/cloudevents+json", `{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"!"}`, nil, []string{"data_base64"}},
		{"a batch of one", "application/cloudevents-batch+json", `{}`, nil, []string{"body"}},
		{"too many", "application/cloudevents-batch+json", many, nil, []string{"body"}},
		{"within a batch", "application/cloudevents-batch+json", `[{"specversion":"1.0","id":"1","source":"s","type":"t"},{"specversion":"1.0","id":"1","source":"s"},3]`, nil, []string{"[1].type", "[2].body"}},
		{"binary", "", `{`, []string{"ce-id", "1"}, []string{"ce-specversion", "ce-source", "ce-type", "body"}},
		{"binary image", "image/png", `x`, []string{"ce-id", "1"}, nil},
	} {
		_, _, err := read(tt.contentType, tt.body, tt.headers...)
		if got := locations(err); err == nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want faults at %v", tt.name, err, tt.want)
		}
	}
	if _, _, err := event.Read("orders.*", func(string) string { return "" }, []byte("1")); !slices.Equal(locations(err), []string{"name"}) {
		t.Errorf("a pattern as the name: got %v, want a fault at name", err)
	}
}

func locations(err error) []string {
	var out []string
	if e, ok := err.(*domain.Error); ok {
		for _, f := range e.Fields {
			out = append(out, f.Location)
		}
	}
	return out
}

func TestDigest(t *testing.T) {
	base := event.Incoming{Name: "n", Source: "s", SentBy: "ann", Key: "k", KeyKind: event.KeyCloudEvent}
	digest := func(change func(*event.Incoming)) string {
		in := base
		change(&in)
		return string(in.Digest())
	}
	same := func(*event.Incoming) {}
	for name, tt := range map[string]struct {
		change func(*event.Incoming)
		equal  bool
	}{
		"the sender of a CloudEvent":  {func(in *event.Incoming) { in.SentBy = "bob" }, true},
		"the value of Via":            {func(in *event.Incoming) { in.Via = event.ViaNATS }, true},
		"the data":                    {func(in *event.Incoming) { in.Data = []byte("1") }, true},
		"the name":                    {func(in *event.Incoming) { in.Name = "m" }, false},
		"the source":                  {func(in *event.Incoming) { in.Source = "r" }, false},
		"the key":                     {func(in *event.Incoming) { in.Key = "l" }, false},
		"the kind":                    {func(in *event.Incoming) { in.KeyKind = event.KeyMessage }, false},
		"the border between the two":  {func(in *event.Incoming) { in.Source, in.Key = "sk", "" }, false},
		"a sender confined to groups": {func(in *event.Incoming) { in.Only = []string{"g"} }, false},
	} {
		if (digest(same) == digest(tt.change)) != tt.equal {
			t.Errorf("%s: want equal %t", name, tt.equal)
		}
	}
	key := event.Incoming{Name: "n", SentBy: "ann", Key: "k", KeyKind: event.KeyIdempotency}
	other := key
	other.SentBy = "bob"
	if string(key.Digest()) == string(other.Digest()) {
		t.Error("two users with the same idempotency key have the same digest")
	}
	if (&event.Incoming{Name: "n"}).Digest() != nil {
		t.Error("an event without a key has a digest")
	}
}
