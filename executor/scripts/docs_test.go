//go:build unix

package scripts_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/scripts"
)

var example = regexp.MustCompile("(?s)<!-- example -->\n```yaml\n(.*?)\n```")

// TestPage runs each example of the page as it stands there.
func TestPage(t *testing.T) {
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
			continue // there is none on Debian, see TestPowerShell
		}
		t.Run(language, func(t *testing.T) {
			need(t, language, language+"3")
			res := run(t.Context(), open(t, language), language, job.Script.Code, executor.RunInfo{Param: "three little words", JobName: job.Name})
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
