package cli

import (
	"github.com/alecthomas/kong"

	"github.com/belfryhq/belfry/internal/config"
)

// groups holds the titles under which the help lists commands and flags.
var groups = []kong.Group{
	{Key: "try", Title: "Everything in one process:"},
	{Key: "roles", Title: "Single roles, each in any number of processes:"},
	{Key: "database", Title: "The database:"},
	{Key: "client", Title: "Commands that use a console:"},
	{Key: "connection", Title: "Console and output:"},
	{Key: "servers", Title: "Servers:"},
	{Key: "engine", Title: "Engine:"},
	{Key: "alerts", Title: "Alerts:"},
	{Key: "oidc", Title: "Log-in through an identity provider:"},
	{Key: "bench", Title: "Measurements and tests:"},
	{Key: "machine", Title: "This machine and this binary:"},
	{Key: "log", Title: "Logging:"},
}

// root defines the commands and flags.
type root struct {
	Version kong.VersionFlag `help:"Print the version."`

	Standalone standaloneCmd `cmd:"" group:"try" help:"Run all roles in one process, with a built-in Postgres and NATS."`
	Scheduler  schedulerCmd  `cmd:"" group:"roles" help:"Run the scheduler, which plans and fires jobs."`
	Dispatcher dispatcherCmd `cmd:"" group:"roles" help:"Run the dispatcher, which settles results, assigns waiting runs and repairs runs."`
	Console    consoleCmd    `cmd:"" group:"roles" help:"Run the console, which serves the REST API and the web console."`
	Executor   executorCmd   `cmd:"" group:"roles" help:"Run the stock executor: handlers http, command, sleep and echo, and scripts."`
	Gateway    gatewayCmd    `cmd:"" group:"roles" help:"Run the gateway, which serves executors of XXL-JOB."`
	Migrate    migrateCmd    `cmd:"" group:"database" help:"Migrate the database schema, or show its status."`
	Restored   restoredCmd   `cmd:"" group:"database" help:"Record that the database was restored from a backup, before Belfry starts."`

	Login     loginCmd     `cmd:"" group:"client" help:"Log in to a console and save the session."`
	Logout    logoutCmd    `cmd:"" group:"client" help:"End the saved session, or all sessions of the user."`
	Password  passwordCmd  `cmd:"" group:"client" help:"Change your own password."`
	Job       jobCmd       `cmd:"" group:"client" help:"List, apply, trigger and delete jobs, and more."`
	Run       runCmd       `cmd:"" group:"client" help:"List runs, read logs, kill and retry runs."`
	Group     groupCmd     `cmd:"" group:"client" help:"Manage executor groups, their tokens and instances."`
	Calendar  calendarCmd  `cmd:"" group:"client" help:"Manage calendars: days on which jobs do not fire."`
	Token     tokenCmd     `cmd:"" group:"client" help:"Manage API tokens."`
	User      userCmd      `cmd:"" group:"client" help:"Manage users, their roles and groups."`
	Attention attentionCmd `cmd:"" group:"client" help:"List what needs attention, and acknowledge it."`
	Overview  overviewCmd  `cmd:"" group:"client" help:"Show numbers of running, finished, late and failed runs."`
	Report    reportCmd    `cmd:"" group:"client" help:"Count finished runs over time."`
	Audit     auditCmd     `cmd:"" aliases:"check" group:"client" help:"Check that every fire time has a run or a reason."`
	Changes   changesCmd   `cmd:"" group:"client" help:"List who changed what, newest first."`
	Export    exportCmd    `cmd:"" group:"client" help:"Print groups and jobs as YAML."`
	Import    importCmd    `cmd:"" group:"client" help:"Import groups and jobs from an export, from crontabs or from XXL-JOB."`

	Event        eventCmd        `cmd:"" group:"client" help:"Send events, and list the runs that they started."`
	EventTrigger eventTriggerCmd `cmd:"" group:"client" help:"Manage event triggers: which events fire which jobs."`
	DeadLetter   deadLetterCmd   `cmd:"" group:"client" help:"List, replay and delete messages that could not be processed."`
	AlertChannel alertChannelCmd `cmd:"" group:"client" help:"Manage and test alert channels."`
	Alert        alertCmd        `cmd:"" group:"client" help:"List alerts and their deliveries."`

	Bench       benchCmd       `cmd:"" group:"bench" help:"Measure throughput, lateness and cost on this machine."`
	Conformance conformanceCmd `cmd:"" group:"bench" help:"Test an executor in any language against the wire protocol."`

	Health     healthCmd     `cmd:"" group:"machine" help:"Check that this machine's role can do its work; for containers."`
	About      versionCmd    `cmd:"" name:"version" group:"machine" help:"Print the versions of this binary."`
	Completion completionCmd `cmd:"" group:"machine" help:"Print a script that completes commands and flags in your shell."`

	Complete  completeCmd  `cmd:"" hidden:"" help:"List what can follow on a command line; the script of belfry completion calls it."`
	Man       manCmd       `cmd:"" hidden:"" help:"Write the man pages, for packages."`
	BenchPart benchPartCmd `cmd:"" hidden:"" help:"One process of a measurement; it reads its task from standard input."`
}

type standaloneCmd struct{ config.Standalone }

func (*standaloneCmd) Help() string {
	return "The data is kept in --data-dir. The first start creates the user admin and prints its password once.\n\nExamples:\n\n" +
		"    belfry standalone --demo\n    belfry standalone --data-dir /var/lib/belfry --http 0.0.0.0:8080"
}
func (c *standaloneCmd) Run(a *app) error { return a.roles.Standalone(a.ctx, c.Standalone) }

type schedulerCmd struct{ config.Scheduler }

func (*schedulerCmd) Help() string {
	return "Any number of schedulers share the due jobs. As long as one is alive, no fire time is lost.\n\nExample:\n\n" +
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
	return "The executor connects only to NATS. It opens no port, except the one of --metrics. `belfry group create` prints the token of a group.\n\nExamples:\n\n" +
		"    BELFRY_TOKEN=… belfry executor --group default --nats-url nats://nats:4222\n" +
		"    belfry executor -g tools --allow-command --allow-script bash,python"
}
func (c *executorCmd) Run(a *app) error { return a.roles.Executor(a.ctx, c.Executor) }

type gatewayCmd struct{ config.Gateway }

func (*gatewayCmd) Help() string {
	return "Executors of XXL-JOB 2.2 to 3.4 run unchanged: the gateway's address is their xxl.job.admin.addresses. `belfry group xxl-token` opens a group for them. " +
		"Any number of gateways share the executors. If one of them ends, another one takes its executors over.\n\nExample:\n\n" +
		"    belfry gateway --http 0.0.0.0:8081 --database-url postgres://belfry@db/belfry --nats-url nats://nats:4222"
}
func (c *gatewayCmd) Run(a *app) error { return a.roles.Gateway(a.ctx, c.Gateway) }

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply all missing migrations."`
	Status migrateStatusCmd `cmd:"" help:"List applied and missing migrations."`
}

type migrateUpCmd struct{ config.Migrate }

func (*migrateUpCmd) Help() string {
	return "Processes of the previous release can keep running during the migration.\n\nExample:\n\n    belfry migrate up --database-url postgres://belfry@db/belfry"
}
func (c *migrateUpCmd) Run(a *app) error { return a.roles.Migrate(a.ctx, c.Migrate, false) }

type migrateStatusCmd struct{ config.Migrate }

func (*migrateStatusCmd) Help() string {
	return "Example:\n\n    belfry migrate status --database-url postgres://belfry@db/belfry"
}
func (c *migrateStatusCmd) Run(a *app) error { return a.roles.Migrate(a.ctx, c.Migrate, true) }

type restoredCmd struct{ config.Restored }

func (*restoredCmd) Help() string {
	return "Run it after the database was restored to an earlier state, and before any scheduler, dispatcher or console starts. It enters the fire times " +
		"between that state and now, which may have run, into the missed ledger. So no misfire policy runs them again, and `belfry audit` lists them as uncertain. " +
		"Do not run it if Belfry was stopped before the backup and has not run since, because then no fire time is uncertain.\n\nExamples:\n\n" +
		"    belfry restored --pause --database-url postgres://belfry@db/belfry\n    belfry restored --until 2026-12-01T06:00:00Z"
}
func (c *restoredCmd) Run(a *app) error { return a.roles.Restored(a.ctx, c.Restored) }

type benchCmd struct{ config.Bench }

func (*benchCmd) Help() string {
	return "The command starts Postgres (with fsync), a NATS server (with file storage) and the roles, each as a process of " +
		"its own. It measures them under load and removes everything afterwards. On the same servers it also measures a baseline: " +
		"a pipeline without scheduling logic. Absolute figures depend on the machine; ratios to the baseline describe Belfry.\n\nModes:\n\n" +
		"    burst     --fires due at one instant: time until all have started and until all are settled\n" +
		"    rate      --rate fires per second for --span: lateness, CPU, WAL and bytes per run\n" +
		"    max       the highest sustained rate\n" +
		"    overload  twice the maximum rate: throughput, order and recovery\n" +
		"    idle      cost of 1,000,000 idle jobs, compared with 10,000\n" +
		"    history   cost of 20,000,000 finished runs, compared with none\n" +
		"    all       all of these\n\nExamples:\n\n    belfry bench burst --runs 5\n    belfry bench rate --rate 5000 --span 30s -o json\n" +
		"    belfry bench max --profile /tmp/profiles"
}
func (c *benchCmd) Run(a *app) error { return a.roles.Bench(a.ctx, c.Bench, nil) }

type benchPartCmd struct{}

func (*benchPartCmd) Help() string {
	return "Only `belfry bench` runs this command.\n\nExample:\n\n    belfry bench-part < ORDER"
}
func (*benchPartCmd) Run(a *app) error { return a.roles.Bench(a.ctx, config.Bench{}, a.stdin) }
