package layout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// entry says what the code of a package, except its tests, may import.
type entry struct {
	// pkg is a directory below the module's root; "x/..." is x and all directories below it. The longest matching entry applies.
	pkg string
	// ours lists packages of this module, in the same notation.
	ours []string
	// others lists prefixes of third-party modules. nil allows any module, an empty list the standard library only.
	others []string
}

var standardOnly = []string{}

// matrix lists the allowed imports. Imports point toward domain. A commit that changes the matrix gives the reason.
var matrix = []entry{
	// The lowest layer: values and decisions, which use no database, network or clock. Package explain is below domain, because
	// runs and ledger entries contain explanations.
	{pkg: "internal/explain", others: standardOnly},
	{pkg: "internal/domain", ours: []string{"internal/explain"}, others: standardOnly},
	{pkg: "executor/wire", others: standardOnly},
	{pkg: "internal/lifecycle", others: standardOnly},
	{pkg: "internal/schedule", ours: []string{"internal/domain", "internal/explain"}, others: []string{"github.com/robfig/cron/v3"}},
	{pkg: "internal/plan", ours: []string{"internal/domain", "internal/engine", "internal/explain", "internal/schedule"}, others: standardOnly},
	{pkg: "internal/firecheck", ours: []string{"internal/domain", "internal/explain", "internal/schedule"}, others: standardOnly},
	// The trace of a run is computed from its id.
	// The console and the command line use the same words for servers and roles that are missing. They are explanations, which the console translates.
	{pkg: "internal/outage", ours: []string{"internal/explain"}, others: standardOnly},
	{pkg: "internal/words", others: standardOnly},
	{pkg: "internal/trace", ours: []string{"internal/domain"}, others: standardOnly},
	// Only this package and the SDK's module for OpenTelemetry build its library.
	{pkg: "internal/trace/spans", ours: []string{"internal/domain", "internal/engine", "internal/trace"}, others: []string{"go.opentelemetry.io/otel", "github.com/prometheus/client_golang"}},
	{pkg: "internal/runstats", ours: []string{"internal/domain", "internal/explain"}, others: standardOnly},
	// The values that the roles and the store exchange. Both import them, so that the store imports no role.
	{pkg: "internal/engine", ours: []string{"internal/domain", "internal/explain", "internal/trace"}, others: standardOnly},
	{pkg: "internal/event", ours: []string{"internal/domain", "internal/trace"}, others: standardOnly},
	// Filters of events are CEL expressions. Only the packages that evaluate or check them build CEL's library.
	{pkg: "internal/event/match", ours: []string{"internal/domain", "internal/event"}, others: []string{"cel.dev/cel-go"}},
	{pkg: "migrations", others: standardOnly},
	// Alerts: their content and their delivery.
	{pkg: "internal/alert", ours: []string{"internal/domain", "internal/engine", "internal/explain"}, others: []string{"github.com/wneessen/go-mail"}},

	// Postgres. The stores below internal/store do not import it.
	{pkg: "internal/store", ours: []string{"executor/wire", "internal/domain", "internal/engine", "internal/explain", "internal/event", "internal/firecheck", "internal/plan", "internal/schedule", "internal/store/...", "migrations", "internal/trace"}},
	// The roll-up writes the health of jobs, and lists read it.
	{pkg: "internal/store/jobchange", ours: []string{"internal/domain", "internal/explain", "internal/store/pgerr"}},
	{pkg: "internal/store/jobhealth", ours: []string{"internal/domain"}, others: standardOnly},
	{pkg: "internal/store/view/...", ours: []string{"internal/runstats", "internal/firecheck", "internal/domain", "internal/explain", "internal/schedule", "internal/store/jobchange", "internal/store/jobhealth", "internal/store/logchunk", "internal/store/pgerr", "internal/store/view/...", "internal/trace", "internal/words"}},
	{pkg: "internal/store/bearer", others: standardOnly},
	{pkg: "internal/store/account/...", ours: []string{"internal/domain", "internal/store/pgerr", "internal/store/account/...", "internal/store/bearer"}},
	{pkg: "internal/store/group/...", ours: []string{"internal/domain", "internal/store/pgerr", "internal/store/bearer", "internal/store/group/..."}},
	{pkg: "internal/store/auditlog/...", ours: []string{"internal/store/pgerr", "internal/store/auditlog/..."}},
	{pkg: "internal/store/idempotency/...", ours: []string{"internal/domain", "internal/store/pgerr", "internal/store/idempotency/..."}},
	{pkg: "internal/store/runstats/...", ours: []string{"internal/domain", "internal/store/jobhealth", "internal/store/pgerr", "internal/store/runstats/..."}},
	{pkg: "internal/store/event/...", ours: []string{"internal/domain", "internal/engine", "internal/event", "internal/event/match", "internal/store/pgerr", "internal/store/event/..."}},
	{pkg: "internal/store/alerts/...", ours: []string{"internal/alert", "internal/domain", "internal/engine", "internal/explain", "internal/store/alerts/...", "internal/store/logchunk", "internal/store/pgerr", "internal/store/seal", "internal/trace"}},
	// Secrets of alert channels and of executors of XXL-JOB are encrypted in the same way.
	{pkg: "internal/store/seal", ours: []string{"internal/domain"}, others: standardOnly},
	{pkg: "internal/store/gateway/...", ours: []string{"internal/domain", "internal/store/gateway/...", "internal/store/pgerr", "internal/store/seal"}},
	// A bulk action reads its runs as lists do, and has the rights of its creator.
	{pkg: "internal/store/bulk/...", ours: []string{"internal/domain", "internal/engine", "internal/store/account", "internal/store/bulk/...", "internal/store/pgerr", "internal/store/view"}},
	{pkg: "internal/store/attention/...", ours: []string{"internal/domain", "internal/explain", "internal/store/attention/...", "internal/store/jobchange", "internal/store/pgerr"}},
	{pkg: "internal/store/retention", ours: []string{"internal/domain", "internal/engine", "internal/store/pgerr"}},
	{pkg: "internal/store/logchunk", ours: []string{"internal/domain", "internal/engine"}},
	{pkg: "internal/store/pgerr", ours: []string{"internal/domain"}},
	{pkg: "internal/store/sqlcgen", ours: []string{"internal/domain"}},

	// The roles import the lowest layer and not each other. They declare what they need as interfaces.
	{pkg: "scheduler/...", ours: []string{"internal/domain", "internal/engine", "internal/lifecycle", "internal/plan", "internal/schedule", "scheduler/..."}},
	{pkg: "dispatcher/...", ours: []string{"dispatcher/...", "executor/wire", "internal/domain", "internal/engine", "internal/explain", "internal/firecheck", "internal/lifecycle", "internal/schedule", "internal/trace"}},
	// Within the dispatcher, each package may import those above it. Only package fire fires runs: settle, offer and kill return
	// released runs to their callers.
	{pkg: "dispatcher/divide", ours: nil},
	{pkg: "dispatcher/intake", ours: []string{"executor/wire"}},
	{pkg: "dispatcher/roster", ours: []string{"dispatcher/intake", "dispatcher/route", "executor/wire", "internal/domain", "internal/engine", "internal/explain", "internal/lifecycle"}},
	{pkg: "dispatcher/peer", ours: []string{"executor/wire", "internal/domain", "internal/engine", "internal/lifecycle"}},
	{pkg: "dispatcher/glance", ours: []string{"internal/engine"}},
	{pkg: "dispatcher/waiting", ours: []string{"internal/domain", "internal/engine", "internal/explain", "internal/lifecycle"}},
	{pkg: "dispatcher/announce", ours: []string{"dispatcher/peer", "executor/wire", "internal/domain", "internal/engine"}},
	{pkg: "dispatcher/settle", ours: []string{"dispatcher/announce", "dispatcher/divide", "dispatcher/waiting", "executor/wire", "internal/domain", "internal/engine", "internal/explain"}},
	{pkg: "dispatcher/offer", ours: []string{"dispatcher/peer", "dispatcher/roster", "dispatcher/settle", "dispatcher/waiting", "executor/wire", "internal/domain", "internal/engine", "internal/explain", "internal/trace"}},
	{pkg: "dispatcher/kill", ours: []string{"dispatcher/peer", "dispatcher/settle", "executor/wire", "internal/domain", "internal/engine"}},
	{pkg: "dispatcher/fire", ours: []string{"dispatcher/announce", "dispatcher/divide", "dispatcher/kill", "dispatcher/offer", "dispatcher/peer", "dispatcher/roster", "dispatcher/route", "dispatcher/settle", "dispatcher/waiting", "executor/wire", "internal/domain", "internal/engine", "internal/explain", "internal/lifecycle"}},
	{pkg: "dispatcher/assign", ours: []string{"dispatcher/divide", "dispatcher/fire", "dispatcher/glance", "dispatcher/offer", "dispatcher/peer", "dispatcher/roster", "dispatcher/route", "dispatcher/settle", "dispatcher/waiting", "internal/domain", "internal/engine", "internal/explain", "internal/lifecycle"}},
	{pkg: "dispatcher/results", ours: []string{"dispatcher/intake", "dispatcher/peer", "dispatcher/roster", "dispatcher/settle", "executor/wire", "internal/domain", "internal/engine", "internal/explain", "internal/lifecycle"}},
	{pkg: "dispatcher/verdict", ours: []string{"dispatcher/fire", "dispatcher/glance", "dispatcher/offer", "dispatcher/peer", "dispatcher/results", "dispatcher/roster", "dispatcher/settle", "dispatcher/waiting", "executor/wire", "internal/domain", "internal/engine", "internal/explain", "internal/lifecycle"}},
	{pkg: "dispatcher/reconcile", ours: []string{"dispatcher/fire", "dispatcher/glance", "dispatcher/kill", "dispatcher/peer", "dispatcher/results", "dispatcher/settle", "dispatcher/verdict", "dispatcher/waiting", "executor/wire", "internal/domain", "internal/engine", "internal/explain", "internal/lifecycle"}},
	{pkg: "dispatcher/events", ours: []string{"dispatcher/intake", "executor/wire", "internal/domain", "internal/event", "internal/lifecycle"}},
	{pkg: "dispatcher/followup", ours: []string{"internal/alert", "internal/domain", "internal/engine", "internal/lifecycle"}},
	{pkg: "dispatcher/route", ours: []string{"internal/domain", "internal/engine", "internal/explain"}},
	{pkg: "console/...", ours: []string{"console/...", "internal/domain", "internal/explain", "internal/schedule", "executor/wire", "internal/lifecycle"}},
	// Lists and accounts need no domain types of their own, so the console uses the types of their stores.
	{pkg: "console/api", ours: resourceOf("console/api/...", "console/live", "internal/alert", "internal/build", "internal/event", "internal/explain", "internal/firecheck", "internal/runstats", "internal/store/alerts", "internal/store/auditlog", "internal/store/idempotency", "internal/store/runstats", "internal/store/view")},
	// The core that all resources of the API share. It imports no resource.
	{pkg: "console/api/problem", ours: []string{"internal/domain", "internal/store/account"}},
	{pkg: "console/api/strict", ours: []string{"console/api/problem", "internal/domain", "internal/event"}},
	{pkg: "console/api/rest", ours: []string{"console/api/problem", "console/api/strict", "console/auth", "internal/domain", "internal/explain", "internal/store/account"}},
	{pkg: "console/api/stream", ours: []string{"console/api/problem", "console/api/rest", "console/auth", "internal/store/account"}},
	// One package per resource. Resources import the core, and each other only if an entry allows it.
	{pkg: "console/api/alerts", ours: resourceOf("console/api/visible", "internal/alert", "internal/store/alerts")},
	{pkg: "console/api/attention", ours: resourceOf("internal/explain", "internal/outage", "internal/store/attention")},
	// A bulk retry uses the rule of a single retry.
	{pkg: "console/api/bulk", ours: resourceOf("console/api/runs", "console/api/visible", "internal/store/bulk", "internal/store/view")},
	{pkg: "console/api/calendars", ours: resourceOf()},
	{pkg: "console/api/deadletters", ours: resourceOf()},
	{pkg: "console/api/events", ours: resourceOf("internal/event", "internal/store/event")},
	{pkg: "console/api/find", ours: resourceOf("console/api/visible", "internal/store/view")},
	{pkg: "console/api/fires", ours: resourceOf("console/api/visible", "internal/explain", "internal/firecheck", "internal/store/view")},
	{pkg: "console/api/groups", ours: resourceOf("console/api/visible", "internal/explain", "internal/store/gateway", "internal/store/runstats")},
	{pkg: "console/api/history", ours: resourceOf("internal/store/auditlog")},
	// Jobs compile schedules in the same way as previews.
	{pkg: "console/api/jobs", ours: resourceOf("console/api/schedules", "console/api/visible", "internal/explain", "internal/store/view", "internal/trace")},
	// Log-ins and tokens belong to users, so they use the checks and the JSON form of users.
	{pkg: "console/api/login", ours: resourceOf("console/api/users")},
	{pkg: "console/api/tokens", ours: resourceOf("console/api/users")},
	{pkg: "console/api/users", ours: resourceOf()},
	{pkg: "console/api/logs", ours: resourceOf("console/api/stream", "console/api/visible", "internal/store/view")},
	{pkg: "console/api/reports", ours: resourceOf("console/api/stream", "console/api/visible", "console/live", "internal/engine", "internal/explain", "internal/runstats", "internal/store/runstats", "internal/store/view")},
	// A retry checks its param and instance as a trigger does.
	{pkg: "console/api/runs", ours: resourceOf("console/api/jobs", "console/api/stream", "console/api/visible", "console/live", "internal/engine", "internal/explain", "internal/store/view")},
	{pkg: "console/api/schedules", ours: resourceOf("console/api/visible", "internal/explain", "internal/schedule", "internal/store/runstats", "internal/store/view")},
	{pkg: "console/api/scripts", ours: resourceOf("console/api/visible")},
	{pkg: "console/api/system", ours: resourceOf("internal/build", "internal/store/view")},
	// An import creates and changes other resources and uses their checks.
	{pkg: "console/api/transfer", ours: resourceOf("console/api/alerts", "console/api/groups", "console/api/jobs", "console/api/triggers", "console/api/visible",
		"internal/alert", "internal/event", "internal/event/match", "internal/jobfile", "internal/store/event", "internal/store/view")},
	{pkg: "console/api/triggers", ours: resourceOf("console/api/visible", "internal/event", "internal/event/match", "internal/store/event")},
	{pkg: "console/api/visible", ours: []string{"console/api/problem", "console/auth", "internal/domain", "internal/store/view"}},
	{pkg: "console/live", ours: []string{"internal/domain", "internal/engine"}, others: standardOnly},
	{pkg: "console/auth", ours: []string{"internal/domain", "internal/store/account"}},

	// The SDK becomes part of users' programs. It is a separate module and uses only the NATS client and, for a clock that includes
	// the time of a suspend, x/sys, which the NATS client needs anyway. Its tests belong to the module: see sdkTests.
	{pkg: "executor/...", ours: []string{"executor/..."}, others: []string{"github.com/nats-io/nats.go", "golang.org/x/sys/unix"}},

	// A separate module for users of OpenTelemetry, so that the SDK does not need it.
	{pkg: "executor/otel", ours: []string{"executor"}, others: []string{"go.opentelemetry.io/otel"}},

	// The components of a process.
	{pkg: "internal/embedpg"},
	{pkg: "internal/embednats", ours: []string{"internal/domain", "internal/natsauth", "internal/natsinfra"}},
	{pkg: "internal/natsauth", ours: []string{"internal/domain", "executor/wire"}},
	{pkg: "internal/deadletter", ours: []string{"internal/domain", "executor/wire"}},
	{pkg: "internal/natsinfra", ours: []string{"internal/domain", "executor/wire"}},
	{pkg: "internal/config", ours: []string{"internal/domain"}},
	{pkg: "internal/build", ours: []string{"executor/wire", "migrations"}, others: standardOnly},
	{pkg: "internal/client", ours: []string{"internal/alert", "internal/domain", "internal/event", "internal/explain", "internal/firecheck", "internal/runstats"}},
	{pkg: "internal/jobfile", ours: []string{"internal/domain", "internal/event"}, others: []string{"github.com/goccy/go-yaml"}},
	{pkg: "internal/crontab", ours: []string{"internal/domain", "internal/schedule"}},
	{pkg: "internal/cli", ours: []string{"internal/alert", "internal/build", "internal/client", "internal/config", "internal/crontab", "internal/domain", "internal/event", "internal/explain", "internal/firecheck", "internal/jobfile", "internal/outage", "internal/runstats", "internal/schedule", "internal/xxl/importer", "internal/xxl/source"}},

	// The import from XXL-JOB. Package source reads its database, quartz and importer are pure.
	{pkg: "internal/xxl/source", others: []string{"github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5"}},
	{pkg: "internal/xxl/quartz", others: standardOnly},
	// The protocol of XXL-JOB's executors.
	{pkg: "internal/xxl/protocol", others: standardOnly},
	{pkg: "internal/xxl/importer", ours: []string{"internal/domain", "internal/schedule", "internal/xxl/quartz", "internal/xxl/source"}, others: standardOnly},

	// The gateway to XXL-JOB's executors. It uses the types of its store, because no other role has addresses and sends, and the
	// dispatcher's pure package divide.
	{pkg: "internal/gateway/reach", others: standardOnly},
	{pkg: "internal/gateway/directory", ours: []string{"internal/domain", "internal/gateway/reach", "internal/store/gateway"}, others: standardOnly},
	{pkg: "internal/gateway/spool", ours: []string{"internal/store/gateway"}, others: standardOnly},
	{pkg: "internal/gateway/batch", others: standardOnly},
	{pkg: "internal/gateway/ends", ours: []string{"dispatcher/divide", "internal/domain", "internal/gateway/batch", "internal/gateway/spool", "internal/store/gateway"}, others: standardOnly},
	{pkg: "internal/gateway/clock", others: []string{"golang.org/x/sys/unix"}},
	// An address speaks the wire protocol, and lists values of its store.
	{pkg: "internal/gateway/address", ours: []string{"executor/wire", "internal/domain", "internal/gateway/clock", "internal/store/gateway"}, others: standardOnly},
	{pkg: "internal/gateway/outbound", ours: []string{"executor/wire", "internal/domain", "internal/gateway/address", "internal/gateway/batch", "internal/gateway/clock", "internal/gateway/reach",
		"internal/lifecycle", "internal/store/gateway", "internal/xxl/protocol"}},
	{pkg: "internal/gateway/inbound", ours: []string{"internal/domain", "internal/store/gateway", "internal/xxl/protocol"}, others: standardOnly},

	// The benchmark runs the engine as separate processes. Of the engine's code, it imports the SDK and the migrations.
	{pkg: "internal/bench", ours: []string{"executor", "internal/config", "internal/domain", "internal/embedpg", "internal/lifecycle", "internal/natsauth", "internal/natsinfra", "internal/store", "migrations"}},

	// The conformance test runs an executor as a separate process and acts as the dispatcher, without a database.
	{pkg: "internal/conformance", ours: []string{"internal/domain", "internal/embednats", "internal/lifecycle", "internal/natsauth", "internal/natsinfra", "executor/wire"}},
	// The tested executor imports the SDK only, like a user's program.
	{pkg: "internal/conformance/goexecutor", ours: []string{"executor"}, others: standardOnly},

	// Only app imports all roles, and only main imports app.
	{pkg: "internal/app/...", ours: []string{"console/...", "dispatcher/...", "executor/...", "executor/wire", "internal/alert", "internal/app/...", "internal/bench", "internal/build", "internal/config", "internal/conformance", "internal/deadletter", "internal/domain", "internal/embednats", "internal/embedpg", "internal/engine", "internal/event", "internal/firecheck", "internal/gateway/...", "internal/lifecycle", "internal/natsauth", "internal/natsinfra", "internal/outage", "internal/plan", "internal/runstats", "internal/schedule", "internal/store/...", "migrations", "scheduler/...", "internal/trace/spans"}},
	{pkg: ".", ours: []string{"internal/app", "internal/build", "internal/cli"}},

	// Test support. No entry above names these packages, so only tests can import them.
	{pkg: "internal/freeport", others: standardOnly},
	{pkg: "internal/pgtest", ours: []string{"internal/embedpg", "internal/store", "migrations"}},
	{pkg: "internal/storetest/...", ours: everything},
	{pkg: "internal/sim/...", ours: everything},
	{pkg: "internal/e2e/...", ours: everything},
	{pkg: "internal/xxl/quartz/quartztest", ours: []string{"internal/xxl/quartz"}, others: standardOnly},
	{pkg: "internal/xxl/xxltest", ours: []string{"internal/xxl/quartz", "internal/xxl/quartz/quartztest"}},
	{pkg: "internal/sdktest"},
	{pkg: "internal/modules/...", ours: []string{"internal/modules"}},
	{pkg: "internal/layout"},
	{pkg: "deploy"},
	// A separate module, with the tests of the Helm chart.
	{pkg: "deploy/helm", others: standardOnly},
}

var everything = []string{"..."}

// resourceOf returns what a resource of the REST API may import: the core, accounts for roles, and those packages.
func resourceOf(more ...string) []string {
	core := []string{"console/api/problem", "console/api/strict", "console/api/rest", "console/auth", "internal/domain", "internal/store/account"}
	return append(core, more...)
}

// sdkTests says what tests of the SDK may import. The SDK's go.mod requires the modules that its tests import, so they are part of
// each user's build list.
var sdkTests = entry{
	pkg: "executor/...", ours: []string{"executor/..."},
	others: []string{"github.com/nats-io/nats.go", "golang.org/x/sys/unix", "go.uber.org/goleak", "pgregory.net/rapid"},
}

// otelTests is the same for the SDK's module for OpenTelemetry.
var otelTests = entry{pkg: "executor/otel", ours: []string{"executor/..."}, others: []string{"go.opentelemetry.io/otel"}}

// covers reports whether pattern names the package in dir.
func covers(pattern, dir string) bool {
	if pattern == "..." {
		return true
	}
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return dir == tree || strings.HasPrefix(dir, tree+"/")
	}
	return pattern == dir
}

// entryOf returns the entry that applies to a package.
func entryOf(matrix []entry, dir string) (entry, bool) {
	var best entry
	found := false
	for _, e := range matrix {
		if covers(e.pkg, dir) && (!found || len(strings.TrimSuffix(e.pkg, "/...")) > len(strings.TrimSuffix(best.pkg, "/..."))) {
			best, found = e, true
		}
	}
	return best, found
}

// checkImports returns each import that the matrix forbids, and each package without an entry.
func checkImports(files []sourceFile, matrix []entry) []string {
	var faults []string
	for _, f := range files {
		e, ok := entryOf(matrix, f.dir)
		if f.test {
			if !covers(sdkTests.pkg, f.dir) { // other tests may import servers and higher packages
				continue
			}
			e, ok = sdkTests, true
			if covers(otelTests.pkg, f.dir) {
				e = otelTests
			}
		}
		if !ok {
			faults = append(faults, fmt.Sprintf("%s: package %s has no entry in the import matrix", f.path, f.dir))
			continue
		}
		imports := f.imports()
		for _, imported := range slices.Sorted(maps.Keys(imports)) {
			if !e.allows(imported) {
				faults = append(faults, fmt.Sprintf("%s: %s must not import %s", f.at(imports[imported]), f.dir, imported))
			}
		}
	}
	return faults
}

func (e entry) allows(imported string) bool {
	if imported == module || strings.HasPrefix(imported, module+"/") {
		dir := strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
		return slices.ContainsFunc(e.ours, func(pattern string) bool { return covers(pattern, dir) })
	}
	first, _, _ := strings.Cut(imported, "/")
	if !strings.Contains(first, ".") { // the standard library
		return true
	}
	return e.others == nil || slices.ContainsFunc(e.others, func(prefix string) bool {
		return imported == prefix || strings.HasPrefix(imported, prefix+"/")
	})
}

func TestImports(t *testing.T) {
	for _, fault := range checkImports(repository(t), matrix) {
		t.Error(fault)
	}
}

func TestImportsCanFail(t *testing.T) {
	const m = module + "/"
	tests := []struct {
		name    string
		file    string
		imports string
		want    string // "" for none
	}{
		{"allowed", "internal/plan/a.go", m + "internal/schedule", ""},
		{"standard library", "internal/domain/a.go", "encoding/json", ""},
		{"allowed module", "executor/a.go", "github.com/nats-io/nats.go/jetstream", ""},
		{"test file", "dispatcher/a_test.go", m + "internal/embednats", ""},
		{"test of the SDK", "executor/a_test.go", "pgregory.net/rapid", ""},
		{"test of the SDK to the root module", "executor/a_test.go", m + "internal/embednats", "executor must not import " + m + "internal/embednats"},
		{"test of the SDK to a server", "executor/wire/a_test.go", "github.com/nats-io/nats-server/v2/server", "must not import"},
		{"app imports the roles", "internal/app/a.go", m + "dispatcher/results", ""},
		{"domain imports ours", "internal/domain/a.go", m + "executor/wire", "internal/domain/a.go:2: internal/domain must not import " + m + "executor/wire"},
		{"domain imports a module", "internal/domain/a.go", "github.com/google/uuid", "internal/domain must not import github.com/google/uuid"},
		{"scheduler to dispatcher", "scheduler/a.go", m + "dispatcher", "scheduler must not import " + m + "dispatcher"},
		{"scheduler to store", "scheduler/ring/a.go", m + "internal/store", "scheduler/ring must not import " + m + "internal/store"},
		{"dispatcher to scheduler", "dispatcher/results/a.go", m + "scheduler", "must not import"},
		{"dispatcher to console", "dispatcher/a.go", m + "console/api", "must not import"},
		{"pure route", "dispatcher/route/a.go", m + "executor/wire", "must not import"},
		{"console to the engine's store", "console/api/a.go", m + "internal/store", "must not import"},
		{"executor to domain", "executor/handlers/a.go", m + "internal/domain", "must not import"},
		{"executor to another module", "executor/a.go", "github.com/nats-io/nats.go-clone", "must not import"},
		{"code to test support", "internal/app/a.go", m + "internal/pgtest", "must not import"},
		{"another package to app", "internal/cli/a.go", m + "internal/app", "must not import"},
		{"a file with a build constraint", "executor/wire/a_plan9.go", m + "internal/domain", "must not import"},
		{"new package", "internal/novelty/a.go", "fmt", "package internal/novelty has no entry"},
		{"prefix of a name", "internal/domainx/a.go", "fmt", "package internal/domainx has no entry"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			faults := checkImports(fixture(t, test.file, "package a\nimport _ \""+test.imports+"\"\n"), matrix)
			expectFaults(t, faults, test.want)
		})
	}
}

// fixture returns a tree with one file.
func fixture(t *testing.T, name, source string) []sourceFile {
	t.Helper()
	files, err := readTree(fstest.MapFS{name: &fstest.MapFile{Data: []byte(source)}})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// expectFaults checks that there is one fault, which contains want, or none if want is empty.
func expectFaults(t *testing.T, faults []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(faults) > 0:
		t.Errorf("got %q, want none", faults)
	case want != "" && (len(faults) != 1 || !strings.Contains(faults[0], want)):
		t.Errorf("got %q, want one with %q", faults, want)
	}
}
