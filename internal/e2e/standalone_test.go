//go:build unix

package e2e

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

// standalone starts `belfry standalone` on a data directory.
func standalone(t *testing.T, dataDir string, env []string, args ...string) *process {
	t.Helper()
	args = append([]string{"standalone", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--data-dir", dataDir}, args...)
	return launch(t, "standalone", "belfry", t.TempDir(), append(env, "BELFRY_LOG_FORMAT=json"), args...)
}

// sendGarbage sends bytes that are not the protocol to listeners, so that their libraries have something to log.
func sendGarbage(t *testing.T, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Write([]byte("\x16\x03\x01 no protocol of this port\r\n\r\n"))
		if err = errors.Join(err, conn.SetReadDeadline(time.Now().Add(patience))); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn) // until the server closes the connection
		conn.Close()
	}
}

// One command on an empty directory starts a console, prints the first password, and fires jobs. All data survives a stop, a crash and
// a new start.
func TestFreshStart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	begin := time.Now()
	first := standalone(t, dir, nil, "--demo", "--allow-script", "sh")
	server := first.says("console: ")
	natsURL := first.says("nats: ")
	if !strings.HasPrefix(natsURL, "nats://127.0.0.1:") {
		t.Errorf("it printed nats: %s", natsURL)
	}
	sendGarbage(t, strings.TrimPrefix(server, "http://"), strings.TrimPrefix(natsURL, "nats://"))
	t.Logf("ready %v after its start", time.Since(begin).Round(time.Millisecond))
	first.says("user: admin")
	password, _, _ := strings.Cut(first.says("password: "), " ")

	api, _ := logIn(t, server, password)
	ran := demoRuns(t, api)
	jobs, err := api.Jobs(t.Context(), client.JobFilter{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	demoScript(t, api)
	second := standalone(t, dir, nil)
	if code := second.exit(); code != 1 {
		t.Errorf("a second one on the same directory ended with code %d", code)
	}
	if said := second.logsJSON(); !strings.Contains(said, "the role failed") || !strings.Contains(said, dir) || !strings.Contains(said, "in use") {
		t.Errorf("the second one printed %q", said)
	}
	first.signal(syscall.SIGTERM)
	if code := first.exit(); code != 0 {
		t.Errorf("after SIGTERM it ended with code %d", code)
	}
	first.logsJSON()

	again := standalone(t, dir, nil, "--demo")
	ran = keeps(t, again, password, jobs, ran)
	again.kill()
	begin = time.Now()
	again = standalone(t, dir, nil, "--demo")
	keeps(t, again, password, jobs, ran)
	t.Logf("%v from the start after SIGKILL to the first new run", time.Since(begin).Round(time.Millisecond))
	again.signal(syscall.SIGTERM)
	if code := again.exit(); code != 0 {
		t.Errorf("after SIGTERM it ended with code %d", code)
	}
}

// demoScript triggers the script of a demo that allows scripts.
func demoScript(t *testing.T, api *client.Client) {
	t.Helper()
	job, err := api.JobByName(t.Context(), "demo", "disk-space")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := api.TriggerJob(t.Context(), job.ID, client.Trigger{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the demo's script has run", func() bool {
		r, err := api.Run(t.Context(), ids[0])
		return err == nil && r.State == domain.Succeeded && strings.HasSuffix(r.Output, "% used")
	})
}

// demoRuns waits for scheduled runs of the demo that succeeded, and returns them.
func demoRuns(t *testing.T, api *client.Client) []domain.Run {
	t.Helper()
	var runs []domain.Run
	begin := domain.At(time.Now())
	eventually(t, patience, "the demo's jobs fire", func() bool {
		var err error
		runs, err = api.Runs(t.Context(), client.RunFilter{Group: "demo", State: "succeeded", Cause: "schedule", From: &begin}, 100)
		if err != nil {
			t.Fatal(err)
		}
		return len(runs) >= 2
	})
	return runs
}

// keeps checks that a standalone still has its jobs and runs, has not generated another password, and continues to fire.
func keeps(t *testing.T, p *process, password string, jobs []domain.Job, runs []domain.Run) []domain.Run {
	t.Helper()
	api, _ := logIn(t, p.says("console: "), password)
	p.says("nats: ")
	if said := p.stdout.text(); strings.Contains(said, "password") {
		t.Errorf("a second start printed %q", said)
	}
	kept, err := api.Jobs(t.Context(), client.JobFilter{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != len(jobs) {
		t.Errorf("%d jobs of %d are left", len(kept), len(jobs))
	}
	for i := range min(len(kept), len(jobs)) {
		if kept[i].ID != jobs[i].ID || kept[i].Name != jobs[i].Name || kept[i].Version != jobs[i].Version {
			t.Errorf("job %d %s (version %d) became %d %s (version %d)", jobs[i].ID, jobs[i].Name, jobs[i].Version,
				kept[i].ID, kept[i].Name, kept[i].Version)
		}
	}
	for _, r := range runs {
		if got, err := api.Run(t.Context(), r.ID); err != nil || got.State != r.State || got.FinishedAt.String() != r.FinishedAt.String() {
			t.Errorf("the run %s is %+v now (%v), was %+v", r.ID, got, err, r)
		}
	}
	return append(demoRuns(t, api), runs...)
}

// After a kill of its Postgres, a standalone starts Postgres again, and no fire time is lost or doubled.
func TestStandaloneSurvivesPostgresKill(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	p := standalone(t, dir, []string{"BELFRY_ADMIN_PASSWORD=" + adminPassword}, "--demo")
	api, _ := logIn(t, p.says("console: "), adminPassword)
	p.says("nats: ")
	eventually(t, patience, "the demo's executor is listed", func() bool {
		list, err := api.Instances(t.Context(), "demo")
		if err == nil && len(list) == 1 && len(list[0].Languages) > 0 {
			t.Fatalf("without --allow-script the demo runs scripts in %v", list[0].Languages)
		}
		return err == nil && len(list) == 1
	})
	var jobs []domain.Job
	for _, name := range []string{"one", "two", "three"} {
		spec := domain.DefaultJobSpec()
		spec.Group, spec.Name, spec.Handler, spec.Misfire = "demo", name, "echo", domain.MisfireFireAll
		spec.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
		job, err := api.CreateJob(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, job)
	}
	ticked := func(since time.Time) func() bool {
		return func() bool {
			from := domain.At(since)
			runs, err := api.Runs(t.Context(), client.RunFilter{JobID: jobs[0].ID, State: "succeeded", From: &from}, 10)
			return err == nil && len(runs) >= 3
		}
	}
	eventually(t, patience, "the jobs fire", ticked(jobs[0].CreatedAt.Time))
	for range 2 {
		killed := time.Now()
		if err := syscall.Kill(postmaster(t, dir), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, "the jobs fire again", ticked(time.Now()))
		t.Logf("three new runs %v after Postgres was killed", time.Since(killed).Round(time.Millisecond))
	}
	db := openPool(t, (&url.URL{
		Scheme: "postgres", User: url.User("belfry"), Path: "/belfry",
		RawQuery: url.Values{"host": {socketDir(t, dir)}}.Encode(),
	}).String())
	until := queryOne[time.Time](t, db, `SELECT clock_timestamp()`)
	settles(t, db, until, patience)
	for _, job := range jobs {
		firesExactly(t, db, job, until, eachSucceeds)
	}
}

// postmaster returns the process id of a data directory's Postgres.
func postmaster(t *testing.T, dir string) int {
	t.Helper()
	pid := 0
	eventually(t, patience, "Postgres has a pid file", func() bool {
		text, _, _ := strings.Cut(read(t, filepath.Join(dir, "postgres", "data", "postmaster.pid")), "\n")
		var err error
		pid, err = strconv.Atoi(text)
		return err == nil && pid > 1
	})
	return pid
}

// socketDir returns the directory of the socket of a data directory's Postgres: next to its data, unless that path is too long.
func socketDir(t *testing.T, dir string) string {
	t.Helper()
	if elsewhere := strings.TrimSpace(read(t, filepath.Join(dir, "postgres", "socket_dir"))); elsewhere != "" {
		return elsewhere
	}
	return filepath.Join(dir, "postgres", "run")
}

// read returns the content of a file, "" if it does not exist.
func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}
