//go:build unix

package sdktest

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/executortest"
	"github.com/belfryhq/belfry/executor/scripts"
)

var example = regexp.MustCompile("(?s)<!-- example -->\n```yaml\n(.*?)\n```")

// TestScriptsPage runs each example of docs/scripts.md.
func TestScriptsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, m := range example.FindAllStringSubmatch(string(page), -1) {
		var job struct {
			Name   string
			Script struct{ Language, Code string }
		}
		if err := yaml.Unmarshal([]byte(m[1]), &job); err != nil {
			t.Fatalf("%v in:\n%s", err, m[1])
		}
		language := job.Script.Language
		seen[language] = true
		if language == "powershell" {
			continue // not available on Debian; see TestPowerShell of executor/scripts
		}
		t.Run(language, func(t *testing.T) {
			if !anyOnPath(language, language+"3") {
				t.Skipf("NOT COVERED: there is no %s on PATH", language)
			}
			r, err := scripts.New(scripts.Options{Languages: []string{language}, Dir: t.TempDir()})
			must(t, err)
			defer func() { must(t, r.Close()) }()
			code := []byte(job.Script.Code)
			res := executortest.RunFunc(t.Context(), func(ctx context.Context, run executor.Run) error {
				return r.RunScript(ctx, run, executor.Script{Language: language, Version: 1, SHA256: sumOf(code), Code: code})
			}, executor.RunInfo{Param: "three little words", JobName: job.Name})
			if res.Err != nil || res.Output != "3 words" || len(res.Lines) != 2 {
				t.Errorf("output %q, error %v, log:\n%s", res.Output, res.Err, res.Text())
			}
		})
	}
	for _, language := range scripts.Known() {
		if !seen[language] {
			t.Errorf("the page has no example in %s", language)
		}
	}
}

func anyOnPath(programs ...string) bool {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err == nil {
			return true
		}
	}
	return false
}
