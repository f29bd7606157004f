package app

import (
	"slices"
	"testing"

	"github.com/belfryhq/belfry/executor/scripts"
	"github.com/belfryhq/belfry/internal/domain"
)

// The SDK knows nothing of the domain, so that their languages are written down twice.
func TestScriptLanguagesAgree(t *testing.T) {
	if !slices.Equal(scripts.Known(), domain.ScriptLanguages) {
		t.Errorf("the agent knows %v, jobs %v", scripts.Known(), domain.ScriptLanguages)
	}
}
