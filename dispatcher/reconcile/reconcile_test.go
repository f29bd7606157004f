package reconcile

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// The explanation of a missed start deadline names the missing handler or script language, and the deadline.
func TestNotTaken(t *testing.T) {
	def := engine.Definition{}
	def.StartDeadline, def.Handler = domain.Duration(90*time.Second), "echo"
	if got := notTaken("g", &def); got != `["not_taken","g","echo",90000]` || got.English() != "no instance of group g that offers echo took it within 1m30s" {
		t.Errorf("%s: %s", got, got.English())
	}
	def.Handler, def.Script = "", &domain.Script{Language: "python"}
	if got := notTaken("g", &def); got != `["script_not_taken","g","python",90000]` || got.English() != "no instance of group g that offers "+def.Target()+" took it within 1m30s" {
		t.Errorf("%s: %s", got, got.English())
	}
}
