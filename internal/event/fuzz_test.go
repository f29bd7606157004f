package event_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
)

// Whatever an operator writes and whoever feeds it: compiling and evaluating end, within the bounds, without a panic.
func FuzzFilter(f *testing.F) {
	for _, source := range []string{
		`event.data.amount > 99`, `event.data.items.exists(i, i.qty > 5)`, `event.data.items.map(i, i.sku) == ["a"]`, `{"a": [1, -2]}["a"][0] == 1`,
		`event.data.items.filter(i, has(i.qty)).size() > 0 || event.name.matches("^o.*$")`, `event.time < timestamp("2030-01-01T00:00:00Z")`,
		`[[1]].exists(a, [[2]].exists(b, a == b))`, `event.data.items.map(a, a + a) == []`, `(`, "\x00",
	} {
		f.Add(source, order)
	}
	f.Fuzz(func(t *testing.T, source, data string) {
		if len(data) > 1<<20 || !json.Valid([]byte(data)) {
			return
		}
		filter, err := event.CompileFilter(source)
		if err != nil {
			return
		}
		v := event.NewView(someID, &event.Incoming{Name: "a", Data: []byte(data)})
		_, _ = filter.Pass(t.Context(), v)
	})
}

func FuzzParam(f *testing.F) {
	for _, source := range []string{
		`{{.event.data.id}}`, `{{range .event.data.items}}{{.sku}}{{end}}`, `{{json .event.data | upper}}`, `{{with $x := 1}}{{$x}}{{end}}`,
		`{{join "," .event.data.items}}{{break}}`, `{{define "x"}}{{end}}`, `{{range 3}}{{range $i, $e := $}}{{continue}}{{end}}{{else}}{{end}}`,
		`{{date "2006" .event.time}}{{default 1 nil}}`, `{{slice "abc" 1 9}}{{index .event.data "id"}}`, `{{(.event).name.x}}`, `{{/*`,
	} {
		f.Add(source, order)
	}
	f.Fuzz(func(t *testing.T, source, data string) {
		if len(data) > 1<<20 || !json.Valid([]byte(data)) {
			return
		}
		param, err := event.CompileParam(source)
		if err != nil {
			return
		}
		v := event.NewView(someID, &event.Incoming{Name: "a", Data: []byte(data)})
		text, err := param.Render(t.Context(), v)
		if err == nil && (len(text) > domain.MaxParamBytes || source != "" && !utf8.ValidString(text)) {
			t.Errorf("%q made %d bytes", source, len(text))
		}
	})
}

// Whatever is sent: what is taken has a name, data that are JSON, and can be decided about.
func FuzzRead(f *testing.F) {
	f.Add("orders.created", "application/json", "", "", `{"a": 1}`)
	f.Add("a", "application/cloudevents+json", "", "", `{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2026-03-29T01:30:00Z","data":[1]}`)
	f.Add("a", "application/cloudevents-batch+json", "", "", `[{"specversion":"1.0","id":"1","source":"/s","type":"t"}]`)
	f.Add("a", "text/plain", "1.0", "%41", "hello")
	trigger := event.Compile(1, 1, &event.TriggerSpec{Name: ">", JobID: 1, Enabled: true, Filter: `event.data.a == 1`, Param: `{{json .event}}`})
	f.Fuzz(func(t *testing.T, name, contentType, version, id, body string) {
		headers := map[string]string{"content-type": contentType, "ce-specversion": version, "ce-id": id, "ce-source": id, "ce-type": id, "ce-time": id}
		events, _, err := event.Read(name, func(h string) string { return headers[h] }, []byte(body))
		if err != nil {
			return
		}
		for i := range events {
			e := &events[i]
			if e.Name != name || !event.Matches(">", name) || !json.Valid(e.Data) || !utf8.Valid(e.Data) {
				t.Fatalf("took %+v", e)
			}
			e.Digest()
			event.Decide(t.Context(), event.NewView(someID, e), []*event.Compiled{trigger})
		}
	})
}
