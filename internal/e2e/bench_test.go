//go:build unix

package e2e

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
)

// benchReport is what `belfry bench -o json` prints, as far as the test looks.
type benchReport struct {
	Version   string
	Machine   struct{ System string }
	Settings  map[string]any
	Summaries []struct {
		What                      string
		Yardstick, Engine, Ratios map[string]float64
	}
	Runs []struct{ What, Side string }
}

// TestBench: the measurement runs, everything that it fires ends, and its report is complete. How fast anything was
// is not this test's affair.
func TestBench(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: belfry bench, which takes half a minute")
	}
	t.Parallel()
	const fires = 200
	dir := t.TempDir()
	p := launch(t, "bench", "belfry", dir, nil, "bench", "burst", "--fires", "200", "-o", "json", "--dir", dir, "--executors", "2")
	if code := p.exit(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var report benchReport
	if err := json.Unmarshal([]byte(p.stdout.text()), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Summaries) != 1 || len(report.Runs) != 2 || report.Version != "e2e" || report.Settings["fires"] != 200.0 {
		t.Fatalf("the report is %+v", report)
	}
	s := report.Summaries[0]
	common := []string{
		"fires_per_s", "all_started_ms", "all_settled_ms", "lateness_p50_ms", "lateness_p99_ms", "lateness_p99.9_ms", "lateness_max_ms",
		"settled_after_p99_ms", "wal_bytes_per_run", "database_bytes_per_run", "nats_bytes_per_run", "measured_s",
	}
	yardstick := append([]string{"table_bytes.live.before", "index_bytes.live.after"}, common...)
	engine := append([]string{"table_bytes.runs_live.before", "index_bytes.job_due.after", "recorded_lateness_p99_ms", "missed"}, common...)
	if runtime.GOOS == "linux" {
		for _, part := range strings.Fields("postgres nats pipeline responder") {
			yardstick = append(yardstick, "cpu_us_per_run."+part, "memory_bytes."+part)
		}
		for _, part := range strings.Fields("postgres nats scheduler dispatcher executor") {
			engine = append(engine, "cpu_us_per_run."+part, "memory_bytes."+part)
		}
	}
	for side, want := range map[string]struct {
		figures map[string]float64
		names   []string
	}{"yardstick": {s.Yardstick, yardstick}, "engine": {s.Engine, engine}, "ratios": {s.Ratios, common}} {
		for _, name := range want.names {
			if _, ok := want.figures[name]; !ok {
				t.Errorf("%s lacks %s", side, name)
			}
		}
	}
	for _, f := range []map[string]float64{s.Yardstick, s.Engine} {
		if f["fires"] != fires || f["ended"] != fires || f["succeeded"] != fires || f["missed"] != 0 {
			t.Errorf("of %d fires %v ended, %v succeeded, %v were missed", fires, f["ended"], f["succeeded"], f["missed"])
		}
		if f["wal_bytes_per_run"] <= 0 || f["nats_bytes_per_run"] <= 0 || f["lateness_max_ms"] < f["lateness_p50_ms"] {
			t.Errorf("figures that cannot be: %v", f)
		}
	}
}
