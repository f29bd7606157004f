//go:build unix

package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// TestMain runs the executor of mini_test.go if a test has started this binary as an executor.
func TestMain(m *testing.M) {
	if fault, ok := os.LookupEnv("BELFRY_CONFORMANCE_MINI"); ok {
		runMini(fault)
		return
	}
	os.Exit(m.Run())
}

// miniCommand returns the command line of mini with a fault. If fault is empty, mini has none.
func miniCommand(t *testing.T, fault string) string {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return "BELFRY_CONFORMANCE_MINI='" + fault + "' exec '" + binary + "'"
}

// conform runs the kit and logs its table.
func conform(t *testing.T, o Options) Report {
	t.Helper()
	o.Notice = func(text string) { t.Log(text) }
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	t.Logf("in %d ms:\n%s", r.TookMS, table.String())
	return r
}

// form reports whether tests run the short form of the kit. They do unless BELFRY_CONFORMANCE_FULL is set.
func form() (short bool) { return os.Getenv("BELFRY_CONFORMANCE_FULL") == "" }

// TestNoFault: an executor that keeps every duty passes.
func TestNoFault(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("NOT COVERED: whether mini without a fault passes; TestGoSDK covers the SDK")
	}
	r := conform(t, Options{Command: miniCommand(t, ""), Short: form()})
	if !r.OK {
		t.Error("an executor without fault does not pass")
	}
	want := []string{"job_runs", "spool", "same_name", "overwrite"}
	if got := notOffered(r); !slices.Equal(got, want) {
		t.Errorf("it leaves out %v, and %v is reported as not offered", want, got)
	}
}

// TestGoSDK: the Go SDK keeps every duty and leaves none out.
func TestGoSDK(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "goexecutor")
	build := exec.Command("go", "build", "-o", binary, "./goexecutor")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the executor: %v\n%s", err, out)
	}
	command := "exec '" + binary + "'"
	r := conform(t, Options{Command: command, Short: form()})
	// If the machine delays the executor, its heartbeats can look wrong. A fault of the executor shows each time.
	broken := r.BrokenDuties()
	for try := 1; try < 4 && len(broken) > 0; try++ {
		again := conform(t, Options{Command: command, Only: broken})
		broken = again.BrokenDuties()
	}
	if len(broken) > 0 {
		t.Error("the Go SDK breaks", broken)
	}
	if got := notOffered(r); len(got) > 0 {
		t.Errorf("%v is reported as not offered", got)
	}
}

func notOffered(r Report) (ids []string) {
	for _, l := range r.Duties {
		if l.Verdict == NotOffered {
			ids = append(ids, l.Duty)
		}
	}
	return ids
}

// TestUnusable: an executor that cannot be tested causes broken duties or an error, and never a pass.
func TestUnusable(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Command: " "}, {Command: "true", Only: []string{"novelty"}}} {
		if _, err := Run(t.Context(), o); domain.CodeOf(err) != domain.Invalid {
			t.Errorf("%+v: %v", o, err)
		}
	}
	r := conform(t, Options{Command: "echo no executor here >&2; exit 3", Only: []string{"login", "restart"}})
	for _, l := range r.Duties {
		if l.Verdict != Failed || !strings.Contains(l.Seen, "no executor here") {
			t.Errorf("a command that ends at once: %+v", l)
		}
	}
	if r.OK || r.Broken != 2 {
		t.Errorf("%d of two duties are broken, want 2", r.Broken)
	}
}

// TestReport: the table and the JSON show each duty, and the table has no control characters.
func TestReport(t *testing.T) {
	t.Parallel()
	r := Report{Executor: "x", Duties: []Line{
		{Duty: "a", Section: "Offers", Verdict: Passed, Seen: "fine"}, {Duty: "b", Section: "Logs", Verdict: Failed, Seen: "bad\x1b[31m\nworse"},
		{Duty: "c", Section: "Logs", Verdict: NotOffered}, {Duty: "d", Section: "Logs", Verdict: Unclear},
	}}
	r.count()
	if r.OK || r.Passed != 1 || r.Broken != 2 {
		t.Errorf("counted %d passed and %d broken, ok %v", r.Passed, r.Broken, r.OK)
	}
	var table, text strings.Builder
	if err := errors.Join(r.Table(&table), r.JSON(&text)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "2 duties are broken") || strings.Contains(table.String(), "\x1b") || strings.Count(table.String(), "\n") != 7 {
		t.Errorf("the table is\n%q", table.String())
	}
	var back Report
	if err := json.Unmarshal([]byte(text.String()), &back); err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("the JSON decodes to %+v: %v", back, err)
	}
}
