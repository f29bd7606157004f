package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// proposed returns the words that `belfry complete` prints.
func proposed(t *testing.T, words ...string) (out []string) {
	t.Helper()
	r := belfry(t, "", append([]string{"complete", "--"}, words...)...)
	r.want(t, ExitDone)
	for line := range strings.Lines(r.stdout) {
		word, _, _ := strings.Cut(line, "\t")
		out = append(out, strings.TrimSpace(word))
	}
	return out
}

func TestComplete(t *testing.T) {
	isolate(t)
	for _, c := range []struct {
		words []string
		want  string // the words, or "…" and some of them
	}{
		{[]string{"sched"}, "scheduler"},
		{[]string{""}, "… standalone job version completion"},
		{[]string{"job", "tri"}, "trigger"},
		{[]string{"job", "trigger", "--wa"}, "--wait"},
		{[]string{"migrate", ""}, "up status"},
		{[]string{"completion", ""}, "bash zsh fish"},
		{[]string{"run", "list", "--output", ""}, "table json yaml"},
		{[]string{"run", "list", "-o", "j"}, "json"},
		{[]string{"run", "list", "--output", "=", "j"}, "json"}, // as bash splits it
		{[]string{"run", "list", "--output", "="}, "table json yaml"},
		{[]string{"run", "list", "--output=j"}, "--output=json"}, // as zsh and fish pass it
		{[]string{"run", "list", "--output", "json", "--gro"}, "--group"},
		{[]string{"executor", "--group", "ech", "--tok"}, "--token"},
		{[]string{"executor", "--group", "ech"}, ""},
		{[]string{"executor", "--", "--tok"}, ""},
		{[]string{"run", "list", "--no-such=j"}, ""},
	} {
		got := proposed(t, c.words...)
		want, some := strings.CutPrefix(c.want, "… ")
		switch {
		case !some && strings.Join(got, " ") != want:
			t.Errorf("%q: got %q, want %q", c.words, got, want)
		case some:
			for _, w := range strings.Fields(want) {
				if !slices.Contains(got, w) {
					t.Errorf("%q: %q lacks %s", c.words, got, w)
				}
			}
		}
	}
	if got := proposed(t); slices.Contains(got, "bench-part") || slices.Contains(got, "complete") {
		t.Error("hidden commands are proposed")
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		belfry(t, "", "completion", shell).want(t, ExitDone, "belfry", "complete --")
	}
	belfry(t, "", "completion", "cmd").want(t, ExitUsage)
}

// The scripts are valid, and bash gets the right words from its script. The test leaves out a shell that this machine lacks.
func TestCompletionScripts(t *testing.T) {
	isolate(t)
	dir := t.TempDir()
	for shell, check := range map[string][]string{"bash": {"-n"}, "zsh": {"-n"}, "fish": {"--no-execute"}} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("this machine has no %s", shell)
			continue
		}
		script := filepath.Join(dir, shell)
		if err := os.WriteFile(script, []byte(belfry(t, "", "completion", shell).stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), path, append(check, script)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}

	path, err := exec.LookPath("bash")
	if err != nil {
		return
	}
	// A program in the place of belfry prints fixed proposals and notes its arguments.
	fake := filepath.Join(dir, "belfry")
	seen := filepath.Join(dir, "seen")
	program := fmt.Sprintf("#!%s\nprintf '%%s\\n' \"$*\" >%q\nprintf 'json\\tJSON\\n'\n", path, seen)
	if err := os.WriteFile(fake, []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	for typed, want := range map[string][2]string{
		`belfry run list -o j`:       {"complete -- run list -o j", "json"},
		`belfry run list --output=j`: {"complete -- run list --output = j", "json"},
		`belfry run list -o `:        {"complete -- run list -o ", "json"},
	} {
		words := strings.Split(strings.ReplaceAll(typed, "=", " = "), " ")
		words[0] = fake
		var quoted []string
		for _, w := range words {
			quoted = append(quoted, fmt.Sprintf("%q", w))
		}
		code := fmt.Sprintf("source %q; COMP_WORDS=(%s); COMP_CWORD=%d; _belfry; printf '%%s' \"${COMPREPLY[*]}\"",
			filepath.Join(dir, "bash"), strings.Join(quoted, " "), len(words)-1)
		out, err := exec.CommandContext(t.Context(), path, "-c", code).CombinedOutput()
		called, _ := os.ReadFile(seen)
		if err != nil || string(out) != want[1] || strings.TrimSuffix(string(called), "\n") != want[0] {
			t.Errorf("%q: got %q (%v) after the call %q, want %q", typed, out, err, called, want)
		}
	}
}
