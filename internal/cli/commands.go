package cli

import (
	"github.com/alecthomas/kong"

	"github.com/belfryhq/belfry/internal/config"
)

// groups are the titles under which help lists commands and flags.
var groups = []kong.Group{
	{Key: "try", Title: "Everything in one process:"},
	{Key: "roles", Title: "One role each, any number of each:"},
	{Key: "database", Title: "The database:"},
	{Key: "client", Title: "Talking to a console:"},
	{Key: "connection", Title: "Which console, and how to print:"},
	{Key: "servers", Title: "Servers:"},
	{Key: "engine", Title: "Engine:"},
	{Key: "alerts", Title: "Alerts:"},
	{Key: "oidc", Title: "Log-in through an identity provider:"},
	{Key: "bench", Title: "Measuring and testing:"},
	{Key: "log", Title: "Logging:"},
}

// root is the grammar of the command line.
type root struct {
	Version kong.VersionFlag `help:"Print the version."`

	Standalone standaloneCmd `cmd:"" group:"try" help:"Run all roles in one process, with Postgres and NATS inside."`
	Scheduler  schedulerCmd  `cmd:"" group:"roles" help:"Run the role that decides when."`
	Dispatcher dispatcherCmd `cmd:"" group:"roles" help:"Run the role that settles results, assigns waiting runs and reconciles."`
	Console    consoleCmd    `cmd:"" group:"roles" help:"Run the role that serves the REST API and the web UI."`
	Executor   executorCmd   `cmd:"" group:"roles" help:"Run the stock agent: handlers http, command, sleep and echo, and scripts."`
	Migrate    migrateCmd    `cmd:"" group:"database" help:"Bring the database up to date."`

	Login    loginCmd    `cmd:"" group:"client" help:"Log in to a console and remember it."`
	Logout   logoutCmd   `cmd:"" group:"client" help:"Log out, here or everywhere."`
	Password passwordCmd `cmd:"" group:"client" help:"Change one's own password."`
	Job      jobCmd      `cmd:"" group:"client" help:"Jobs: list, apply, trigger and more."`
	Run      runCmd      `cmd:"" group:"client" help:"Runs: list, read logs, kill, retry."`
	Group    groupCmd    `cmd:"" group:"client" help:"Executor groups, their tokens and their instances."`
	Calendar calendarCmd `cmd:"" group:"client" help:"Calendars: days on which jobs do not fire."`
	Token    tokenCmd    `cmd:"" group:"client" help:"API tokens."`
	User     userCmd     `cmd:"" group:"client" help:"Users: who may log in, and do what."`
	Overview overviewCmd `cmd:"" group:"client" help:"See how things stand: running, finished, late, failed."`
	Report   reportCmd   `cmd:"" group:"client" help:"Count finished runs over time."`
	Audit    auditCmd    `cmd:"" group:"client" help:"Explain what became of every fire time."`
	Export   exportCmd   `cmd:"" group:"client" help:"Print groups and jobs as YAML."`
	Import   importCmd   `cmd:"" group:"client" help:"Make groups and jobs of an export, or of what other schedulers run."`

	Event        eventCmd        `cmd:"" group:"client" help:"Events: send them, and see what they fired."`
	EventTrigger eventTriggerCmd `cmd:"" group:"client" help:"Event triggers: which events fire which jobs."`
	DeadLetter   deadLetterCmd   `cmd:"" group:"client" help:"Messages that could not be taken: look at them, replay them."`
	AlertChannel alertChannelCmd `cmd:"" group:"client" help:"Alert channels: list, apply, test and more."`
	Alert        alertCmd        `cmd:"" group:"client" help:"What was told by alerts, and what came of it."`

	Bench       benchCmd       `cmd:"" group:"bench" help:"Measure throughput, lateness and cost on this machine."`
	Conformance conformanceCmd `cmd:"" group:"bench" help:"Test whether an executor in any language keeps every duty of the wire contract."`

	BenchPart benchPartCmd `cmd:"" hidden:"" help:"One process of a measurement; standard input says which part it runs."`
}

type standaloneCmd struct{ config.Standalone }

func (*standaloneCmd) Help() string {
	return "It keeps its data in --data-dir. The first start prints the user admin and its password, once.\n\nExamples:\n\n" +
		"    belfry standalone --demo\n    belfry standalone --data-dir /var/lib/belfry --http 0.0.0.0:8080"
}
func (c *standaloneCmd) Run(a *app) error { return a.roles.Standalone(a.ctx, c.Standalone) }

type schedulerCmd struct{ config.Scheduler }

func (*schedulerCmd) Help() string {
	return "Schedulers share the jobs that are due; with one left alive no fire time is lost.\n\nExample:\n\n" +
		"    belfry scheduler --database-url postgres://belfry@db/belfry --nats-url nats://nats:4222"
}
func (c *schedulerCmd) Run(a *app) error { return a.roles.Scheduler(a.ctx, c.Scheduler) }

type dispatcherCmd struct{ config.Dispatcher }

func (*dispatcherCmd) Help() string {
	return "Example:\n\n    belfry dispatcher --database-url postgres://belfry@db/belfry --nats-url nats://nats:4222 --metrics 127.0.0.1:9100"
}
func (c *dispatcherCmd) Run(a *app) error { return a.roles.Dispatcher(a.ctx, c.Dispatcher) }

type consoleCmd struct{ config.Console }

func (*consoleCmd) Help() string {
	return "Example:\n\n    belfry console --database-url postgres://belfry@db/belfry --nats-url nats://nats:4222 --http 0.0.0.0:8080"
}
func (c *consoleCmd) Run(a *app) error { return a.roles.Console(a.ctx, c.Console) }

type executorCmd struct{ config.Executor }

func (*executorCmd) Help() string {
	return "It connects to NATS alone and listens on no port but that of --metrics, if one is given. `belfry group create` shows a group's token.\n\nExamples:\n\n" +
		"    BELFRY_TOKEN=… belfry executor --group default --nats-url nats://nats:4222\n" +
		"    belfry executor -g tools --allow-command --allow-script bash,python"
}
func (c *executorCmd) Run(a *app) error { return a.roles.Executor(a.ctx, c.Executor) }

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply all migrations that are missing."`
	Status migrateStatusCmd `cmd:"" help:"Say which migrations are applied and which are missing."`
}

type migrateUpCmd struct{ config.Migrate }

func (*migrateUpCmd) Help() string {
	return "It may run beside the binaries of the release before.\n\nExample:\n\n    belfry migrate up --database-url postgres://belfry@db/belfry"
}
func (c *migrateUpCmd) Run(a *app) error { return a.roles.MigrateUp(a.ctx, c.Migrate) }

type migrateStatusCmd struct{ config.Migrate }

func (*migrateStatusCmd) Help() string {
	return "Example:\n\n    belfry migrate status --database-url postgres://belfry@db/belfry"
}
func (c *migrateStatusCmd) Run(a *app) error { return a.roles.MigrateStatus(a.ctx, c.Migrate) }

type benchCmd struct{ config.Bench }

func (*benchCmd) Help() string {
	return "The command starts Postgres (with fsync), a NATS server (with file storage) and the roles, each in a separate process. " +
		"It generates load, prints a report and removes everything that it created. In the same run it measures a baseline: a pipeline " +
		"without scheduling logic on the same servers. Absolute figures depend on the machine; compare the ratios to the baseline." +
		"\n\nModes:\n\n" +
		"    burst     --fires due in one instant: time until all have started and until all are settled\n" +
		"    rate      --rate fires a second for --span: lateness, CPU, WAL and bytes per run\n" +
		"    max       the highest sustained rate\n" +
		"    overload  twice the maximum: throughput, order of starts, and recovery time\n" +
		"    idle      the cost of 1,000,000 idle jobs, compared with 10,000\n" +
		"    history   the cost of 20,000,000 past runs, compared with none\n" +
		"    all       all of these\n\nExamples:\n\n    belfry bench burst --runs 5\n    belfry bench rate --rate 5000 --span 30s -o json\n" +
		"    belfry bench max --profile /tmp/profiles"
}
func (c *benchCmd) Run(a *app) error { return a.roles.Bench(a.ctx, c.Bench) }

type benchPartCmd struct{}

func (*benchPartCmd) Help() string {
	return "`belfry bench` starts this command for each part. Do not run it yourself.\n\nExample:\n\n    belfry bench-part < ORDER"
}
func (*benchPartCmd) Run(a *app) error { return a.roles.BenchPart(a.ctx, a.stdin) }
