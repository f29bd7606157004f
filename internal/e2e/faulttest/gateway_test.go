//go:build unix

package faulttest

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/checker"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/xxl/xxltest"
)

// The roles of executors of XXL-JOB. All are in one group, which has the name of the first role. The executors of the second role have no
// faults, so none of their attempts may be lost, whatever happens to gateways and servers.
const (
	xxl  = "xxl"
	calm = "calm xxl"
)

// xxlExecutors are the executors of XXL-JOB by role.
var xxlExecutors = map[string][]string{xxl: {"x1", "x2"}, calm: {"x3"}}

// The version of xxl-job-core, and the access token of the executors.
const (
	xxlCore  = "3.3.2"
	xxlToken = "a-token-of-the-fault-test"
)

// The kinds of fault of gateways and of executors of XXL-JOB. One gateway at a time has a fault, as during an update.
var (
	gatewayKinds = []kind{
		{name: "kill gateway", mean: 3 * time.Second, do: killing("gateway")},
		{name: "stop gateway", mean: 3 * time.Second, do: stopping("gateway")},
		{name: "freeze gateway", mean: 14 * time.Second, do: freezing("gateway")},
		{name: "cut gateway", slow: true, mean: 7 * time.Second, do: breakingAny("gateway", (*rig.Proxy).Cut)},
		{name: "blackhole gateway", slow: true, mean: 7 * time.Second, do: breakingAny("gateway", (*rig.Proxy).Blackhole)},
	}
	xxlKinds = []kind{
		{name: "kill xxl", mean: 3 * time.Second, do: killing(xxl)},
		{name: "kill and restart xxl", mean: time.Second, do: restarting(xxl)}, // without a pause, so that the address stays in use
		{name: "stop xxl", mean: 10 * time.Second, do: stopping(xxl)},
		{name: "freeze xxl", mean: 14 * time.Second, do: freezing(xxl)},
	}
	awayKinds = []kind{
		{name: "restart postgres", mean: 4 * time.Second, do: func(n *nemesis, name string) { n.postgres(name, false) }},
		{name: "outage nats", mean: 15 * time.Second, do: outage},
	}
)

// restarting kills a process and starts it again at once.
func restarting(role string) func(*nemesis, string) {
	return func(n *nemesis, name string) {
		n.to(name, role, func(m *member) {
			m.process.Kill()
			m.start()
		})
	}
}

// javaClasses compiles the executor of XXL-JOB, and returns its class path. Without Java or Maven, the test is skipped.
func javaClasses(t *testing.T) (classPath string) {
	t.Helper()
	dir := t.TempDir()
	classPath = xxltest.JavaLibraries(t, xxlCore)
	source := filepath.Join(rig.Root(t), "internal", "e2e", "faulttest", "testdata", "Noting.java")
	if out, err := exec.CommandContext(t.Context(), "javac", "-cp", classPath, "-d", dir, source).CombinedOutput(); err != nil {
		t.Fatalf("compile the executor of XXL-JOB: %v\n%s", err, out)
	}
	return classPath + string(os.PathListSeparator) + dir
}

// addGateways adds two gateways, and executors of XXL-JOB that register at them.
func (w *world) addGateways() {
	w.t.Helper()
	if _, err := w.api.CreateGroup(w.t.Context(), xxl, ""); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.api.OpenXXLJob(w.t.Context(), xxl, client.OpenXXLJob{Token: xxlToken, AppName: xxl, Networks: []string{"127.0.0.0/8"}}); err != nil {
		w.t.Fatal(err)
	}
	var urls []string
	for _, name := range []string{"g1", "g2"} {
		address := "127.0.0.1:" + rig.FreePort(w.t)
		w.add(name, "gateway", []string{"BELFRY_HTTP=" + address, "BELFRY_SPOOL_DIR=" + filepath.Join(w.dir, "callbacks-"+name)})
		urls = append(urls, "http://"+address)
	}
	w.sends = make(map[int64]sent)
	for _, role := range []string{xxl, calm} {
		for _, name := range xxlExecutors[role] {
			const ip = "127.0.0.1"
			port := rig.FreePort(w.t)
			m := &member{
				w: w, name: name, role: role, log: filepath.Join(w.dir, name+".log"), notes: filepath.Join(w.dir, name+".notes"),
				clock: filepath.Join(w.dir, name+".clock"), instance: strings.ReplaceAll(ip, ".", "-") + "-" + port,
			}
			m.args = []string{
				"-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", w.setup.java, "Noting", strings.Join(urls, ","), xxl, xxlToken, ip, port,
				filepath.Join(w.dir, "joblog-"+name), m.notes,
			}
			w.members = append(w.members, m)
		}
	}
}

// awaitXXL waits until all executors of XXL-JOB are listed.
func (w *world) awaitXXL() {
	w.t.Helper()
	rig.Eventually(w.t, rig.Patience, "the executors of XXL-JOB are listed", func() bool {
		list, err := w.api.Instances(w.t.Context(), xxl)
		return err == nil && len(list) == len(xxlExecutors[xxl])+len(xxlExecutors[calm])
	})
}

// sent is the attempt that a log id belongs to.
type sent struct {
	run     string
	attempt int
}

// sendsKept is shorter than the time for which gateways keep settled sends, and longer than any fault of Postgres.
const sendsKept = 5 * time.Minute

// watchSends reads which attempts the log ids belong to, until ctx ends, because gateways delete settled sends.
func (w *world) watchSends(ctx context.Context) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		_ = w.readSends(ctx) // Postgres may be away; the next reading includes these sends
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *world) readSends(ctx context.Context) error {
	rows, err := w.db.Query(ctx, `SELECT log_id, run_id::text, attempt FROM gateway_sends WHERE accepted_at > clock_timestamp() - make_interval(secs => $1)`, sendsKept.Seconds())
	if err != nil {
		return err
	}
	var id int64
	var s sent
	w.sending.Lock()
	defer w.sending.Unlock()
	_, err = pgx.ForEachRow(rows, []any{&id, &s.run, &s.attempt}, func() error {
		w.sends[id] = s
		return nil
	})
	return err
}

// addXXL adds the notes of the executors of XXL-JOB to a history, and gives their instances the names of the members. It reports log ids that no
// gateway has sent, and those that were received twice.
func (w *world) addXXL(t *testing.T, h *checker.History) {
	t.Helper()
	if err := w.readSends(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.sending.Lock()
	defer w.sending.Unlock()
	member := make(map[string]string)
	received, requests := make(map[int64]string), 0
	for _, m := range w.members {
		if !m.inJava() {
			continue
		}
		member[m.instance] = m.name
		h.Volatile, h.KillWins = append(h.Volatile, m.name), append(h.KillWins, m.name)
		notes, err := readXXL(m.notes)
		if err != nil {
			t.Fatal(err)
		}
		requests += len(notes)
		for _, n := range notes {
			s, ok := w.sends[n.logID]
			if !ok {
				t.Errorf("%s started a run for the log id %d, which no gateway has sent", m.name, n.logID)
				continue
			}
			if other, twice := received[n.logID]; twice {
				t.Errorf("the log id %d was started twice, by %s and %s", n.logID, other, m.name)
			}
			received[n.logID] = m.name
			n.Run, n.Attempt, n.Instance = s.run, s.attempt, m.name
			h.Notes = append(h.Notes, n.Note)
		}
	}
	for i := range h.Runs {
		if name, ok := member[h.Runs[i].Instance]; ok {
			h.Runs[i].Instance = name
		}
	}
	for i := range h.Attempts {
		if name, ok := member[h.Attempts[i].Instance]; ok {
			h.Attempts[i].Instance = name
		}
	}
	t.Logf("the executors of XXL-JOB have started %d runs; the gateways have made %d sends", requests, len(w.sends))
}

// xxlNote is a call of a handler under a log id.
type xxlNote struct {
	checker.Note
	logID int64
}

// readXXL reads the notes that Noting.java writes.
func readXXL(file string) (notes []xxlNote, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	type call struct {
		logID int64
		boot  string
	}
	open := make(map[call]int)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		part := strings.Fields(lines.Text())
		if len(part) < 4 {
			return nil, fmt.Errorf("%s: %q is not a note", file, lines.Text())
		}
		id, err := strconv.ParseInt(part[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		ms, err := strconv.ParseInt(part[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		at, c := time.UnixMilli(ms).UTC(), call{id, part[2]}
		if part[0] == "S" {
			open[c] = len(notes)
			notes = append(notes, xxlNote{checker.Note{Boot: c.boot, Start: at}, id})
			continue
		}
		i, found := open[c]
		if !found || len(part) != 5 {
			return nil, fmt.Errorf("%s: %q is an end without a start", file, lines.Text())
		}
		notes[i].End, notes[i].Outcome = at, part[4]
	}
	return notes, nil
}

// xxlJobs is the number of scheduled jobs for the executors of XXL-JOB. Such a job waits up to 135 s after its executor was killed, so they are few
// and do not fire each second.
const xxlJobs = 36

// xxlLoad creates jobs for the executors of XXL-JOB.
func (l *load) xxlLoad() {
	l.w.t.Helper()
	l.many("xxl", xxlJobs, func(i int, s *domain.JobSpec) {
		s.Group = xxl
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Dialect: domain.DialectQuartz, Expr: []string{"0/3 * * * * ?", "0/2 * * * * ?", "1/4 * * * * ?"}[i%3]}
		s.Param = work{MS: 5, MSMax: 600, Fail: 10}.String()
		s.Block = []domain.Block{domain.BlockSerial, domain.BlockParallel, domain.BlockSerial, domain.BlockDiscardLater, domain.BlockCoverEarly}[i%5]
		if i%4 == 3 {
			s.Retries, s.RetryUnknown = 2, true // without it, an attempt that is lost is the last one
			s.RetryBackoff.Initial = seconds(0.5)
		}
		switch {
		case i%9 == 0:
			s.Schedule.Expr, s.Route = "0/6 * * * * ?", domain.RouteBroadcast
		case i%6 == 1:
			s.Param = work{MS: 4000, MSMax: 9000}.String() // such runs are at an executor while its gateway changes
			s.Schedule.Expr = "0/10 * * * * ?"
		}
	})
	l.many("xxl-hand", 6, func(i int, s *domain.JobSpec) {
		s.Group, s.Block = xxl, []domain.Block{domain.BlockParallel, domain.BlockSerial}[i%2]
		s.Param = work{MS: 5, MSMax: 50, Fail: 5}.String()
	})
}

// xxlEnds returns a table of the ends of runs at the executors of XXL-JOB.
func xxlEnds(h *checker.History) string {
	ends := make(map[string]map[string]int) // by end and executor
	for i := range h.Runs {
		r := &h.Runs[i]
		if r.Group != xxl {
			continue
		}
		end := string(r.State)
		if r.Reason != "" {
			end += "/" + string(r.Reason)
		}
		if ends[end] == nil {
			ends[end] = make(map[string]int)
		}
		ends[end][cmp.Or(r.Instance, "none")]++
	}
	var b strings.Builder
	names := append(slices.Concat(xxlExecutors[xxl], xxlExecutors[calm]), "none")
	fmt.Fprintf(&b, "\n## Runs at executors of XXL-JOB\n\n| End | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---:|", len(names)))
	for _, end := range slices.Sorted(maps.Keys(ends)) {
		fmt.Fprintf(&b, "| %s |", end)
		for _, name := range names {
			fmt.Fprintf(&b, " %d |", ends[end][name])
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}
