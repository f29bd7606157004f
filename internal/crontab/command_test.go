//go:build unix

package crontab_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/executortest"
	"github.com/belfryhq/belfry/executor/handlers"
	"github.com/belfryhq/belfry/internal/crontab"
)

// TestTheAgentRunsWhatTheCrontabSays runs imported params with the handler `command`. Each command sets the run's output. A
// command that fails under cron must fail here.
func TestTheAgentRunsWhatTheCrontabSays(t *testing.T) {
	home := t.TempDir()
	for _, c := range []struct {
		name, text, output, err string
	}{
		{"plain", "* * * * * echo '::output' $((1+2)) \"a  b\"\n", "3 a  b", ""},
		{"exit status", "* * * * * exit 3\n", "", "exit status 3"},
		{"escaped percent", `* * * * * echo "::output ` + `$(printf '\%s' x)"` + "\n", "x", ""},
		{"environment", "A='x  y'\nPATH=/usr/bin:/bin\n* * * * * echo \"::output $A $PATH\"\n", "x  y /usr/bin:/bin", ""},
		{"home", "HOME=" + home + "\n* * * * * echo \"::output $(pwd -P) $HOME\"\n", physical(t, home) + " " + home, ""},
		{"shell", "SHELL=/bin/sh\n* * * * * echo \"::output $0\"\n", "sh", ""},
		{"standard input", "* * * * * read a; read b; echo \"::output $b,$a\"%one $HOME 'x%two\\% \"y\n", "two% \"y,one $HOME 'x", ""},
		{"exit status with standard input", "* * * * * cat >/dev/null; exit 4%x\n", "", "exit status 4"},
		{"unread standard input", "* * * * * exit 5%x%y\n", "", "exit status 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := crontab.Parse("mine", []byte(c.text), crontab.Options{Group: "default"})
			if len(r.Jobs) != 1 {
				t.Fatalf("got %+v", r)
			}
			got := executortest.RunFunc(t.Context(), handlers.Command, executor.RunInfo{Param: r.Jobs[0].Spec.Param})
			if c.err == "" && got.Err != nil || c.err != "" && (got.Err == nil || !strings.Contains(got.Err.Error(), c.err)) {
				t.Errorf("the error is %v, want %q", got.Err, c.err)
			}
			if got.Output != c.output {
				t.Errorf("the output is %q, want %q", got.Output, c.output)
			}
		})
	}
}

// physical returns the directory as pwd -P names it.
func physical(t *testing.T, dir string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
