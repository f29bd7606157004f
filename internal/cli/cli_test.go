package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
)

// fakeRoles records which role ran with which settings.
type fakeRoles struct {
	ran      string
	settings any
	err      error
}

func (r *fakeRoles) note(role string, settings any) error {
	r.ran, r.settings = role, settings
	return r.err
}

func (r *fakeRoles) Standalone(_ context.Context, s config.Standalone) error {
	return r.note("standalone", s)
}
func (r *fakeRoles) Scheduler(_ context.Context, s config.Scheduler) error {
	return r.note("scheduler", s)
}
func (r *fakeRoles) Dispatcher(_ context.Context, s config.Dispatcher) error {
	return r.note("dispatcher", s)
}
func (r *fakeRoles) Console(_ context.Context, s config.Console) error { return r.note("console", s) }
func (r *fakeRoles) Executor(_ context.Context, s config.Executor) error {
	return r.note("executor", s)
}
func (r *fakeRoles) Gateway(_ context.Context, s config.Gateway) error {
	return r.note("gateway", s)
}
func (r *fakeRoles) Migrate(_ context.Context, s config.Migrate, onlyStatus bool) error {
	if onlyStatus {
		return r.note("migrate status", s)
	}
	return r.note("migrate up", s)
}
func (r *fakeRoles) Bench(_ context.Context, s config.Bench, orders io.Reader) error {
	if orders != nil {
		return r.note("bench-part", nil)
	}
	return r.note("bench", s)
}
func (r *fakeRoles) Conformance(_ context.Context, s config.Conformance) error {
	return r.note("conformance", s)
}

func (r *fakeRoles) Restored(_ context.Context, s config.Restored) error {
	return r.note("restored", s)
}

// result is the outcome of a command line.
type result struct {
	code           int
	stdout, stderr string
}

// isolate gives the test an environment without settings and saved log-ins.
func isolate(t *testing.T) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "BELFRY_") {
			t.Setenv(name, "") // restores it afterwards
			os.Unsetenv(name)
		}
	}
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	t.Setenv("AppData", dir)
}

func belfry(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return belfryWith(t, &fakeRoles{}, stdin, args...)
}

func belfryWith(t *testing.T, roles Roles, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := Main(t.Context(), args, strings.NewReader(stdin), &out, &errs, roles)
	return result{code, out.String(), errs.String()}
}

func (r result) want(t *testing.T, code int, stdout ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	for _, s := range stdout {
		if !strings.Contains(r.stdout, s) {
			t.Errorf("stdout lacks %q", s)
		}
	}
	if t.Failed() {
		t.Logf("stdout:\n%s\nstderr:\n%s", r.stdout, r.stderr)
	}
}

func TestRolesWithoutFlagsGetDefaults(t *testing.T) {
	isolate(t)
	scheduler, dispatcher, console := config.DefaultScheduler(), config.DefaultDispatcher(), config.DefaultConsole()
	scheduler.DatabaseURL, scheduler.NATSURL = "postgres://db/b", "nats://n"
	dispatcher.DatabaseURL, dispatcher.NATSURL = "postgres://db/b", "nats://n"
	console.DatabaseURL, console.NATSURL = "postgres://db/b", "nats://n"
	migrate, executor := config.DefaultMigrate(), config.DefaultExecutor()
	migrate.DatabaseURL, executor.Group = "postgres://db/b", "g"
	gateway := config.DefaultGateway()
	gateway.DatabaseURL, gateway.NATSURL = "postgres://db/b", "nats://n"
	restored := config.DefaultRestored()
	restored.DatabaseURL = "postgres://db/b"
	bench := config.DefaultBench()
	bench.Mode = "rate"
	servers := []string{"--database-url", "postgres://db/b", "--nats-url", "nats://n"}
	for _, c := range []struct {
		args []string
		want any
	}{
		{[]string{"standalone"}, config.DefaultStandalone()},
		{append([]string{"scheduler"}, servers...), scheduler},
		{append([]string{"gateway"}, servers...), gateway},
		{append([]string{"dispatcher"}, servers...), dispatcher},
		{append([]string{"console"}, servers...), console},
		{[]string{"executor", "-g", "g"}, executor},
		{[]string{"migrate", "up", "--database-url", "postgres://db/b"}, migrate},
		{[]string{"migrate", "status", "--database-url", "postgres://db/b"}, migrate},
		{[]string{"restored", "--database-url", "postgres://db/b"}, restored},
		{[]string{"bench", "rate"}, bench},
		{[]string{"conformance", "--executor", "./x"}, config.Conformance{Executor: "./x", Output: "table"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			var roles fakeRoles
			belfryWith(t, &roles, "", c.args...).want(t, ExitDone)
			if !strings.HasPrefix(strings.Join(c.args, " "), roles.ran) || !reflect.DeepEqual(roles.settings, c.want) {
				t.Errorf("%s ran with\n%#v, want\n%#v", roles.ran, roles.settings, c.want)
			}
		})
	}
}

func TestRoleSettings(t *testing.T) {
	isolate(t)
	t.Setenv("BELFRY_TOKEN", "secret")
	t.Setenv("BELFRY_ALLOW_SCRIPT", "sh,bash")
	var roles fakeRoles
	belfryWith(t, &roles, "", "executor", "--group", "g", "--label", "zone=a,rack=b", "--allow-command", "--drain-timeout", "5s").want(t, ExitDone)
	got := roles.settings.(config.Executor)
	if got.Token.Reveal() != "secret" || !reflect.DeepEqual(got.AllowScript, []string{"sh", "bash"}) || !got.AllowCommand ||
		got.DrainTimeout != 5*time.Second || got.Labels["zone"] != "a" || got.Labels["rack"] != "b" {
		t.Errorf("got %+v", got)
	}
	roles.err = domain.NewError(domain.Conflict, "the data directory is in use")
	if r := belfryWith(t, &roles, "", "standalone", "--demo"); r.code != ExitFailed || r.stderr != "belfry: the data directory is in use\n" {
		t.Errorf("got %+v", r)
	}
}

func TestWrongUsage(t *testing.T) {
	isolate(t)
	for _, c := range []struct{ args, want string }{
		{"", "expected one of"},
		{"nonsense", "unexpected argument nonsense"},
		{"standalone --nonsense", "unknown flag --nonsense"},
		{"standalone --misfire-tolerance soon", "misfire-tolerance"},
		{"standalone --http x --nats y --time-zone Mars", "\n  --nats: \"y\""},
		{"scheduler", "\n  --nats-url: is required"},
		{"executor --group Big", "--group: a group name is"},
		{"job apply", "--file"},
		{"job get", "<job>"},
		{"job get report", "give its id, or group/name"},
		{"job list --kind odd", "--kind"},
		{"job list -o xml", "--output"},
		{"job list --enabled --disabled", "enabled"},
		{"import crontab x --group Big", "--group: a group name is"},
		{"run get 7", "a run id is a UUID"},
		{"audit --since=-5m", "--since: -5m0s is not positive"},
		{"audit --since soon", "--since"},
		{"audit --until soon", "--until"},
		{"audit --job report", "give its id, or group/name"},
		{"job why 7", "--at"},
		{"job why report --at 2026-03-29T02:30", "give its id, or group/name"},
		{"token delete x", "not the id of a token"},
		{"login", "--username is required"},
		{"login -u ann", "--password-stdin is required"},
		{"job list --server ftp://x", "--server"},
	} {
		r := belfry(t, "", strings.Fields(c.args)...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, c.want) || r.stdout != "" {
			t.Errorf("belfry %s: %+v", c.args, r)
		}
	}
}

func TestHelp(t *testing.T) {
	isolate(t)
	belfry(t, "", "--help").want(t, ExitDone, "standalone", "job trigger", "import crontab", "Everything in one process:")
	belfry(t, "", "standalone", "--help").want(t, ExitDone, `--data-dir="belfry-data"`, "$BELFRY_DATA_DIR", "belfry standalone --demo")
	belfry(t, "", "job", "trigger", "--help").want(t, ExitDone, "--follow", "Examples:", "$BELFRY_SERVER")
	belfry(t, "", "--version").want(t, ExitDone, "belfry")
}

// TestEveryCommandTeaches checks the help of each command: it has an example, and each flag has a help text and its own
// environment variable.
func TestEveryCommandTeaches(t *testing.T) {
	parser, err := kong.New(&root{}, kong.Vars{"version": ""})
	if err != nil {
		t.Fatal(err)
	}
	leaves := parser.Model.Leaves(false)
	if len(leaves) < 30 {
		t.Errorf("only %d commands", len(leaves))
	}
	for _, leaf := range leaves {
		path, _, _ := strings.Cut(leaf.Path(), " (") // aliases follow in parentheses
		if !strings.Contains(leaf.Detail, "belfry "+path) {
			t.Errorf("%s has no example of itself:\n%s", leaf.Path(), leaf.Detail)
		}
		seen := make(map[string]bool)
		for _, flags := range leaf.AllFlags(false) {
			for _, f := range flags {
				if f.Name == "help" || f.Name == "version" {
					continue
				}
				if f.Help == "" || len(f.Envs) != 1 || !strings.HasPrefix(f.Envs[0], "BELFRY_") || seen[f.Envs[0]] {
					t.Errorf("%s --%s: help %q, environment %v", leaf.Path(), f.Name, f.Help, f.Envs)
				}
				seen[f.Envs[0]] = true
			}
		}
	}
}

const reportYAML = `
group: default
name: report
schedule: {kind: cron, expr: "0 2 * * *"}
handler: echo
param: |
  two
  lines
`

func TestApply(t *testing.T) {
	c := newConsole(t)
	belfry(t, reportYAML, "job", "apply", "-f", "-", "--dry-run").want(t, ExitDone, "created  default/report")
	if len(c.requests) != 0 {
		t.Errorf("a dry run sent %v", c.requests)
	}
	belfry(t, reportYAML, "job", "apply", "-f", "-").want(t, ExitDone, "created  default/report")
	belfry(t, reportYAML, "job", "apply", "-f", "-").want(t, ExitDone, "unchanged  default/report")
	edited := strings.Replace(reportYAML, "0 2", "0 3", 1) + "---\ngroup: default\nname: other\nschedule: {kind: none}\nhandler: echo\n"
	belfry(t, edited, "job", "apply", "-f", "-").want(t, ExitDone, "updated  default/report", "created  default/other")
	if got := strings.Join(c.requests, ", "); got != "POST /jobs, PUT /jobs/1, POST /jobs" {
		t.Errorf("sent %s", got)
	}
	if c.jobs[0].Schedule.Expr != "0 3 * * *" || c.jobs[0].Param != "two\nlines\n" {
		t.Errorf("got %+v", c.jobs[0])
	}
}

// TestPrintedJobsApply checks that apply accepts the output of get and list, and changes nothing.
func TestPrintedJobsApply(t *testing.T) {
	c := newConsole(t)
	belfry(t, reportYAML, "job", "apply", "-f", "-").want(t, ExitDone)
	at := domain.At(time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC))
	c.jobs[0].NextFireTime, c.jobs[0].Note, c.jobs[0].Param = &at, "a note", "tab\t\"quote\" \u2028 # no comment: \n\n trailing \n"
	for _, args := range [][]string{{"job", "get", "1", "-o", "yaml"}, {"job", "get", "default/report", "-o", "json"}, {"job", "list", "-o", "yaml"}, {"job", "list", "-o", "json"}} {
		printed := belfry(t, "", args...)
		printed.want(t, ExitDone)
		r := belfry(t, printed.stdout, "job", "apply", "-f", "-")
		if r.want(t, ExitDone, "unchanged  default/report"); t.Failed() {
			t.Fatalf("%v printed:\n%s", args, printed.stdout)
		}
	}
}

func TestApplyFaults(t *testing.T) {
	c := newConsole(t)
	for _, text := range []string{"", "- 7\n", "name: x\n", "a: [\n", "- [1]\n", "text\n"} {
		if r := belfry(t, text, "job", "apply", "-f", "-"); r.code != ExitFailed || r.stderr == "" {
			t.Errorf("%q: %+v", text, r)
		}
	}
	two := reportYAML + "nonsense: 1\n---\n" + strings.ReplaceAll(reportYAML, "report", "good")
	r := belfry(t, two, "job", "apply", "-f", "-")
	r.want(t, ExitFailed, "refused  default/report", "created  default/good")
	if !strings.Contains(r.stderr, "nonsense") || len(c.jobs) != 1 {
		t.Errorf("stderr %q, %d jobs", r.stderr, len(c.jobs))
	}
	r = belfry(t, strings.Replace(reportYAML, "handler: echo", "retries: -1", 1), "job", "apply", "-f", "-")
	r.want(t, ExitFailed)
	if !strings.Contains(r.stderr, "\n  retries: must be 0 to 100\n") || !strings.Contains(r.stderr, "\n  handler: is required") {
		t.Errorf("stderr %q", r.stderr)
	}
	belfry(t, "", "job", "apply", "-f", "no such file").want(t, ExitFailed)
}

func TestJobCommands(t *testing.T) {
	c := newConsole(t)
	belfry(t, reportYAML, "job", "apply", "-f", "-").want(t, ExitDone)
	belfry(t, "", "job", "list").want(t, ExitDone, "ID  GROUP", "0 2 * * *", "report")
	belfry(t, "", "job", "get", "default/report").want(t, ExitDone, "name      report")
	belfry(t, "", "job", "next", "1").want(t, ExitDone, "At 01:30 every day", "2026-03-29")
	belfry(t, "", "job", "next", "1", "-o", "json").want(t, ExitDone, `"2026-03-29T01:30:00.000Z"`)
	belfry(t, "", "job", "disable", "default/report").want(t, ExitDone, "default/report disabled")
	belfry(t, "", "job", "enable", "1", "7").want(t, ExitFailed, "default/report enabled")
	belfry(t, "", "job", "delete", "1").want(t, ExitDone, "deleted")
	belfry(t, "", "job", "get", "default/none").want(t, ExitFailed)
	if got := strings.Join(c.requests, ", "); got != "POST /jobs, POST /jobs/1/disable, POST /jobs/1/enable, DELETE /jobs/1" {
		t.Errorf("sent %s", got)
	}
}

func TestTrigger(t *testing.T) {
	c := newConsole(t)
	belfry(t, reportYAML, "job", "apply", "-f", "-").want(t, ExitDone)
	if r := belfry(t, "", "job", "trigger", "1"); r.code != ExitDone || r.stdout != someRun+"\n" {
		t.Errorf("got %+v", r)
	}
	belfry(t, "", "job", "trigger", "1", "-o", "yaml").want(t, ExitDone, "run_ids:\n  - "+someRun)
	belfry(t, "", "job", "trigger", "default/report", "--wait", "--param", "x").want(t, ExitDone, someRun+" succeeded")
	c.polls, c.ends = 0, domain.Failed
	r := belfry(t, "", "job", "trigger", "1", "--wait")
	r.want(t, ExitFailed, "failed (handler_error): exit status 3\ufffd")
	c.polls, c.ends = 0, domain.Succeeded
	r = belfry(t, "", "job", "trigger", "1", "--follow")
	if r.want(t, ExitDone); r.stdout != "one\n" || !strings.Contains(r.stderr, "succeeded") {
		t.Errorf("got %+v", r)
	}
	c.polls, c.ends = 0, domain.Running
	if r := belfry(t, "", "job", "trigger", "1", "--wait", "--timeout", "150ms"); r.code != ExitFailed || !strings.Contains(r.stderr, "not finished within 150ms") {
		t.Errorf("got %+v", r)
	}
	c.ends, c.waiting = domain.Queued, "no live instance has the handler echo\x1b[2J"
	for _, flag := range []string{"--wait", "--follow"} {
		c.polls = 0
		if r := belfry(t, "", "job", "trigger", "1", flag, "--timeout", "150ms"); r.code != ExitFailed ||
			!strings.Contains(r.stderr, "run "+someRun+" is queued: no live instance has the handler echo\ufffd") {
			t.Errorf("%s: %+v", flag, r)
		}
	}
}

func TestWaitsAreTold(t *testing.T) {
	c := newConsole(t)
	c.ends, c.waiting = domain.Queued, "no live instance offers the handler"
	cl, err := client.New(c.URL, "sesame")
	if err != nil {
		t.Fatal(err)
	}
	id, err := domain.ParseRunID(someRun)
	if err != nil {
		t.Fatal(err)
	}
	read, write := io.Pipe()
	defer time.AfterFunc(5*time.Minute, func() { write.Close() }).Stop() // so that the test fails if nothing is printed
	hush := (&app{stderr: write}).tellWaits(t.Context(), cl, []domain.RunID{id}, 10*time.Millisecond)
	line, err := bufio.NewReader(read).ReadString('\n')
	if want := "run " + someRun + " is queued: no live instance offers the handler\n"; line != want || err != nil {
		t.Errorf("told %q, %v", line, err)
	}
	read.Close()
	hush()
}

func TestRunCommands(t *testing.T) {
	newConsole(t)
	belfry(t, "", "run", "get", someRun).want(t, ExitDone, "default/report (1)")
	if r := belfry(t, "", "run", "log", someRun); r.code != ExitDone || r.stdout != "one\ntwo\n" {
		t.Errorf("got %+v", r)
	}
	belfry(t, "", "run", "log", someRun, "-t").want(t, ExitDone, "2026-03-29T01:30:00.000Z info  1 one\n")
	belfry(t, "", "run", "log", someRun, "-o", "json").want(t, ExitDone, `{"n":1,"at":"2026-03-29T01:30:00.000Z","level":"info","attempt":1,"text":"one"}`)
	if r := belfry(t, "", "run", "log", someRun, "--tail", "5"); r.code != ExitDone || r.stdout != "two\n" {
		t.Errorf("of the tail %+v", r)
	}
	loud := &runLogCmd{Grep: "full", Level: "warn,error"}
	if !loud.fits(domain.LogLine{Level: "warn", Text: "disk FU\x1b[1mLL"}) || loud.fits(domain.LogLine{Level: "info", Text: "full"}) || loud.fits(domain.LogLine{Level: "warn"}) {
		t.Error("lines that come are not chosen by text and level")
	}
	if r := belfry(t, "", "run", "log", "-f", someRun); r.code != ExitDone || r.stdout != "one\n" {
		t.Errorf("got %+v", r)
	}
}

func TestPlannedRuns(t *testing.T) {
	c := newConsole(t)
	later, zero := domain.At(time.Now().Add(time.Hour)), int64(0)
	c.runs = []domain.Run{
		{ID: domain.NewRunID(time.Now()), JobName: "soon", State: domain.Pending, DueAt: &later},
		{ID: domain.NewRunID(time.Now()), JobName: "quick", State: domain.Succeeded, DurationMS: &zero},
	}
	if r := belfry(t, "", "run", "list"); !strings.Contains(r.stdout, "quick") || !strings.Contains(r.stdout, " <1ms ") || strings.Contains(r.stdout, "soon") {
		t.Errorf("got %+v", r)
	}
	for _, args := range []string{"--planned", "--state pending"} {
		belfry(t, "", append([]string{"run", "list"}, strings.Fields(args)...)...).want(t, ExitDone, "soon")
	}
	if r := belfry(t, "", "run", "list", "--state", "pending", "--no-planned"); r.code != ExitDone || strings.Contains(r.stdout, "soon") {
		t.Errorf("got %+v", r)
	}
}

func TestAttempts(t *testing.T) {
	at := domain.At(time.Now())
	for _, c := range []struct {
		attempt domain.Attempt
		want    string
	}{
		{domain.Attempt{}, "not started yet"},
		{domain.Attempt{StartedAt: &at}, "running since " + people(at.Time)},
		{domain.Attempt{StartedAt: &at, Outcome: "succeeded"}, "succeeded"},
		{domain.Attempt{Outcome: "failed", Reason: domain.ReasonLost, Message: "instance x died", LateOutcome: "succeeded"},
			"failed (lost): instance x died; its instance reported succeeded later"},
	} {
		if got := attemptText(c.attempt); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestSecretsStandAlone(t *testing.T) {
	newConsole(t)
	if r := belfry(t, "", "group", "create", "tools"); r.code != ExitDone || r.stdout != "bfg_g\n" {
		t.Errorf("got %+v", r)
	}
	if r := belfry(t, "", "token", "create", "ci", "--role", "viewer", "-g", "default"); r.code != ExitDone || r.stdout != "bft_t\n" {
		t.Errorf("got %+v", r)
	}
}

func TestLogin(t *testing.T) {
	c := newConsole(t)
	os.Unsetenv("BELFRY_TOKEN")
	if r := belfry(t, "", "job", "list"); r.code != ExitFailed || !strings.Contains(r.stderr, "belfry login") {
		t.Errorf("got %+v", r)
	}
	if r := belfry(t, "wrong\n", "login", "-u", "ann", "--password-stdin"); r.code != ExitFailed ||
		!strings.Contains(r.stderr, "user or password is wrong") || strings.Contains(r.stderr, "belfry login") {
		t.Errorf("got %+v", r)
	}
	r := belfry(t, "hunter2 \n", "login", "-u", "ann", "--password-stdin")
	if r.want(t, ExitDone); strings.Contains(r.stdout+r.stderr, "sesame") {
		t.Error("the token was printed")
	}
	path, err := loginPath()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	os.Unsetenv("BELFRY_SERVER")
	belfry(t, "", "job", "list").want(t, ExitDone, "ID")
	belfry(t, "", "job", "list", "--server", strings.TrimPrefix(c.URL, "http://")+"/").want(t, ExitDone, "ID")

	// The token must not go to another server.
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token went to another server")
		}
	}))
	defer other.Close()
	belfry(t, "", "job", "list", "--server", other.URL).want(t, ExitDone)

	if err := (savedLogin{Server: c.URL, Token: "sesame", ExpiresAt: domain.At(time.Now().Add(-time.Hour))}).saveOnly(); err != nil {
		t.Fatal(err)
	}
	if r := belfry(t, "", "job", "list"); r.code != ExitFailed || !strings.Contains(r.stderr, "expired") {
		t.Errorf("got %+v", r)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := belfry(t, "", "job", "list"); r.code != ExitFailed || !strings.Contains(r.stderr, "damaged") {
		t.Errorf("got %+v", r)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("left behind %v", files)
	}
}

func (s savedLogin) saveOnly() error { _, err := s.save(); return err }

func TestImportCrontab(t *testing.T) {
	c := newConsole(t)
	dir := filepath.Join(t.TempDir(), "cron.d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "tools")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("MAILTO=root\n0 2 * * * root backup\n@reboot root start\n0 3 * * * root report\n")
	r := belfry(t, "", "import", "crontab", file, "--dry-run")
	r.want(t, ExitDone, "found", "default/tools-backup-")
	if len(c.requests) != 0 || !strings.Contains(r.stderr, "tools:3: @reboot has no fire time") {
		t.Errorf("sent %v, stderr %s", c.requests, r.stderr)
	}
	belfry(t, "", "import", "crontab", file).want(t, ExitDone, "created", "default/tools-backup-", "default/tools-report-")
	if len(c.jobs) != 2 || !c.jobs[0].Enabled || c.jobs[0].Handler != "command" {
		t.Fatalf("got %+v", c.jobs)
	}

	// A second import updates only the fields that the file defines.
	c.jobs[0].Enabled, c.jobs[0].Retries = false, 3
	write("0 4 * * * root backup\nMAILTO=root\n# moved\n0 3 * * * root report\n")
	r = belfry(t, "", "import", "crontab", file, "-o", "json")
	r.want(t, ExitDone)
	var out imported
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || len(out.Jobs) != 2 || out.Jobs[0].Action != updated {
		t.Fatalf("%v: %+v", err, out)
	}
	if len(c.jobs) != 2 || c.jobs[0].Enabled || c.jobs[0].Retries != 3 || c.jobs[0].Schedule.Expr != "0 4 * * *" {
		t.Errorf("got %+v", c.jobs[0])
	}
	belfry(t, "", "import", "crontab", file).want(t, ExitDone, "unchanged  default/tools-backup-", "unchanged  default/tools-report-")

	r = belfry(t, "", "import", "crontab", file, file)
	if r.want(t, ExitDone); !strings.Contains(r.stderr, "is the same entry as") {
		t.Errorf("got %+v", r)
	}
	belfry(t, "0 1 * * * mine\n", "import", "crontab", "-", "--user", "ann", "--disabled").want(t, ExitDone, "created", "default/stdin-mine-")
	if c.jobs[2].Enabled {
		t.Error("the job is enabled")
	}
	none := filepath.Join(dir, "none")
	belfry(t, "", "import", "crontab", none).want(t, ExitFailed)
	for _, files := range [][]string{{none, file}, {file, none}} {
		r = belfry(t, "", append([]string{"import", "crontab"}, files...)...)
		if r.want(t, ExitFailed, "unchanged  default/tools-backup-"); strings.Count(r.stderr, none+": no such file") != 1 {
			t.Errorf("stderr %q", r.stderr)
		}
	}
	r = belfry(t, "", "import", "crontab", file, "--token", "wrong")
	if r.want(t, ExitFailed); strings.Count(r.stderr, "the token is not valid") != 1 {
		t.Errorf("stderr %q", r.stderr)
	}
}

func TestNothingSteersTheTerminal(t *testing.T) {
	if got := printable("a\x1b[2Jb\nc\u202ed"); got != "a\ufffd[2Jb c\ufffdd" {
		t.Errorf("got %q", got)
	}
	if got := logText("\x1b[31mred\x1b[0m\t\x1b[2J\x07", true); !regexp.MustCompile("^\x1b\\[31mred\x1b\\[0m\t\ufffd\\[2J\ufffd").MatchString(got) {
		t.Errorf("got %q", got)
	}
	if got := logText("\x1b[2J", false); got != "\x1b[2J" {
		t.Errorf("got %q", got)
	}
}
