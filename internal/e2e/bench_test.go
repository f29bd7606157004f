//go:build unix

package e2e

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// benchReport is the part of the output of `belfry bench -o json` that the tests check.
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

// TestBench checks that a measurement fires all runs, that all of them end, and that the report is complete. It does not judge the
// speed.
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
			t.Errorf("impossible figures: %v", f)
		}
	}
}

// TestBenchOnHistory checks that the bench inserts past runs and measures the engine with them.
func TestBenchOnHistory(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: belfry bench history, which takes half a minute")
	}
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, "bench", "belfry", dir, nil, "bench", "history", "--history", "5000", "--rate", "20", "--span", "2s", "--no-yardstick",
		"-o", "json", "--dir", dir, "--profile", dir)
	if code := p.exit(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var report benchReport
	if err := json.Unmarshal([]byte(p.stdout.text()), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Summaries) != 2 {
		t.Fatalf("the report is %+v", report)
	}
	for _, s := range report.Summaries {
		if s.Engine["ended"] != 40 || s.Engine["succeeded"] != 40 || s.Yardstick != nil {
			t.Errorf("%s: got %v", s.What, s.Engine)
		}
	}
	for _, name := range []string{"scheduler-1.cpu.pprof", "executor-1.allocs.pprof", "nats.cpu.pprof"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("the profile %s: %v", name, err)
		}
	}
}

// TestBenchGateway checks that the bench sends all runs through a gateway, each once, and compares them with the same runs of Belfry's own executors.
func TestBenchGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: belfry bench gateway, which takes a minute")
	}
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, "bench", "belfry", dir, nil, "bench", "gateway", "--rate", "20", "--span", "2s", "--addresses", "3", "-o", "json", "--dir", dir)
	if code := p.exit(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var report benchReport
	if err := json.Unmarshal([]byte(p.stdout.text()), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Summaries) != 1 || len(report.Runs) != 2 {
		t.Fatalf("the report is %+v", report)
	}
	s := report.Summaries[0]
	for side, f := range map[string]map[string]float64{"plain path": s.Yardstick, "gateway": s.Engine} {
		if f["fires"] != 40 || f["ended"]+f["missed"] != 40 || f["succeeded"] != f["ended"] {
			t.Errorf("%s: of 40 fires %v ended, %v succeeded, %v were missed", side, f["ended"], f["succeeded"], f["missed"])
		}
		if _, ok := f["lateness_p99_ms"]; !ok {
			t.Errorf("%s: the lateness is missing", side)
		}
	}
	if s.Engine["requests"] != s.Engine["ended"] {
		t.Errorf("the executors of XXL-JOB received %v requests for %v runs", s.Engine["requests"], s.Engine["ended"])
	}
	if runtime.GOOS != "linux" {
		return
	}
	for _, name := range []string{"cpu_us_per_run.gateway", "cpu_us_per_run.stub", "server_cpu_us_per_run", "added_server_cpu_us_per_run"} {
		if _, ok := s.Engine[name]; !ok {
			t.Errorf("the gateway's figures lack %s", name)
		}
	}
	if parts := s.Engine["cpu_us_per_run"] - s.Engine["cpu_us_per_run.stub"]; math.Abs(parts-s.Engine["server_cpu_us_per_run"]) > 1 {
		t.Errorf("the servers used %v µs per run, all parts but the stub %v", s.Engine["server_cpu_us_per_run"], parts)
	}
}

// TestBenchInterrupted checks that the bench leaves neither processes nor files after Ctrl-C.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, "bench", "belfry", dir, nil, "bench", "burst", "--fires", "10", "--dir", dir)
	eventually(t, patience, "its servers are started", func() bool {
		found, err := filepath.Glob(filepath.Join(dir, "belfry-bench-*", "nats", "jetstream"))
		return err == nil && len(found) > 0
	})
	children := childrenOf(t, p.cmd.Process.Pid)
	p.signal(syscall.SIGINT)
	if code := p.exit(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "belfry-bench-*")); err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
	for _, pid := range children {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("it left process %d", pid)
		}
	}
	if runtime.GOOS == "linux" && len(children) == 0 {
		t.Error("it had no processes")
	}
}

// childrenOf returns the child processes of a process, none on a system without /proc.
func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}
