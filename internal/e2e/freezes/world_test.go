//go:build unix

package freezes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

const (
	adminPassword = "a-password-for-tests-alone"
	group         = "g"
)

// world is a Belfry cluster of real processes: Postgres, a NATS server, a console, two schedulers, two dispatchers and the
// executors.
type world struct {
	t         testing.TB
	dir       string
	db        *pgxpool.Pool
	api       *client.Client
	natsFor   string // for executors
	token     string // token of the group
	instances []*instance
	jobs      []domain.JobID
}

func newWorld(t testing.TB, goInstances, pythonInstances int, interpreter string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	dbURL := pgtest.Database(t, store.Migrate)
	w.openPool(dbURL)
	seed, port := filepath.Join(w.dir, "issuer.seed"), rig.FreePort(t)
	public := rig.WriteIssuer(t, seed)
	w.natsFor = "nats://127.0.0.1:" + port
	rig.Start(t, "nats", w.dir, w.log("nats"), []string{
		rig.EnvNATSConf + "=" + filepath.Join(rig.Root(t), "deploy", "nats", "nats.conf"), rig.EnvNATSPort + "=" + port,
		"BELFRY_NATS_ISSUER=" + public, "BELFRY_NATS_PASSWORD=" + rig.NATSPassword, "BELFRY_NATS_SYS_PASSWORD=" + rig.SysPassword,
		"BELFRY_NATS_STORE=" + filepath.Join(w.dir, "nats"),
	})
	rig.Eventually(t, rig.Patience, "NATS answers", func() bool { return answers(port) })

	http := rig.FreePort(t)
	env := []string{
		"BELFRY_DATABASE_URL=" + dbURL, "BELFRY_NATS_URL=nats://belfry:" + rig.NATSPassword + "@127.0.0.1:" + port, "BELFRY_LOG_FORMAT=json",
		"BELFRY_NATS_SYSTEM_URL=nats://sys:" + rig.SysPassword + "@127.0.0.1:" + port,
		"BELFRY_NATS_ISSUER_SEED=" + seed, "BELFRY_ADMIN_PASSWORD=" + adminPassword, "BELFRY_HTTP=127.0.0.1:" + http,
	}
	for _, role := range []string{"console", "scheduler", "scheduler", "dispatcher", "dispatcher"} {
		rig.Start(t, "belfry", w.dir, w.log(role), env, role)
	}
	rig.Eventually(t, rig.Patience, "the console is ready", func() bool { return ready(http) })
	w.logIn("http://127.0.0.1:" + http)
	made, err := w.api.CreateGroup(t.Context(), group, "")
	if err != nil {
		t.Fatal(err)
	}
	w.token = made.Token
	w.tap()
	for i := range goInstances {
		w.launch(fmt.Sprintf("go-%02d", i), "")
	}
	for i := range pythonInstances {
		w.launch(fmt.Sprintf("python-%02d", i), interpreter)
	}
	rig.Eventually(t, rig.Patience, "all executors are listed", func() bool {
		list, err := w.api.Instances(t.Context(), group)
		return err == nil && len(list) == len(w.instances)
	})
	return w
}

func (w *world) log(name string) string { return filepath.Join(w.dir, name+".log") }

func answers(port string) bool {
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err == nil {
		c.Close()
	}
	return err == nil
}

func ready(port string) bool {
	res, err := http.Get("http://127.0.0.1:" + port + "/readyz")
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func (w *world) openPool(url string) {
	w.t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		w.t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = "belfry,river,public"
	cfg.MaxConns = 2
	if w.db, err = pgxpool.NewWithConfig(w.t.Context(), cfg); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.db.Close)
}

func (w *world) logIn(server string) {
	w.t.Helper()
	guest, err := client.New(server, "")
	if err != nil {
		w.t.Fatal(err)
	}
	defer guest.Close()
	session, err := guest.Login(w.t.Context(), "admin", adminPassword)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.api, err = client.New(server, session.Token); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.api.Close)
}

// instance is an executor process.
type instance struct {
	name    string
	notes   string // file of its handlers' starts
	process *rig.Process

	mu       sync.Mutex
	accepted map[ref]time.Time // guarded by mu; when the test saw the instance accept the attempt
	onAccept func()            // guarded by mu; called once, after the instance has accepted attempts
	starts   []start           // guarded by mu; read from notes
	started  map[ref]bool      // guarded by mu; the attempts in starts
	read     int64             // guarded by mu; number of bytes of notes that were read
}

// launch starts an executor: in Go, or in Python if an interpreter is given.
func (w *world) launch(name, interpreter string) {
	w.t.Helper()
	i := &instance{name: name, notes: filepath.Join(w.dir, name+".notes"), accepted: make(map[ref]time.Time), started: make(map[ref]bool)}
	env := []string{
		"BELFRY_GROUP=" + group, "BELFRY_TOKEN=" + w.token, "BELFRY_NATS_URL=" + w.natsFor, "BELFRY_INSTANCE=" + name,
		"BELFRY_SPOOL_DIR=" + filepath.Join(w.dir, "spool-"+name), "BELFRY_CAPACITY=256", envNotes + "=" + i.notes,
		"E2E_EXAMPLES=" + filepath.Join(rig.Root(w.t), "docs", "examples"),
	}
	w.instances = append(w.instances, i)
	if interpreter == "" {
		i.process = rig.Start(w.t, "executor", w.dir, w.log(name), env)
		return
	}
	script, err := filepath.Abs(filepath.Join("testdata", "instance.py"))
	if err != nil {
		w.t.Fatal(err)
	}
	i.process = rig.StartCommand(w.t, exec.Command(interpreter, "-u", "-B", script), w.dir, w.log(name), env)
}

func (w *world) instance(name string) *instance {
	for _, i := range w.instances {
		if i.name == name {
			return i
		}
	}
	return nil
}

// tap reads the answers of executors to offers, so that the test knows what an instance has accepted.
func (w *world) tap() {
	w.t.Helper()
	conn, err := nats.Connect(w.natsFor, nats.Timeout(rig.Patience), nats.UserInfo("belfry", rig.NATSPassword),
		nats.MaxReconnects(-1),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			w.t.Errorf("the test's own connection to NATS: %v", err)
		}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(conn.Close)
	sub, err := conn.Subscribe("_INBOX.>", func(m *nats.Msg) {
		if bytes.Contains(m.Data, []byte(`"verdicts"`)) {
			w.answered(m.Data)
		}
	})
	if err == nil {
		err = sub.SetPendingLimits(-1, -1)
	}
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// answered records which attempts an instance accepted in its answer to offers.
func (w *world) answered(data []byte) {
	var a wire.Answer
	if json.Unmarshal(data, &a) != nil {
		return
	}
	i := w.instance(a.Instance)
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	now, fresh := time.Now(), false
	for _, v := range a.Verdicts {
		r := ref{v.RunID, v.Attempt}
		if _, known := i.accepted[r]; v.Verdict == wire.Accepted && !known {
			i.accepted[r], fresh = now, true
		}
	}
	if fresh && i.onAccept != nil {
		i.onAccept()
		i.onAccept = nil
	}
}

// catchUp reads the lines that the instance's handlers have added to its file. mu is held.
func (i *instance) catchUp() error {
	f, err := os.Open(i.notes)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == i.read {
		return err
	}
	data := make([]byte, info.Size()-i.read)
	n, err := f.ReadAt(data, i.read)
	if err != nil {
		return fmt.Errorf("%s: %w", i.notes, err)
	}
	data = data[:bytes.LastIndexByte(data[:n], '\n')+1]
	i.read += int64(len(data))
	for line := range bytes.Lines(data) {
		s, err := readStart(string(line))
		if err != nil {
			return fmt.Errorf("%s: %w", i.notes, err)
		}
		i.starts = append(i.starts, s)
		i.started[s.ref()] = true
	}
	return nil
}

// gone reports whether the process has ended.
func (i *instance) gone() bool {
	select {
	case <-i.process.Gone():
		return true
	default:
		return false
	}
}

// period is the time between two fire times of a job. All jobs fire at the same instants: if many runs are due at an instant, the
// scheduler begins to fire them early, so that executors hold accepted attempts for longer before they start.
const period = 2 * time.Second

// load creates the jobs.
func (w *world) load(n int) {
	w.t.Helper()
	from := domain.At(time.Now().Add(5 * time.Second).Truncate(period))
	for i := range n {
		s := domain.DefaultJobSpec()
		s.Group, s.Name, s.Handler, s.Block = group, fmt.Sprintf("job-%03d", i), "work", domain.BlockParallel
		s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(period), StartAt: &from}
		s.Route = []domain.Route{domain.RouteAny, domain.RouteRandom, domain.RouteRoundRobin}[i%3]
		s.Param = []string{"2", "2", "2", "300"}[i%4]
		if i%20 == 0 {
			s.Param = "4000"
		}
		if i%2 == 1 {
			s.Retries, s.RetryBackoff.Initial = 3, domain.Duration(300*time.Millisecond)
		}
		job, err := w.api.CreateJob(w.t.Context(), s)
		if err != nil {
			w.t.Fatal(err)
		}
		w.jobs = append(w.jobs, job.ID)
	}
}

// finish disables the jobs and waits for the end of all runs. A run that does not end fails the test.
func (w *world) finish() {
	w.t.Helper()
	for _, id := range w.jobs {
		if err := w.api.SetJobEnabled(w.t.Context(), id, false); err != nil {
			w.t.Errorf("disable job %d: %v", id, err)
		}
	}
	ended := time.Now()
	rig.Eventually(w.t, rig.Patience, "every run ends", func() bool {
		var live int
		err := w.db.QueryRow(context.Background(), `SELECT count(*) FROM runs_live`).Scan(&live)
		return err == nil && live == 0
	})
	w.t.Logf("every run had ended %v after the last job was disabled", time.Since(ended).Round(time.Second))
}
