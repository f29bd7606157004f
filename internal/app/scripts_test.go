package app

import (
	"slices"
	"testing"

	"github.com/belfryhq/belfry/executor/scripts"
	"github.com/belfryhq/belfry/internal/domain"
)

// The SDK does not import package domain, so the list of languages exists twice. Both must be equal.
func TestScriptLanguagesAgree(t *testing.T) {
	if !slices.Equal(scripts.Known(), domain.AgentLanguages) {
		t.Errorf("the executor supports %v, the domain lists %v", scripts.Known(), domain.AgentLanguages)
	}
}
