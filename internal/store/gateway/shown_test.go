package gateway_test

import (
	"slices"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

func TestOpenAmong(t *testing.T) {
	w := newWorld(t)
	open, err := w.OpenAmong(t.Context(), []string{"g", "h", "nowhere"})
	if err != nil || !slices.Equal(open, []string{"g"}) {
		t.Errorf("%v, %v", open, err)
	}
}

// An attempt is shown as unanswered from the time when its request failed until something else is known of it.
func TestShown(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	o := offers(1)
	shown := func(when, group string, attempt int, wantOpen, want bool) {
		t.Helper()
		open, unanswered, err := w.Shown(t.Context(), group, o[0].Run, attempt)
		if err != nil || open != wantOpen || unanswered != want {
			t.Errorf("%s: open %v, unanswered %v, %v", when, open, unanswered, err)
		}
	}
	shown("before it was offered", "g", 1, true, false)
	ids := w.accept("one", a.Hold(), o)
	w.send("one", a.Hold(), ids...)
	shown("on its way", "g", 1, true, false)
	if _, err := w.Answer(t.Context(), []gateway.Answer{{LogID: ids[0], State: gateway.Unknown, Message: "timeout"}}); err != nil {
		t.Fatal(err)
	}
	shown("without an answer", "g", 1, true, true)
	shown("another attempt", "g", 2, true, false)
	shown("a group that is not open", "h", 1, false, true)
	if _, err := w.Finish(t.Context(), []string{"g"}, []gateway.End{{LogID: ids[0], Result: gateway.Result{Outcome: string(domain.Succeeded)}}}); err != nil {
		t.Fatal(err)
	}
	shown("after its callback", "g", 1, true, false)
}
