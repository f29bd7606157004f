package match_test

import (
	"os"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/event/match"
)

// TestExamplesOnThePage evaluates the filters and templates that docs/events.md shows.
func TestExamplesOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	v := view(t, `{"id":7,"amount":120.5,"region":"eu","coupon":"SUMMER24","items":[{"sku":"a","qty":12},{"sku":"b","qty":1}]}`)
	section := ""
	shown := map[string]int{}
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "## ") {
			section = line
		}
		example, ok := strings.CutPrefix(line, "    ")
		if !ok {
			continue
		}
		shown[section]++
		switch section {
		case "## Filters":
			f, err := match.CompileFilter(example)
			if err != nil {
				t.Errorf("%s: %v", example, err)
			} else if pass, err := f.Pass(t.Context(), v); !pass || err != nil {
				t.Errorf("%s: %v, %v", example, pass, err)
			}
		case "## Params":
			p, err := match.CompileParam(example)
			if err != nil {
				t.Errorf("%s: %v", example, err)
			} else if text, err := p.Render(t.Context(), v); text == "" || err != nil {
				t.Errorf("%s: %q, %v", example, text, err)
			}
		}
	}
	if shown["## Filters"] < 2 || shown["## Params"] < 3 {
		t.Errorf("examples by section: got %v, want at least 2 filters and 3 params", shown)
	}
}
