package build

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	b := &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0-0.2026"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "3f8f4885"}, {Key: "vcs.time", Value: "2026-11-25T08:00:00Z"}, {Key: "vcs.modified", Value: "true"},
	}}
	got := read(b)
	if got.Version != "v0.1.0-0.2026" || got.Commit != "3f8f4885" || got.Date != "2026-11-25T08:00:00Z" || !got.Modified {
		t.Errorf("from the build information: %+v", got)
	}
	if got.Go != runtime.Version() || got.Schema < 41 || got.Wire != 1 {
		t.Errorf("Go, schema or wire is wrong: %+v", got)
	}
	if got = read(nil); got.Version != "(unknown version)" || got.Commit != "" {
		t.Errorf("without build information: %+v", got)
	}

	version, commit, date = "v1.2.3", "c0ffee", "2027-01-01T00:00:00Z" // as the linker sets them
	t.Cleanup(func() { version, commit, date = "", "", "" })
	if got = read(b); got.Version != "v1.2.3" || got.Commit != "c0ffee" || got.Date != "2027-01-01T00:00:00Z" || got.Modified {
		t.Errorf("from the linker: %+v", got)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"version", "commit", "date", "go", "schema", "wire"} {
		if !strings.Contains(string(text), `"`+name+`":`) {
			t.Errorf("the JSON lacks %s: %s", name, text)
		}
	}
}
