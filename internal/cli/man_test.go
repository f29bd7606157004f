package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestManPages(t *testing.T) {
	isolate(t)
	dir := t.TempDir()
	belfry(t, "", "man", dir).want(t, ExitDone)
	page := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, wants := range map[string][]string{
		"belfry.1":            {".SH \"NAME\"\nbelfry \\- ", "\n.B \"belfry\\-standalone(1)\"\n"},
		"belfry-standalone.1": {".TH \"BELFRY\\-STANDALONE\"", "\n.B \"\\-\\-data\\-dir=", "BELFRY_DATA_DIR"},
		"belfry-job.1":        {"\n.SS \"belfry job trigger ", "\n.nf\n    belfry job "},
		"belfry-migrate.1":    {"\n.SS \"belfry migrate status"},
	} {
		text := page(name)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%.600s", name, want, text)
			}
		}
	}
	if text := page("belfry.1"); strings.Contains(text, "bench\\-part") {
		t.Error("belfry.1 describes a hidden command")
	}
	man, err := exec.LookPath("groff")
	if err != nil {
		return // the syntax is simple, and a reader sees a mistake
	}
	all, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(all) < 10 {
		t.Fatalf("there are %d pages (%v)", len(all), err)
	}
	for _, path := range all {
		if said, err := exec.Command(man, "-man", "-Tutf8", "-ww", "-z", "-K", "utf8", path).CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%s: %v\n%s", filepath.Base(path), err, said)
		}
	}
}
