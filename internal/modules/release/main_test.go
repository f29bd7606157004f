package main

import (
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/modules"
)

func TestFiles(t *testing.T) {
	got, err := require([]byte("module m\n\ngo 1.26.0\n\nrequire (\n\ta.example/b v1.0.0\n\t"+sdk+" v0.1.0\n)\n"), sdk, "v0.2.0")
	if err != nil || !strings.Contains(string(got), "\t"+sdk+" v0.2.0\n") || strings.Contains(string(got), "v0.1.0") {
		t.Errorf("go.mod: %v\n%s", err, got)
	}
	const unrelated = "module m\n\ngo 1.26.0\n"
	if got, err := require([]byte(unrelated), sdk, "v0.2.0"); err != nil || string(got) != unrelated {
		t.Errorf("a go.mod without the SDK: %v\n%s", err, got)
	}
	got, err = replace([]byte("go 1.26.0\n\nuse ./executor\n\n// Why.\nreplace "+sdk+" v0.1.0 => ./executor\n\nreplace "+sdk+"/otel v0.1.0 => ./executor/otel\n"), "v0.2.0")
	if want := "\n// Why.\nreplace " + sdk + " v0.2.0 => ./executor\n\nreplace " + sdk + "/otel v0.2.0 => ./executor/otel\n"; err != nil || !strings.HasSuffix(string(got), want) {
		t.Errorf("go.work: %v\n%s", err, got)
	}
	sums := []string{sdk + " v0.2.0 h1:x=\n", sdk + " v0.2.0/go.mod h1:y=\n"}
	const before, after = "github.com/a/b v1.0.0 h1:a=\n", "github.com/z/b v1.0.0 h1:z=\n"
	want := before + sums[0] + sums[1] + after
	for _, text := range []string{before + after, before + sdk + " v0.1.0 h1:o=\n" + sdk + " v0.1.0/go.mod h1:p=\n" + after} {
		if got := string(writeSums([]byte(text), sdk, sums)); got != want {
			t.Errorf("go.sum:\n%s", got)
		}
	}
	if got := string(writeSums([]byte(before), sdk, sums)); got != before+sums[0]+sums[1] {
		t.Errorf("go.sum, at its end:\n%s", got)
	}
}

func TestHashes(t *testing.T) {
	sums, err := hashes("../../..", modules.SDKDir, sdk, "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	for i, prefix := range []string{sdk + " v0.1.0 h1:", sdk + " v0.1.0/go.mod h1:"} {
		if !strings.HasPrefix(sums[i], prefix) || !strings.HasSuffix(sums[i], "=\n") {
			t.Errorf("line %d is %q", i, sums[i])
		}
	}
}
