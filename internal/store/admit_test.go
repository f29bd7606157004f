package store_test

import (
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store"
)

// A ring holds a run twice, from before and after an edit or from two planners. Both entries come in one batch, and
// each was routed separately. The run is bound to one instance and offered to the same instance.
func TestAdmitARunThatComesTwice(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	job := create(t, s, "edited", everySecond, parallel)
	before, err := s.PlanDue(t.Context(), 100, false)
	if err != nil || len(before.Runs) < 2 {
		t.Fatalf("planned %+v, %v", before, err)
	}
	if _, _, err := s.EditJob(t.Context(), job.ID, 0, "test", func(sp *domain.JobSpec) error { sp.Param = "new"; return nil }); err != nil {
		t.Fatal(err)
	}
	after, err := s.PlanDue(t.Context(), 100, false)
	if err != nil || len(after.Runs) < 2 {
		t.Fatalf("planned %+v, %v", after, err)
	}
	fresh := make(map[domain.RunID]bool)
	for _, r := range after.Runs {
		fresh[r.RunID] = true
	}
	both := make(map[domain.RunID]bool) // planned before and after the edit
	var in []store.Admission
	route := func(runs []engine.Due, instance string) {
		for _, a := range admissions(t, s, runs) {
			if !fresh[a.RunID] {
				continue
			}
			a.Instance, a.BootID = instance, "boot-"+instance
			both[a.RunID] = true
			in = append(in, a)
		}
	}
	route(before.Runs, "i1")
	route(after.Runs, "i2")
	route(after.Runs, "i3")
	route(before.Runs, "i4")
	out, err := s.Admit(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Bound) != len(both) || len(out.Bound) < 2 {
		t.Fatalf("%d bound of %d", len(out.Bound), len(both))
	}
	for _, r := range out.Bound {
		instance := query[string](t, s, `SELECT instance FROM runs_live WHERE id = $1`, r.ID)
		boot := query[string](t, s, `SELECT boot_id FROM runs_live WHERE id = $1`, r.ID)
		if r.Instance != instance || r.BootID != boot {
			t.Errorf("a run is bound to %s (%s) and would be offered to %s (%s)", instance, boot, r.Instance, r.BootID)
		}
		if r.JobVersion != 2 || instance != "i2" && instance != "i3" {
			t.Errorf("the run of version %d is bound to %s, as the version before was routed", r.JobVersion, instance)
		}
	}
}
