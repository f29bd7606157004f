package storetest

import (
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

func scriptVersions(t *testing.T, s *suite) {
	script := func(code, remark string) edit {
		return func(sp *domain.JobSpec) {
			sp.Handler, sp.Script = "", &domain.Script{Language: "sh", Code: code, Remark: remark, Version: 99, SHA256: "what a client says"}
		}
	}
	job := s.job("a", script("echo one", "the first"))
	change := func(want, wantScript int, e edit) {
		t.Helper()
		_, after, err := s.Jobs.EditJob(t.Context(), job.ID, 0, "test", func(sp *domain.JobSpec) error { e(sp); return nil })
		s.must(err)
		equal(t, "job version", after.Version, want)
		if after.Script != nil {
			equal(t, "script version", after.Script.Version, wantScript)
		}
	}
	equal(t, "version", job.Script.Version, 1)
	equal(t, "digest", job.Script.SHA256, domain.Digest("echo one"))
	change(1, 1, script("echo one", ""))                                           // no change and no new remark
	change(2, 1, func(sp *domain.JobSpec) { sp.Description = "x" })                // another field does not change the script
	change(3, 2, script("echo two", ""))                                           // a new script
	change(4, 3, script("echo one", "back"))                                       // an old script again is a new version too
	change(5, 4, script("echo one", "why"))                                        // a remark is stored with its version
	change(6, 0, func(sp *domain.JobSpec) { sp.Handler, sp.Script = "echo", nil }) // after a time without a script,
	change(7, 5, script("echo five", ""))                                          // the numbers continue

	for version, want := range map[int]string{1: "echo one", 2: "echo two", 3: "echo one", 4: "echo one", 5: "echo five"} {
		code, err := s.Offer.ScriptCode(t.Context(), job.ID, version)
		s.must(err)
		equal(t, "code", code, want)
	}
	if _, err := s.Offer.ScriptCode(t.Context(), job.ID, 6); domain.CodeOf(err) != domain.NotFound {
		t.Fatalf("a version that is not there: %v", err)
	}
	if now, err := s.Jobs.Job(t.Context(), job.ID); err != nil || now.Script.Code != "echo five" {
		t.Fatalf("the job shows %+v, %v", now.Script, err)
	}
	// A definition, which is read for each run, names the script's version and has no code.
	defs, err := s.Fire.Definitions(t.Context(), []engine.Due{{JobID: job.ID, JobVersion: 3}, {JobID: job.ID, JobVersion: 7}})
	s.must(err)
	for jobVersion, want := range map[int]domain.Script{
		3: {Language: "sh", Version: 2, SHA256: domain.Digest("echo two")},
		7: {Language: "sh", Version: 5, SHA256: domain.Digest("echo five")},
	} {
		def := defs.Of(job.ID, jobVersion)
		if def == nil || def.Script == nil || *def.Script != want {
			t.Fatalf("job version %d: %+v, want %+v", jobVersion, def, want)
		}
	}
	// Runs continue when their job is deleted, and so do their retries.
	_, err = s.Jobs.DeleteJob(t.Context(), job.ID, 0, "test")
	s.must(err)
	code, err := s.Offer.ScriptCode(t.Context(), job.ID, 5)
	s.must(err)
	equal(t, "code of a deleted job", code, "echo five")
}
