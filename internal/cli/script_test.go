package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const scriptYAML = "group: default\nname: clean\nschedule: {kind: none}\nscript:\n  language: sh\n  remark: the first\n  code: |\n    echo one\n"

func TestScriptCommands(t *testing.T) {
	newRealConsole(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ok := func(stdin, args string, want ...string) string {
		t.Helper()
		r := belfry(t, stdin, strings.Fields(args)...)
		if r.want(t, ExitDone, want...); t.Failed() {
			t.Fatalf("belfry %s", args)
		}
		return r.stdout
	}
	ok(scriptYAML, "job apply -f -", "created  default/clean")
	ok(scriptYAML, "job apply -f -", "unchanged  default/clean")
	ok(strings.Replace(scriptYAML, "  remark: the first\n", "", 1), "job apply -f -", "unchanged  default/clean")
	for _, args := range []string{"job get default/clean -o yaml", "job get default/clean -o json"} {
		ok(ok("", args), "job apply -f -", "unchanged  default/clean")
	}
	ok("echo one\necho two\n", "job script set default/clean -f - -m more", "now has version 2")
	ok("echo one\necho two\n", "job script set default/clean -f -", "still has version 2")
	ok("", "job script list default/clean", "REMARK", "the first", "more", "admin")
	ok("", "job script list 1 -o json", `"version": 2`, `"sha256": `)
	if got := ok("", "job script get default/clean"); got != "echo one\necho two\n" {
		t.Errorf("the newest is %q", got)
	}
	if got := ok("", "job script get default/clean 1"); got != "echo one\n" {
		t.Errorf("the first is %q", got)
	}
	ok("", "job script get default/clean 1 -o yaml", "code: |", "remark: the first")
	if got := ok("", "job script diff default/clean 1"); !strings.HasSuffix(got, "@@ -1,1 +1,2 @@\n echo one\n+echo two\n") {
		t.Errorf("the difference is %q", got)
	}
	ok("", "job script diff default/clean 2 1 -o json", `-echo two\n`)
	ok("", "job script restore default/clean 1", "now has version 3")
	ok("", "job script restore default/clean 1", "still has version 3")
	ok("", "job script list default/clean -o yaml", "remark: version 1 restored")
	ok("", "job get default/clean", "sh, version 3, 9 bytes")
	ok("print(1)\n", "job script set default/clean -f - --language python", "now has version 4")

	// The script of a job in a job file may be in a separate file.
	spec := file("jobs.yaml", "group: default\nname: clean\nschedule: {kind: none}\nscript: {language: sh, code_file: clean.sh}\n")
	file("clean.sh", "echo from a file\n")
	ok("", "job apply -f "+spec, "updated  default/clean")
	ok("", "job apply -f "+spec, "unchanged  default/clean")
	if got := ok("", "job script get default/clean"); got != "echo from a file\n" {
		t.Errorf("from a file: %q", got)
	}

	for _, test := range []struct{ stdin, args, says string }{
		{"", "job script get default/clean 99", "no such version"},
		{"", "job script diff default/clean 98 99", "no such version"},
		{"", "job script restore default/clean 99", "no such version"},
		{"x", "job script set default/clean -f - --language cobol", "language"},
		{"", "job script set default/clean -f -", "code: is required"},
		{"", "job script get default/nothing", "no such job"},
		{strings.Replace(scriptYAML, "code: |\n    echo one", "code_file: nowhere.sh", 1), "job apply -f -", "file nowhere.sh does not exist"},
		{scriptYAML + "  code_file: clean.sh\n", "job apply -f -", "either code or code_file"},
	} {
		if r := belfry(t, test.stdin, strings.Fields(test.args)...); r.code != ExitFailed || !strings.Contains(r.stderr, test.says) {
			t.Errorf("%s: %+v, want %q", test.args, r, test.says)
		}
	}
	ok(reportYAML, "job apply -f -")
	for _, args := range []string{"job script set default/report -f -", "job script diff default/clean 0"} {
		if r := belfry(t, "x", strings.Fields(args)...); r.code != ExitUsage {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if r := belfry(t, "", "job", "script", "get", "default/report"); r.code != ExitFailed || !strings.Contains(r.stderr, "runs the handler") {
		t.Errorf("a handler's script: %+v", r)
	}
}
