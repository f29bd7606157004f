//go:build unix

package conformance

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain runs the executor of mini_test.go where a test has started this binary as one.
func TestMain(m *testing.M) {
	if fault, ok := os.LookupEnv("BELFRY_CONFORMANCE_MINI"); ok {
		runMini(fault)
		return
	}
	os.Exit(m.Run())
}

// miniCommand is the command line of mini with a fault; an empty fault is none.
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

// TestNoFault: an executor that keeps every duty passes.
func TestNoFault(t *testing.T) {
	t.Parallel()
	if r := conform(t, Options{Command: miniCommand(t, ""), Short: true}); !r.OK {
		t.Error("an executor without fault does not pass")
	}
}
