package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/console/api"
	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/alerts"
	"github.com/belfryhq/belfry/internal/store/attention"
	"github.com/belfryhq/belfry/internal/store/auditlog"
	"github.com/belfryhq/belfry/internal/store/event"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/store/group"
	"github.com/belfryhq/belfry/internal/store/idempotency"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
)

func TestMain(m *testing.M) { pgtest.Main(leakChecked{m}) }

// leakChecked fails if goroutines remain after the tests.
type leakChecked struct{ *testing.M }

func (m leakChecked) Run() int {
	code := m.M.Run()
	if err := goleak.Find(pgtest.IgnoreServer()...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// fleet stands in for the dispatcher.
type fleet struct{ killed []domain.RunID }

func (f *fleet) Kill(_ context.Context, id domain.RunID, _ string) error {
	f.killed = append(f.killed, id)
	return nil
}
func (*fleet) Instances(group string) []domain.Instance {
	return []domain.Instance{{ID: "one", Group: group, Handlers: []string{"command", "echo"}, Capacity: 4}}
}
func (*fleet) Drain(context.Context, string, string) error { return nil }

// channels answers tests without a delivery: it succeeds for Slack and fails for other kinds.
type channels struct{ *alerts.Store }

func (channels) Test(_ context.Context, c alert.Channel) (string, error) {
	if c.Kind == alert.KindSlack {
		return "ok", nil
	}
	return "", errors.New("nobody is there")
}

// newRealConsole serves the REST API on a new database, and logs in to it as admin.
func newRealConsole(t *testing.T) *fleet {
	t.Helper()
	isolate(t)
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	const password = "a-good-password"
	accounts, groups := account.New(s.Pool()), group.New(s.Pool())
	if _, _, err := accounts.Users.EnsureAdmin(t.Context(), password); err != nil {
		t.Fatal(err)
	}
	if _, err := groups.EnsureGroup(t.Context(), "default", ""); err != nil {
		t.Fatal(err)
	}
	events, err := event.New(s)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{}
	metrics := prometheus.NewRegistry()
	server := httptest.NewServer(api.New(api.Config{Jobs: s, Calendars: s, Pauses: s, Fleet: f, Views: view.New(s.Pool()),
		Authenticator: accounts, Users: accounts.Users, Sessions: accounts.Sessions, Tokens: accounts.Tokens,
		Groups: groups, Gateways: gateway.New(s.Pool(), ""), AuditLog: auditlog.New(s.Pool()), Idempotency: idempotency.New(s.Pool(), ""),
		Fires:      view.NewFireCheck(s.Pool(), s.Zone(), s.Settings().Tolerance),
		Reports:    statstore.New(s.Pool()),
		Events:     events,
		Letters:    &letterBox{},
		Attention:  attention.New(s.Pool()),
		Alerts:     channels{alerts.New(s.Pool(), alerts.Config{})},
		Registerer: metrics, Gatherer: metrics, Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(server.Close)
	belfry(t, password+"\n", "login", "--server", server.URL, "-u", "admin", "--password-stdin").want(t, ExitDone)
	return f
}

// TestAgainstTheRealAPI runs each client command against the handlers and stores of a console.
func TestAgainstTheRealAPI(t *testing.T) {
	fleet := newRealConsole(t)
	ok := func(stdin, args string, want ...string) string {
		t.Helper()
		r := belfry(t, stdin, strings.Fields(args)...)
		if r.want(t, ExitDone, want...); t.Failed() {
			t.Fatalf("belfry %s", args)
		}
		return r.stdout
	}

	ok("", "group create tools --description Tools", "bfg_")
	ok("", "group token tools", "bfg_")
	ok("", "group token tools --overlap 24h", "bfg_")
	ok("", "group get tools", "previous token until")
	ok("", "group list", "tools", "default")
	ok("", "group get tools -o yaml", "description: Tools")
	ok("", "group instances tools", "one", "command, echo")

	ok(reportYAML, "job apply -f -", "created  default/report")
	ok(reportYAML, "job apply -f -", "unchanged  default/report")
	ok(strings.Replace(reportYAML, "0 2", "0 3", 1), "job apply -f -", "updated  default/report")
	for _, args := range []string{"job get default/report -o yaml", "job get default/report -o json", "job list -o yaml", "job list -o json"} {
		ok(ok("", args), "job apply -f -", "unchanged  default/report")
	}
	ok("", "job list --kind cron --enabled -g default -q rep", "report", "0 3 * * *")
	ok("", "job list --health unknown --sort next_fire_time", "HEALTH", "unknown", "report")
	ok("", "job get 1", "health", "unknown")
	ok("", "attention", "ACKNOWLEDGED", "dead_letters:all")
	ok("", "attention ack dead_letters:all --note later --for 8h", "dead_letters:all acknowledged")
	ok("", "attention -o json", `"note": "later"`)
	ok("", "job next default/report -n 2", "At 03:00 every day, UTC", "03:00:00")
	ok("", "job disable default/report", "disabled")
	ok("", "job list --disabled", "report")
	ok("", "job enable default/report", "enabled")
	ok("", "changes", "FIELDS", "job.create", "job.enable", "group/tools")
	if got := ok("", "changes --object job/1 --action job.update --actor admin", "schedule"); strings.Contains(got, "job.create") {
		t.Errorf("a filter lists\n%s", got)
	}
	ok("", "changes --object job/1 --action job.update --limit 1 -o json", `"before"`, "0 2 * * *", "0 3 * * *")

	ok("", "overview", "0 running", "in 2 groups", "1, 1 enabled")
	ok("", "overview --group default --since 1h -o json", `"recent_failures": []`)
	ok("", "report --since 2h", "SUCCEEDED", "total")
	ok("", "report --step 30m --since 90m -o yaml", "step: 30m")

	ok("", "audit", "0 fire times of 1 jobs")
	ok("", "check", "0 fire times of 1 jobs") // the other name of audit
	ok("", "audit --since 1h --job default/report --all -o json", `"of_jobs": 1`)
	ok("", "job why default/report --at 2020-03-29T03:00", "The job did not exist yet: version 1")
	ok("", "job why 1 --at 2199-03-29T03:00:00Z -o yaml", "is_fire_time: true", "fate: not_due")

	run := strings.TrimSpace(ok("", "job trigger default/report --param extra"))
	ok("", "run list --job default/report --since 1h", run)
	ok("", "run list -q EXTRA --job default/report -o json", run, `"searched_back_to"`)
	ok("", "run get "+run, "default/report")
	ok("", "run get "+run+" -o json", `"param": "extra"`)
	if got := ok("", "run log "+run); got != "" {
		t.Errorf("the run has the log %q", got)
	}
	ok("", "run kill "+run, "kill requested")
	if len(fleet.killed) != 1 || fleet.killed[0].String() != run {
		t.Errorf("killed %v", fleet.killed)
	}

	token := strings.TrimSpace(ok("", "token create ci --role viewer -g default --expires-in 1h"))
	ok("", "token list", "ci", "viewer")
	if r := belfry(t, "", "job", "delete", "default/report", "--token", token); r.code != ExitFailed || !strings.Contains(r.stderr, "Forbidden") {
		t.Errorf("a viewer: %+v", r)
	}
	ok("", "token delete 1", "1 deleted")
	if r := belfry(t, "", "job", "list", "--token", token); r.code != ExitFailed || !strings.Contains(r.stderr, "Unauthorized") {
		t.Errorf("a deleted token: %+v", r)
	}

	if r := belfry(t, "", "group", "delete", "default"); r.code != ExitFailed {
		t.Errorf("a group with jobs: %+v", r)
	}
	ok("", "group delete tools", "tools deleted")
	ok("", "job delete default/report", "deleted")
}

func TestFaultsOfTheRealAPI(t *testing.T) {
	newRealConsole(t)
	bad := "group: nowhere\nname: x\nschedule: {kind: cron, expr: 61 * * * *}\nhandler: echo\nretries: -1\nnonsense: 1\n"
	r := belfry(t, bad, "job", "apply", "-f", "-")
	r.want(t, ExitFailed, "refused")
	named := func(fields ...string) {
		t.Helper()
		for _, field := range fields {
			if !strings.Contains(r.stderr, "\n  "+field+": ") {
				t.Errorf("%s is not named: %q", field, r.stderr)
			}
		}
	}
	named("nonsense", "schedule.expr", "retries")
	bad = strings.Replace(bad, "nonsense: 1\n", "", 1)
	r = belfry(t, bad, "job", "apply", "-f", "-")
	named("group", "schedule.expr", "retries")
	var many strings.Builder
	for i := range fewNames + 1 {
		many.WriteString("---\n" + strings.Replace(bad, "name: x", fmt.Sprintf("name: x%d", i), 1))
	}
	r = belfry(t, many.String(), "job", "apply", "-f", "-")
	named("group", "schedule.expr", "retries")

	for _, args := range []string{"job list -g nix", "run list -g nix", "token create x --role viewer -g nix", "job get nix/a"} {
		if r := belfry(t, "", strings.Fields(args)...); r.code != ExitFailed || !strings.Contains(r.stderr, `there is no group "nix"`) {
			t.Errorf("%s: %+v", args, r)
		}
	}
	belfry(t, reportYAML, "job", "apply", "-f", "-").want(t, ExitDone)
	if r := belfry(t, "", "job", "trigger", "default/report", "--instance", "nope"); r.code != ExitFailed || !strings.Contains(r.stderr, "live: one") {
		t.Errorf("got %+v", r)
	}
}

func TestImportIntoTheRealAPI(t *testing.T) {
	newRealConsole(t)
	files := []string{"import", "crontab", "../crontab/testdata/etc/crontab", "../crontab/testdata/etc/cron.d/collector", "../crontab/testdata/user"}
	belfry(t, "", files...).want(t, ExitDone, "created  default/collector-")
	r := belfry(t, "", append(files, "-o", "json")...)
	r.want(t, ExitDone)
	var out imported
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Jobs) != 9 || len(out.Problems) != 7 {
		t.Errorf("%d jobs, %d problems", len(out.Jobs), len(out.Problems))
	}
	for _, j := range out.Jobs {
		if j.Action != unchanged {
			t.Errorf("the second import: %+v", j)
		}
	}
	if r := belfry(t, "", "job", "list", "--tag", "crontab", "-o", "json"); strings.Count(r.stdout, `"id"`) != 9 {
		t.Errorf("got %+v", r)
	}
}

const familyYAML = `
- {group: default, name: parent, handler: echo, schedule: {kind: none}, children: [{job: default/child, on: always}]}
- {group: default, name: child, handler: echo, schedule: {kind: none}, tags: [family]}
`

// Files give children by name, dry runs show differences, and --prune deletes jobs that are not in the files.
func TestApplyDeclaresAGroup(t *testing.T) {
	newRealConsole(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "family.yaml"), []byte(familyYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	belfry(t, "", "job", "apply", "-f", dir, "--dry-run", "--exit-code").want(t, ExitFailed, "created  default/parent", "created  default/child")
	belfry(t, "", "job", "apply", "-f", dir).want(t, ExitDone, "created  default/parent", "created  default/child")
	belfry(t, "", "job", "apply", "-f", dir, "--dry-run", "--exit-code").want(t, ExitDone, "unchanged  default/parent")
	belfry(t, "", "job", "get", "default/parent").want(t, ExitDone, "job 1 on always")
	louder := strings.Replace(familyYAML, "tags: [family]", "retries: 3", 1)
	belfry(t, louder, "job", "apply", "-f", "-", "--dry-run").want(t, ExitDone, "updated    default/child", "retries: 0 → 3", `tags: ["family"] → []`)
	belfry(t, strings.Replace(familyYAML, "default/child", "default/none", 1), "job", "apply", "-f", "-").want(t, ExitFailed, "refused    default/parent")

	exported := belfry(t, "", "export")
	exported.want(t, ExitDone, "job: default/child", "name: default")
	belfry(t, exported.stdout, "import", "-f", "-").want(t, ExitDone, "unchanged  group default", "unchanged  default/parent")
	belfry(t, exported.stdout, "job", "apply", "-f", "-").want(t, ExitDone, "unchanged  default/child")
	other := strings.ReplaceAll(exported.stdout, "parent", "mother")
	belfry(t, other, "import", "-f", "-", "--dry-run", "--exit-code").want(t, ExitFailed, "created    default/mother")
	belfry(t, other, "import", "-f", "-", "-o", "json").want(t, ExitDone, `"created": 1`)
	belfry(t, strings.Replace(other, "handler: echo", "retries: -1", 1), "import", "-f", "-").want(t, ExitFailed)

	one := "{group: default, name: alone, handler: echo, schedule: {kind: none}}"
	belfry(t, one, "job", "apply", "-f", "-", "--prune", "default").want(t, ExitUsage)
	belfry(t, one, "job", "apply", "-f", "-", "--prune-tag", "family").want(t, ExitUsage)
	belfry(t, one, "job", "apply", "-f", "-", "--prune", "default", "--dry-run").want(t, ExitDone, "deleted    default/parent", "unchanged  default/alone")
	belfry(t, one, "job", "apply", "-f", "-", "--prune", "default", "--prune-tag", "none", "--yes").want(t, ExitDone)
	belfry(t, one, "job", "apply", "-f", "-", "--prune", "default", "--yes").want(t, ExitDone, "deleted    default/child", "deleted    default/mother")
	if list := belfry(t, "", "job", "list", "-o", "json"); strings.Contains(list.stdout, `"name": "child"`) || !strings.Contains(list.stdout, "alone") {
		t.Errorf("left are %s", list.stdout)
	}
}
