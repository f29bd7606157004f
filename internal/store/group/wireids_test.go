package group_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/group"
)

func TestWireIDs(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	groups := group.New(s.Pool())
	if _, _, err := groups.CreateGroup(t.Context(), "g", ""); err != nil {
		t.Fatal(err)
	}
	job := func(name string) domain.JobID {
		t.Helper()
		spec := domain.DefaultJobSpec()
		spec.Group, spec.Name, spec.Handler, spec.Schedule.Kind = "g", name, "h", domain.ScheduleNone
		j, err := s.CreateJob(t.Context(), spec, "test")
		if err != nil {
			t.Fatal(err)
		}
		return j.ID
	}
	set := func(wire int64, id domain.JobID) error {
		return groups.SetWireID(t.Context(), "g", domain.WireID{WireID: wire, JobID: id, Source: "db", Imported: json.RawMessage(`{"name": "x"}`)})
	}
	a, b, c := job("a"), job("b"), job("c")
	for range 2 {
		if err := set(7, a); err != nil {
			t.Fatal(err)
		}
	}
	if err := set(7, b); domain.CodeOf(err) != domain.Conflict || !strings.Contains(err.Error(), "imported from db") {
		t.Errorf("an id of another job: %v", err)
	}
	if err := set(8, a); domain.CodeOf(err) != domain.Conflict {
		t.Errorf("a second id of a job: %v", err)
	}
	if err := set(1<<31, b); domain.CodeOf(err) != domain.Invalid {
		t.Errorf("an id of more than 31 bits: %v", err)
	}
	for range 2 {
		if id, err := groups.WireID(t.Context(), "g", b); err != nil || id != 1_000_000_000 {
			t.Errorf("the id of a job of Belfry is %d, %v", id, err)
		}
	}
	if id, err := groups.WireID(t.Context(), "g", a); err != nil || id != 7 {
		t.Errorf("the id of an imported job is %d, %v", id, err)
	}
	if _, err := s.DeleteJob(t.Context(), a, 0, "test"); err != nil {
		t.Fatal(err)
	}
	list, err := groups.WireIDs(t.Context(), "g", 0, 10)
	if err != nil || len(list) != 2 || !list[0].JobDeleted || list[0].WireID != 7 || string(list[0].Imported) != `{"name": "x"}` || list[1].JobDeleted || list[1].Imported != nil {
		t.Errorf("list: %+v, %v", list, err)
	}
	if err := set(7, c); err != nil {
		t.Errorf("the id of a deleted job: %v", err)
	}
}
