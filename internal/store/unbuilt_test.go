package store_test

import (
	"errors"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestWhatIsNotBuiltIsRefused(t *testing.T) {
	s, _ := open(t)
	_, err := s.CreateJob(t.Context(), spec("a", func(sp *domain.JobSpec) {
		sp.Route, sp.Block = domain.RouteFailover, domain.BlockCoverEarly
		sp.Handler, sp.Script = "", &domain.Script{Language: "bash", Code: "true"}
	}), "test")
	var e *domain.Error
	if !errors.As(err, &e) || e.Code != domain.Invalid || len(e.Fields) != 3 {
		t.Fatalf("got %v", err)
	}
}
