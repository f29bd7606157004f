package dispatcher

import (
	"slices"
	"testing"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

func script(language, code string) func(*domain.JobSpec) {
	return func(s *domain.JobSpec) { s.Handler, s.Script = "", &domain.Script{Language: language, Code: code} }
}

// Scripts go to instances of their language, and the code goes to the instances that request it.
func TestScriptsAreHandedOver(t *testing.T) {
	w := newWorld(t, option{})
	digest := domain.Digest("echo one")
	a := w.join("a", func(p *puppet) { p.languages = []string{"bash", "sh"} })
	b := w.join("b", func(p *puppet) { p.languages = []string{"python"}; p.handlers = []string{"sh", "script:sh"} })
	a.set(func() { a.lacks = []string{digest, domain.Digest("of another group")} })
	id := w.trigger(w.job("j", script("sh", "echo one"), func(s *domain.JobSpec) { s.Route = domain.RouteBroadcast }))
	o := a.got(id, 1)
	if o.Handler != "" || o.Script == nil || *o.Script != (wire.Script{Language: "sh", Version: 1, SHA256: digest}) {
		t.Errorf("offer %+v of %+v", o, o.Script)
	}
	w.eventually("the code comes", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.scripts) > 0
	})
	a.set(func() {
		if len(a.scripts) != 1 || a.scripts[0].SHA256 != digest || string(a.scripts[0].Code) != "echo one" {
			t.Errorf("it was sent %+v", a.scripts)
		}
		a.lacks = nil
	})
	a.report(o, wire.Failed, func(r *wire.Result) { r.Reason, r.Permanent = string(domain.ReasonBadScript), true })
	w.becomes(id, "failed")
	if n := len(b.offersOf(id)); n != 0 {
		t.Errorf("an instance without the language was offered it %d times", n)
	}
	// An instance that does not request code gets none.
	again := w.trigger(w.job("k", script("sh", "echo two")))
	a.report(a.got(again, 1), wire.Succeeded)
	w.becomes(again, "succeeded")
	a.set(func() {
		if slices.ContainsFunc(a.scripts, func(c wire.Control) bool { return string(c.Code) != "echo one" }) {
			t.Errorf("it was sent %+v", a.scripts)
		}
	})
}
