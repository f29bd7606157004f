//go:build unix

package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/embedpg"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/store"
)

// runbook has the commands of docs/operations.md that a test runs, by name. A comment above each block names the test and the block.
type runbook struct {
	*cluster
	blocks  map[string]string
	elses   *strings.Replacer // replaces the examples of the page
	env     []string
	starts  string // a file with a line for each start of a handler
	workers map[string]*process
}

func newRunbook(t *testing.T, c *cluster, test string, replace ...string) *runbook {
	t.Helper()
	programs, err := embedpg.Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(programs, "pg_dump")); err != nil {
		t.Skip("NOT COVERED: backup and restore, because this machine has no pg_dump of the server's version")
	}
	b := &runbook{cluster: c, blocks: make(map[string]string), elses: strings.NewReplacer(replace...), starts: filepath.Join(c.dir, "starts"), workers: make(map[string]*process)}
	b.env = []string{"BELFRY_DATABASE_URL=" + c.dbURL, "PATH=" + filepath.Join(c.dir, "bin") + ":" + programs + ":" + os.Getenv("PATH")}
	found := regexp.MustCompile("(?s)<!-- not run: "+test+" runs it as \"([a-z ]+)\" -->\n```sh\n(.*?)```").
		FindAllStringSubmatch(read(t, filepath.Join(rig.Root(t), "docs", "operations.md")), -1)
	for _, m := range found {
		b.blocks[m[1]] = m[2]
	}
	return b
}

// does runs a block of the page and returns its output.
func (b *runbook) does(name string, env ...string) string {
	b.t.Helper()
	script, ok := b.blocks[name]
	if !ok {
		b.t.Fatalf("docs/operations.md has no commands %q for this test", name)
	}
	out := b.sh(b.elses.Replace(script), append(b.env, env...)...)
	b.t.Logf("%s:\n%s", name, out)
	return out
}

// begin starts a dispatcher and a scheduler.
func (b *runbook) begin() {
	b.t.Helper()
	b.workers["dispatcher"], b.workers["scheduler"] = b.dispatcher(), b.scheduler()
}

// stop stops all roles in order, and returns when the last one has stopped.
func (b *runbook) stop() time.Time {
	b.t.Helper()
	for _, p := range []*process{b.workers["scheduler"], b.workers["dispatcher"], b.console} {
		p.signal(syscall.SIGTERM)
		if code := p.exit(); code != 0 {
			b.t.Errorf("%s ended with code %d", p.name, code)
		}
	}
	return b.now()
}

// moveTo makes the cluster use another database.
func (b *runbook) moveTo(database string) {
	b.t.Helper()
	b.dbURL, b.db = database, openPool(b.t, database)
	b.env[0] = "BELFRY_DATABASE_URL=" + database
}

// restart starts the roles with the restored database.
func (b *runbook) restart() {
	b.t.Helper()
	b.console = b.role("console", nil, "--http", "127.0.0.1:0")
	b.server = b.console.says("console: ")
	b.logIn()
	b.begin()
}

// notes returns an edit that makes a job's handler write a line with the cause, job, fire time, run and attempt, and then run a script.
func (b *runbook) notes(script string) func(*domain.JobSpec) {
	return shell("echo $BELFRY_CAUSE,$BELFRY_JOB_ID,$BELFRY_FIRE_TIME,$BELFRY_RUN_ID,$BELFRY_ATTEMPT >> " + b.starts + "; " + script)
}

// started is a line of the starts.
type started struct {
	cause, job, fire, attempt string
}

func (b *runbook) started() (out []started) {
	b.t.Helper()
	for _, line := range linesOf(b.t, b.starts) {
		w := strings.SplitN(line, ",", 4)
		if len(w) != 4 {
			b.t.Fatalf("a start is %q", line)
		}
		out = append(out, started{w[0], w[1], w[2], w[3]})
	}
	return out
}

// pauseHasFireTimes waits until jobs that fire every second have had fire times in the pause.
func (b *runbook) pauseHasFireTimes() {
	b.t.Helper()
	eventually(b.t, patience, "the pause has lasted for three seconds", func() bool {
		return queryOne[bool](b.t, b.db, `SELECT clock_timestamp() > max(from_at) + interval '3 seconds' FROM group_pauses`)
	})
}

// why returns the fate of a fire time.
func (b *runbook) why(s started) firecheck.Fate {
	b.t.Helper()
	var id int64
	if _, err := fmt.Sscan(s.job, &id); err != nil {
		b.t.Fatal(err)
	}
	w, err := b.api.Why(b.t.Context(), domain.JobID(id), s.fire)
	if err != nil {
		b.t.Fatal(err)
	}
	return w.Fate
}

// until waits until a long run may end.
func until(file string) string { return "until [ -e " + file + " ]; do sleep 0.1; done" }

// newDatabase returns the name and the URL of a database that the test will create on the cluster's server, and drops it at the end.
func (c *cluster) newDatabase() (name, address string) {
	c.t.Helper()
	u, err := url.Parse(c.dbURL)
	if err != nil {
		c.t.Fatal(err)
	}
	name = "belfry_restored_" + strings.ToLower(rand.Text()[:12])
	u.Path = "/" + name
	db := c.db
	c.t.Cleanup(func() {
		if _, err := db.Exec(context.WithoutCancel(c.t.Context()), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			c.t.Error(err)
		}
	})
	return name, u.String()
}

// The runbook of docs/operations.md restores a backup while executors stay up. Its commands are those of the page. Every fire time
// that ran after the backup is named, none runs again by itself, runs that were in progress are settled, and everything goes on.
func TestRestoreRunbook(t *testing.T) {
	long(t)
	c := newCluster(t)
	name, address := c.newDatabase()
	b := newRunbook(t, c, "TestRestoreRunbook", "postgres://belfry:PASSWORD@db/belfry_restored", "'"+address+"'", "belfry_restored", name)
	b.begin()
	c.executor("i1")
	for _, policy := range []domain.Misfire{domain.MisfireFireAll, domain.MisfireFireOnce, domain.MisfireSkip} {
		c.job(string(policy), b.notes("true"), everySecond(policy))
	}
	all, skips := c.named(string(domain.MisfireFireAll)), c.named(string(domain.MisfireSkip))
	enough := domain.At(c.now().Add(10 * time.Second))
	c.job("slow", b.notes("sleep 3"), everySecond(domain.MisfireFireAll), func(s *domain.JobSpec) {
		s.Block, s.Schedule.EndAt = domain.BlockSerial, &enough
	})
	known, unknown := filepath.Join(c.dir, "known"), filepath.Join(c.dir, "unknown")
	running := c.trigger(c.job("known", b.notes(until(known))).ID)
	c.reaches(running, patience, "is running", func(r domain.Run) bool { return r.State == domain.Running })
	c.fires(all, c.now().Add(5*time.Second))
	b.does("dump")
	saved := c.now()
	lost := c.trigger(c.job("unknown", b.notes(until(unknown))).ID)
	c.reaches(lost, patience, "is running", func(r domain.Run) bool { return r.State == domain.Running })
	c.fires(all, saved.Add(12*time.Second))
	stopped := b.stop()
	before := b.started()

	b.does("restore")
	b.moveTo(address)
	said := b.does("record", "STOPPED="+domain.At(stopped).String())
	uncertain := queryOne[int](t, c.db, `SELECT coalesce(sum(count), 0) FROM missed WHERE why_note LIKE '["restored"%'`)
	if uncertain < 3*10 || !strings.Contains(said, fmt.Sprintf("Uncertain fire times: %d of ", uncertain)) {
		t.Errorf("%d fire times are uncertain", uncertain)
	}
	b.restart()
	touch(t, known, unknown)
	if r := c.finishes(running, patience); r.State != domain.Succeeded || r.Attempt != 1 {
		t.Errorf("the run that the backup knows as running ended %s/%s in attempt %d", r.State, r.Reason, r.Attempt)
	}
	eventually(t, patience, "the result of a run that the database does not know is a dead letter", func() bool {
		letters, err := c.api.DeadLetters(t.Context(), "", "", 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range letters {
			if l.Kind == "result" {
				return true
			}
		}
		return false
	})
	if said := b.does("check"); !strings.Contains(said, "uncertain") {
		t.Error("the fire check names no uncertain fire times")
	}
	if n := queryOne[int](t, c.db, `SELECT count(*) FROM runs WHERE cause IN ('misfire', 'schedule') AND fire_time >= (SELECT from_at FROM group_pauses WHERE group_name = $1)`, group); n > 0 {
		t.Errorf("%d runs of schedules began during the pause", n)
	}

	first := queryOne[time.Time](t, c.db, `SELECT min(first_fire_time) FROM missed WHERE job_id = $1 AND why_note LIKE '["restored"%'`, skips.ID)
	last := first.Add(4 * time.Second)
	b.does("decide", "JOB="+group+"/"+skips.Name, "FROM="+domain.At(first).String(), "TO="+domain.At(last.Add(time.Second)).String())
	eventually(t, patience, "the fire times that were chosen have run", func() bool {
		return len(c.runsOf(skips.Name, client.RunFilter{Cause: "backfill", State: "succeeded"})) == 5
	})
	b.pauseHasFireTimes()
	b.does("resume")
	resumed := c.now()
	for _, job := range []domain.Job{all, skips} {
		c.fires(job, resumed.Add(2*time.Second))
	}
	b.nothingTwice(before, stopped, resumed)
}

// nothingTwice checks that each fire time that started twice is named, and that those that ran before the restore and that the database
// does not know are named and did not run again.
func (b *runbook) nothingTwice(before []started, stopped, end time.Time) {
	b.t.Helper()
	settles(b.t, b.db, end, patience)
	starts := make(map[started]int)
	for _, s := range b.started() {
		if s.cause == "schedule" || s.cause == "misfire" {
			s.cause = ""
			starts[s]++
		}
	}
	for s, n := range starts {
		if n > 1 && b.why(s) != firecheck.FateUncertain {
			b.t.Errorf("a fire time started %d times and is %s: %+v", n, b.why(s), s)
		}
	}
	known := 0
	for _, s := range before {
		if s.cause != "schedule" {
			continue
		}
		runs := queryOne[int](b.t, b.db, `SELECT count(*) FROM runs WHERE job_id = $1::bigint AND fire_time = $2::timestamptz AND cause IN ('schedule', 'misfire')`, s.job, s.fire)
		switch fate := b.why(s); {
		case runs > 0:
			known++
		case fate != firecheck.FateUncertain:
			b.t.Errorf("a fire time ran before the restore, and the fire check says %s: %+v", fate, s)
		}
	}
	if known == 0 || known == len(before) {
		b.t.Errorf("the backup knows %d of %d starts", known, len(before))
	}
	if code, out, errs := b.command("audit", "--since", "24h", "--until", domain.At(end).String()); code != 0 {
		b.t.Errorf("belfry audit ended with code %d:\n%s%s", code, out, errs)
	}
	if n := queryOne[int](b.t, b.db, `SELECT count(*) FROM runs WHERE cause = 'misfire' AND fire_time <= $1 AND created_at > $1`, stopped); n > 0 {
		b.t.Errorf("the misfire policy ran %d fire times that are uncertain", n)
	}
	if n := queryOne[int](b.t, b.db, `SELECT count(*) FROM runs WHERE cause = 'misfire' AND fire_time > $1`, stopped); n == 0 {
		b.t.Error("the misfire policy ran no fire time of the time without Belfry")
	}
}

func touch(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range files {
		if err := os.WriteFile(f, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A planned move by the runbook: no fire time is uncertain, and each has one run.
func TestMoveRunbook(t *testing.T) {
	long(t)
	c := newCluster(t)
	name, address := c.newDatabase()
	b := newRunbook(t, c, "TestMoveRunbook")
	restore := newRunbook(t, c, "TestRestoreRunbook", "postgres://belfry:PASSWORD@db/belfry_restored", "'"+address+"'", "belfry_restored", name)
	b.begin()
	c.executor("i1")
	job := c.job("all", b.notes("true"), everySecond(domain.MisfireFireAll))
	c.fires(job, c.now().Add(3*time.Second))
	b.does("pause")
	b.stop()
	restore.does("dump")
	restore.does("restore")
	b.moveTo(address)
	b.restart()
	b.does("continue")
	resumed := c.now()
	c.fires(job, resumed.Add(2*time.Second))
	settles(t, c.db, resumed, patience)
	times := make(map[string]int)
	for _, s := range b.started() {
		if times[s.fire]++; times[s.fire] > 1 {
			t.Errorf("the fire time %s started twice", s.fire)
		}
	}
	page, err := c.api.AuditFires(t.Context(), client.FireScope{Since: domain.At(resumed.Add(-time.Hour)), Until: domain.At(resumed)}, "")
	if err != nil || page.Counts[firecheck.FateUncertain]+page.Counts[firecheck.FateUnexplained]+page.Counts[firecheck.FateDoubled] > 0 {
		t.Errorf("the fire check says %v, %v", page.Counts, err)
	}
}

// A recovery to a point in time by the runbook, from a base backup and archived WAL. It is the short form of TestRestoreRunbook.
func TestRestoreToPointInTime(t *testing.T) {
	if os.Getenv("BELFRY_TEST_LONG") == "" {
		t.Skip("NOT COVERED: recovery to a point in time; `.ci/long restore` runs it")
	}
	backup, first, second := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(backup, "wal"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(backup), backup, filepath.Join(backup, "wal")} {
		if err := os.Chmod(dir, 0o777); err != nil { // Postgres may run under another account
			t.Fatal(err)
		}
	}
	primary := startPostgres(t, first, map[string]string{
		"wal_level": "replica", "max_wal_senders": "2", "archive_mode": "on",
		"archive_command": fmt.Sprintf(`test ! -f "%[1]s/wal/%%f" && cp "%%p" "%[1]s/wal/%%f"`, backup),
	})
	if err := store.Migrate(t.Context(), primary.URL()); err != nil {
		t.Fatal(err)
	}
	c := newClusterOn(t, primary.URL())
	b := newRunbook(t, c, "TestRestoreToPointInTime", "/backup/", backup+"/")
	restore := newRunbook(t, c, "TestRestoreRunbook")
	restore.workers = b.workers
	b.begin()
	c.executor("i1")
	job := c.job("all", b.notes("true"), everySecond(domain.MisfireFireAll))
	c.fires(job, c.now().Add(2*time.Second))
	b.does("base backup")
	c.fires(job, c.now().Add(3*time.Second))
	target := c.now()
	c.fires(job, target.Add(12*time.Second))
	stopped := b.stop()
	before := b.started()
	if err := primary.Stop(t.Context()); err != nil { // it archives the last WAL
		t.Fatal(err)
	}

	b.does("recover", "TARGET="+target.Format("2006-01-02 15:04:05.000000-07:00"))
	data := filepath.Join(second, "postgres", "data")
	if err := os.MkdirAll(filepath.Dir(data), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(c.dir, "recovered"), data); err != nil {
		t.Fatal(err)
	}
	recovered := startPostgres(t, second, nil)
	b.moveTo(recovered.URL())
	restore.env = b.env
	eventually(t, patience, "the recovery has ended", func() bool { return !queryOne[bool](t, c.db, `SELECT pg_is_in_recovery()`) })
	restore.does("record", "STOPPED="+domain.At(stopped).String())
	b.restart()
	restore.does("check")
	b.pauseHasFireTimes()
	restore.does("resume")
	resumed := c.now()
	c.fires(job, resumed.Add(2*time.Second))
	b.nothingTwice(before, stopped, resumed)
}
