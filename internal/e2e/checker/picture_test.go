package checker

import (
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// The pictures and the report show the history's runs, ledger and faults.
func TestPictures(t *testing.T) {
	t.Parallel()
	var p planted
	p.job(1, nil)
	p.served(1)
	p.remove(1, 3)
	p.drop(1, 3, 3, 1, domain.MisfireSkip)
	p.Faults = append(p.Faults, Fault{Kind: "kill executor", Target: "i1", From: at(3), To: at(4)})
	span := Span{epoch, at(10)}
	text, svg := Picture(&p.History, span), SVG(&p.History, span)
	if !strings.Contains(text, "i1") || !strings.Contains(text, "#") {
		t.Errorf("the text shows no fault:\n%s", text)
	}
	for _, want := range []string{"<svg", "kill executor", "#7fb069", "#9aa5b1", "</svg>"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture lacks %s", want)
		}
	}
	report := Check(&p.History).Markdown("Fault test", 7, text)
	for _, want := range []string{"every promise was kept", "Seed 7", "| kill executor | 1 |", "fire times in the missed ledger | 1"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}
