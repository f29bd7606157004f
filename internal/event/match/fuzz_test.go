package match_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/event/match"
)

// FuzzFilter checks that compiling and evaluating any filter with any data ends within the bounds and without a panic.
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
		filter, err := match.CompileFilter(source)
		if err != nil {
			return
		}
		v := match.NewView(someID, &event.Incoming{Name: "a", Data: []byte(data)})
		_, _ = filter.Pass(t.Context(), v)
	})
}

// FuzzParam checks the same for templates, and that each result is valid UTF-8 of at most domain.MaxParamBytes.
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
		param, err := match.CompileParam(source)
		if err != nil {
			return
		}
		v := match.NewView(someID, &event.Incoming{Name: "a", Data: []byte(data)})
		text, err := param.Render(t.Context(), v)
		if err == nil && (len(text) > domain.MaxParamBytes || source != "" && !utf8.ValidString(text)) {
			t.Errorf("%q returned %d bytes or invalid UTF-8", source, len(text))
		}
	})
}
