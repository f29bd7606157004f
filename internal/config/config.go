// Package config holds the settings of each role. Its field tags are the only definition of each flag, environment
// variable and default. Package cli fills the fields from them, and the Default… functions return the same values as
// cli without any flags. Validate reports all faults at once, by flag. Secrets never print.
package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// Log holds the settings of the log.
type Log struct {
	Level  string `name:"log-level" env:"BELFRY_LOG_LEVEL" default:"info" help:"Lowest level of records to log: debug, info, warn or error." group:"log"`
	Format string `name:"log-format" env:"BELFRY_LOG_FORMAT" default:"auto" help:"text, json, or auto: text on a terminal and json elsewhere." group:"log"`
}

// Database holds the address of Postgres.
type Database struct {
	DatabaseURL URL `name:"database-url" env:"BELFRY_DATABASE_URL" placeholder:"postgres://…" help:"Postgres database for all state, as a URL or in libpq's keyword form. It may name several hosts, for a failover." group:"servers"`
}

// Pool holds the size of a role's pool of Postgres connections.
type Pool struct {
	DatabasePool int `name:"database-pool" env:"BELFRY_DATABASE_POOL" default:"24" help:"Maximum number of Postgres connections of this process, 8 to 500." group:"servers"`
}

// NATS holds the address of NATS and the credentials of the system side (scheduler, dispatcher, console).
type NATS struct {
	NATSURL        URL    `name:"nats-url" env:"BELFRY_NATS_URL" placeholder:"nats://…" help:"NATS servers, separated by commas; the URL may contain user and password." group:"servers"`
	NATSCreds      string `name:"nats-creds" env:"BELFRY_NATS_CREDS" placeholder:"FILE" help:"Credentials file for NATS." group:"servers"`
	NATSIssuerSeed string `name:"nats-issuer-seed" env:"BELFRY_NATS_ISSUER_SEED" placeholder:"FILE" help:"File with the account seed that signs executors' log-ins (NATS auth callout)." group:"servers"`
	NATSAccount    string `name:"nats-account" env:"BELFRY_NATS_ACCOUNT" default:"BELFRY" help:"NATS account that executors are placed in." group:"servers"`
	NATSSystemURL  URL    `name:"nats-system-url" env:"BELFRY_NATS_SYSTEM_URL" placeholder:"nats://…" help:"NATS servers, separated by commas, with the user and password of a user of NATS's system account. With it, dispatchers and consoles count the connections of each group and end those of replaced tokens; without it, executors must log in again every minute. For roles with --nats-issuer-seed." group:"servers"`
	NATSTLS        `embed:""`
	NATSReplicas   int `name:"nats-replicas" env:"BELFRY_NATS_REPLICAS" default:"1" help:"Replicas of each JetStream stream, 1 to 5; use 3 in a cluster. It must be the same for every role." group:"servers"`
}

// NATSTLS holds the certificates for NATS over TLS: the CA certificates of the servers, and the client certificate.
type NATSTLS struct {
	NATSCA   string `name:"nats-ca" env:"BELFRY_NATS_CA" placeholder:"FILE" help:"CA certificates (PEM) for NATS servers, instead of this machine's. If set, belfry refuses connections without TLS." group:"servers"`
	NATSCert string `name:"nats-cert" env:"BELFRY_NATS_CERT" placeholder:"FILE" help:"Client certificate (PEM) for NATS servers; requires --nats-key." group:"servers"`
	NATSKey  string `name:"nats-key" env:"BELFRY_NATS_KEY" placeholder:"FILE" help:"Private key (PEM) of --nats-cert." group:"servers"`
}

// Timing holds the default time zone, the limits after which a run is missed or late, and the minimum time between alerts.
type Timing struct {
	TimeZone          string        `name:"time-zone" env:"BELFRY_TIME_ZONE" default:"UTC" help:"IANA time zone of schedules without a time zone. It must be the same for every role." group:"engine"`
	MisfireTolerance  time.Duration `name:"misfire-tolerance" env:"BELFRY_MISFIRE_TOLERANCE" default:"5s" help:"A fire time that is late by more than this is a misfire, 1s to 24h. Below 4s the death of a scheduler can cause misfires." group:"engine"`
	MisfireFireAllMax int           `name:"misfire-fire-all-max" env:"BELFRY_MISFIRE_FIRE_ALL_MAX" default:"100" help:"Maximum number of missed fire times that the misfire policy fire_all makes up, 1 to 10000." group:"engine"`
	AlertEvery        time.Duration `name:"alert-every" env:"BELFRY_ALERT_EVERY" default:"1h" help:"Minimum time between two alerts of the same kind and job, 1s to 720h; alerts in between are only counted. It must be the same for every role." group:"alerts"`
	AlertLateAfter    time.Duration `name:"alert-late-after" env:"BELFRY_ALERT_LATE_AFTER" default:"1m" help:"A run that starts late by more than this causes an alert, if its job has alerts on late; 1ms to 24h. It must be the same for every role." group:"alerts"`
}

// Keeping holds the time after which a silent executor is dead, and the retention of records.
type Keeping struct {
	LostAfter      time.Duration `name:"lost-after" env:"BELFRY_LOST_AFTER" default:"15s" help:"Runs of a dead executor are marked lost within this time, 12s to 1h." group:"engine"`
	LogRetention   time.Duration `name:"log-retention" env:"BELFRY_LOG_RETENTION" default:"168h" help:"Retention of run logs, 1h to 10 years." group:"engine"`
	RunRetention   time.Duration `name:"run-retention" env:"BELFRY_RUN_RETENTION" default:"720h" help:"Retention of finished runs of jobs without a retention, 1h to 10 years." group:"engine"`
	EventRetention time.Duration `name:"event-retention" env:"BELFRY_EVENT_RETENTION" default:"168h" help:"Retention of events, 24h to 10 years. Within it, repeated events are recognized." group:"engine"`
}

// Alerts holds the settings for delivering alerts. They are the same for every role that has them.
type Alerts struct {
	ConsoleURL       string `name:"console-url" env:"BELFRY_CONSOLE_URL" placeholder:"https://…" help:"URL at which users reach the console, for links in alerts. With https, cookies are Secure. Without it, alerts have no links, except those of standalone, which uses its own address." group:"alerts"`
	TraceURL         string `name:"trace-url" env:"BELFRY_TRACE_URL" placeholder:"https://…/{trace_id}" help:"URL of a trace, with the place holder {trace_id}. With it, runs in the console, in the REST API and in alerts have a link to their trace." group:"alerts"`
	AlertDenyPrivate bool   `name:"alert-deny-private" env:"BELFRY_ALERT_DENY_PRIVATE" help:"Refuse to deliver alerts to this machine and to private networks, and do not use a proxy." group:"alerts"`
	SecretKey        Secret `name:"secret-key" env:"BELFRY_SECRET_KEY" placeholder:"SECRET" help:"Key that encrypts the secrets of alert channels and the access tokens of XXL-JOB executors in Postgres: 32 random characters or more. Without it, they are not encrypted. Prefer the environment variable to the flag." group:"alerts"`
}

// Web holds the settings of the console's server.
type Web struct {
	HTTP           string   `name:"http" env:"BELFRY_HTTP" default:"127.0.0.1:8080" help:"Address of the console and the REST API; port 0 takes a free port."`
	TLSCert        string   `name:"tls-cert" env:"BELFRY_TLS_CERT" placeholder:"FILE" help:"Certificate (PEM, with intermediate certificates) for TLS of the console; requires --tls-key. The console uses a changed file from the next connection on."`
	TLSKey         string   `name:"tls-key" env:"BELFRY_TLS_KEY" placeholder:"FILE" help:"Private key (PEM) of --tls-cert."`
	TrustedProxies []string `name:"trusted-proxy" env:"BELFRY_TRUSTED_PROXY" placeholder:"NETWORK" help:"Address or network (10.0.0.0/8) of proxies in front of the console, which add the client's address to X-Forwarded-For. Without it, the console ignores the header."`
	ExecutorURL    string   `name:"executor-url" env:"BELFRY_EXECUTOR_URL" placeholder:"nats://…" help:"Addresses of the NATS servers for executors. The console shows them in commands and code. Use tls:// if the servers need TLS. Without this setting, the console shows its own NATS servers."`
	AdminPassword  Secret   `name:"admin-password" env:"BELFRY_ADMIN_PASSWORD" placeholder:"SECRET" help:"Password of the user admin, which the first start creates. Without it, the first start generates a password and prints it once. Prefer the environment variable to the flag."`
}

// OIDC holds the settings of an identity provider through which users log in to the console, and the meaning of its
// claims. Without OIDCIssuer, there is no provider.
type OIDC struct {
	OIDCIssuer        string        `name:"oidc-issuer" env:"BELFRY_OIDC_ISSUER" placeholder:"https://…" help:"Identity provider (OpenID Connect) for log-ins: the issuer in its discovery document." group:"oidc"`
	OIDCClientID      string        `name:"oidc-client-id" env:"BELFRY_OIDC_CLIENT_ID" placeholder:"ID" help:"The console's client id at the provider." group:"oidc"`
	OIDCClientSecret  Secret        `name:"oidc-client-secret" env:"BELFRY_OIDC_CLIENT_SECRET" placeholder:"SECRET" help:"The client's secret. Prefer the environment variable to the flag." group:"oidc"`
	OIDCRedirectURL   string        `name:"oidc-redirect-url" env:"BELFRY_OIDC_REDIRECT_URL" placeholder:"https://…" help:"The console's callback URL that is registered at the provider; by default /api/v1/auth/oidc/callback below --console-url." group:"oidc"`
	OIDCName          string        `name:"oidc-name" env:"BELFRY_OIDC_NAME" default:"single sign-on" help:"Name of the provider on the log-in button." group:"oidc"`
	OIDCScopes        []string      `name:"oidc-scope" env:"BELFRY_OIDC_SCOPE" default:"profile,email" help:"Scopes to request, in addition to openid." group:"oidc"`
	OIDCUsernameClaim string        `name:"oidc-username-claim" env:"BELFRY_OIDC_USERNAME_CLAIM" default:"preferred_username" help:"Claim with the user's name." group:"oidc"`
	OIDCRoleClaim     string        `name:"oidc-role-claim" env:"BELFRY_OIDC_ROLE_CLAIM" default:"groups" help:"Claim that --oidc-role maps to roles. Write a nested claim as a path with dots." group:"oidc"`
	OIDCRoles         []string      `name:"oidc-role" env:"BELFRY_OIDC_ROLE" sep:";" placeholder:"VALUE=ROLE" help:"Role of users with this value in the role claim: admin, operator or viewer. The highest role applies." group:"oidc"`
	OIDCDefaultRole   string        `name:"oidc-default-role" env:"BELFRY_OIDC_DEFAULT_ROLE" placeholder:"ROLE" help:"Role of users with none of these values: operator or viewer. Without it, they cannot log in." group:"oidc"`
	OIDCGroupsClaim   string        `name:"oidc-groups-claim" env:"BELFRY_OIDC_GROUPS_CLAIM" default:"groups" help:"Claim that --oidc-group maps to groups." group:"oidc"`
	OIDCGroups        []string      `name:"oidc-group" env:"BELFRY_OIDC_GROUP" sep:";" placeholder:"VALUE=GROUP" help:"Group that operators and viewers with this value in the groups claim are confined to; may be given several times for one value." group:"oidc"`
	OIDCSession       time.Duration `name:"oidc-session" env:"BELFRY_OIDC_SESSION" default:"12h" help:"Lifetime of a session that begins with a log-in through the provider, 5m to 168h. The console reads the user's roles again at the next log-in." group:"oidc"`
}

// Profiling holds the address of the Go profiler.
type Profiling struct {
	Pprof string `name:"pprof" env:"BELFRY_PPROF" placeholder:"HOST:PORT" help:"Address of Go's profiler (net/http/pprof), below /debug/pprof/. Whoever reaches it can read parts of this process's memory: use 127.0.0.1. Off by default."`
}

// Metrics holds the address at which a role without a console serves /metrics, /healthz and /readyz.
type Metrics struct {
	Metrics string `name:"metrics" env:"BELFRY_METRICS" placeholder:"HOST:PORT" help:"Address of /metrics, /healthz and /readyz; port 0 takes a free port. Without it, they are not served."`
}

// Standalone runs all roles in one process. Without DatabaseURL and NATSURL, it runs its own Postgres and NATS.
type Standalone struct {
	DataDir     string `name:"data-dir" env:"BELFRY_DATA_DIR" default:"belfry-data" help:"Directory for all data: Postgres, NATS, spooled results."`
	Web         `embed:""`
	OIDC        `embed:""`
	NATSListen  string   `name:"nats" env:"BELFRY_NATS" default:"127.0.0.1:4222" help:"Address at which executors reach the built-in NATS; port 0 takes a free port."`
	NATSTLSCert string   `name:"nats-tls-cert" env:"BELFRY_NATS_TLS_CERT" placeholder:"FILE" help:"Certificate (PEM) of the built-in NATS; requires --nats-tls-key. With it, NATS refuses connections without TLS. NATS uses a changed file from the next connection on."`
	NATSTLSKey  string   `name:"nats-tls-key" env:"BELFRY_NATS_TLS_KEY" placeholder:"FILE" help:"Private key (PEM) of --nats-tls-cert."`
	Demo        bool     `name:"demo" env:"BELFRY_DEMO" help:"Add an executor (group demo) and jobs that start firing at once."`
	Gateway     string   `name:"gateway" env:"BELFRY_GATEWAY" placeholder:"HOST:PORT" help:"Address at which executors of XXL-JOB register and report; port 0 takes a free port. Without it, there is no gateway to such executors."`
	AllowScript []string `name:"allow-script" env:"BELFRY_ALLOW_SCRIPT" placeholder:"LANGUAGE" help:"Script languages that the executor of --demo runs, as this user: bash, sh, python, node, php, powershell, go."`
	Database    `embed:""`
	Pool        `embed:""`
	NATS        `embed:""`
	Timing      `embed:""`
	Keeping     `embed:""`
	Alerts      `embed:""`
	Profiling   `embed:""`
	Log         `embed:""`
}

// Scheduler is the role that plans and fires jobs.
type Scheduler struct {
	Database  `embed:""`
	Pool      `embed:""`
	NATS      `embed:""`
	Timing    `embed:""`
	Metrics   `embed:""`
	Profiling `embed:""`
	Log       `embed:""`
}

// Dispatcher is the role that settles results, assigns waiting runs and repairs runs.
type Dispatcher struct {
	Database  `embed:""`
	Pool      `embed:""`
	NATS      `embed:""`
	Timing    `embed:""`
	Keeping   `embed:""`
	Alerts    `embed:""`
	Metrics   `embed:""`
	Profiling `embed:""`
	Log       `embed:""`
}

// Console is the role that serves the REST API and the web console.
type Console struct {
	Web       `embed:""`
	OIDC      `embed:""`
	Database  `embed:""`
	Pool      `embed:""`
	NATS      `embed:""`
	Timing    `embed:""`
	Alerts    `embed:""`
	Profiling `embed:""`
	Log       `embed:""`
}

// Executor is the stock executor.
type Executor struct {
	Group           string `name:"group" short:"g" env:"BELFRY_GROUP" placeholder:"NAME" help:"Executor group to join. Required."`
	NATSURL         URL    `name:"nats-url" env:"BELFRY_NATS_URL" default:"nats://127.0.0.1:4222" help:"NATS servers, separated by commas."`
	NATSTLS         `embed:""`
	Token           Secret            `name:"token" env:"BELFRY_TOKEN" placeholder:"SECRET" help:"The group's token, from belfry group create. Prefer the environment variable to the flag."`
	Instance        string            `name:"instance" env:"BELFRY_INSTANCE" placeholder:"NAME" help:"Name of this process within its group, which must survive restarts; by default a generated name that is stored in the spool directory."`
	Capacity        int               `name:"capacity" env:"BELFRY_CAPACITY" default:"256" help:"Maximum number of concurrent runs, 1 to 65536."`
	Labels          map[string]string `name:"label" env:"BELFRY_LABELS" mapsep:"," placeholder:"KEY=VALUE" help:"Labels shown with the instance."`
	HTTPDenyPrivate bool              `name:"http-deny-private" env:"BELFRY_HTTP_DENY_PRIVATE" help:"The handler http does not connect to this machine or to private networks. It never connects to link-local addresses and cloud metadata services."`
	HTTPAllow       []string          `name:"http-allow" env:"BELFRY_HTTP_ALLOW" placeholder:"CIDR" help:"Private networks or addresses (10.1.0.0/16) that the handler http may reach. All other private ones are denied, also without --http-deny-private."`
	HTTPUseProxy    bool              `name:"http-use-proxy" env:"BELFRY_HTTP_USE_PROXY" help:"The handler http uses the proxies of HTTP_PROXY, HTTPS_PROXY and NO_PROXY. Then the proxy must deny addresses: http checks only the proxy's address and addresses in URLs."`
	AllowCommand    bool              `name:"allow-command" env:"BELFRY_ALLOW_COMMAND" help:"Serve the handler command, which runs any command line of a job as this user, or as --run-as."`
	AllowScript     []string          `name:"allow-script" env:"BELFRY_ALLOW_SCRIPT" placeholder:"LANGUAGE" help:"Script languages to run, as this user or as --run-as: bash, sh, python, node, php, powershell, go."`
	RunAs           string            `name:"run-as" env:"BELFRY_RUN_AS" placeholder:"USER" help:"Account for commands and scripts, with its groups and a clean environment. The executor itself must run as root."`
	SpoolDir        string            `name:"spool-dir" env:"BELFRY_SPOOL_DIR" placeholder:"DIR" help:"Directory that keeps results until they are settled; by default belfry/executor in the user's cache directory."`
	DrainTimeout    time.Duration     `name:"drain-timeout" env:"BELFRY_DRAIN_TIMEOUT" default:"30s" help:"Maximum time that running handlers continue after SIGTERM; at most 24h."`
	SettleTimeout   time.Duration     `name:"settle-timeout" env:"BELFRY_SETTLE_TIMEOUT" default:"30s" help:"Maximum time to wait after that until all results are in the database; at most 24h. Results that are not stay in the spool."`
	Metrics         `embed:""`
	Profiling       `embed:""`
	Log             `embed:""`
}

// Gateway is the role that serves executors of XXL-JOB.
type Gateway struct {
	HTTP      string `name:"http" env:"BELFRY_HTTP" default:"127.0.0.1:8081" help:"Address at which executors of XXL-JOB register and report; port 0 takes a free port. It is their xxl.job.admin.addresses."`
	SpoolDir  string `name:"spool-dir" env:"BELFRY_SPOOL_DIR" placeholder:"DIR" help:"Directory that keeps callbacks while Postgres is away; by default belfry/gateway in the user's cache directory. Each gateway of a machine needs its own."`
	SecretKey Secret `name:"secret-key" env:"BELFRY_SECRET_KEY" placeholder:"SECRET" help:"Key that encrypts the access tokens of executors in Postgres, the same as that of the consoles. Prefer the environment variable to the flag." group:"servers"`
	Database  `embed:""`
	Pool      `embed:""`
	NATS      `embed:""`
	Metrics   `embed:""`
	Profiling `embed:""`
	Log       `embed:""`
}

// Timing returns settings of the engine that a gateway does not use.
func (Gateway) Timing() Timing { return defaultTiming() }

// Migrate is the command that migrates the database.
type Migrate struct {
	Database `embed:""`
	Log      `embed:""`
}

// Restored holds the settings of `belfry restored`.
type Restored struct {
	Database `embed:""`
	Timing   `embed:""`
	Log      `embed:""`
	Until    *domain.Instant `name:"until" env:"BELFRY_RESTORED_UNTIL" placeholder:"INSTANT" help:"When the last scheduler, dispatcher or console stopped that worked on the lost state, such as 2026-12-01T06:00:00Z; by default now. Later fire times have certainly not run."`
	Pause    bool            `name:"pause" env:"BELFRY_RESTORED_PAUSE" help:"Also pause all groups, so that nothing fires by its schedule before you have checked the restored state."`
}

func defaultTiming() Timing {
	return Timing{
		TimeZone: "UTC", MisfireTolerance: 5 * time.Second, MisfireFireAllMax: 100,
		AlertEvery: domain.DefaultAlertEvery, AlertLateAfter: domain.DefaultAlertLateAfter,
	}
}

func defaultKeeping() Keeping {
	return Keeping{LostAfter: 15 * time.Second, LogRetention: 7 * 24 * time.Hour, RunRetention: 30 * 24 * time.Hour, EventRetention: 7 * 24 * time.Hour}
}

func defaultLog() Log   { return Log{Level: "info", Format: "auto"} }
func defaultNATS() NATS { return NATS{NATSAccount: "BELFRY", NATSReplicas: 1} }
func defaultWeb() Web   { return Web{HTTP: "127.0.0.1:8080"} }

func defaultOIDC() OIDC {
	return OIDC{OIDCName: "single sign-on", OIDCScopes: []string{"profile", "email"}, OIDCUsernameClaim: "preferred_username",
		OIDCRoleClaim: "groups", OIDCGroupsClaim: "groups", OIDCSession: 12 * time.Hour}
}

// DefaultStandalone returns the settings of `belfry standalone` without flags.
func DefaultStandalone() Standalone {
	return Standalone{DataDir: "belfry-data", NATSListen: "127.0.0.1:4222",
		Web: defaultWeb(), OIDC: defaultOIDC(), Pool: defaultPool(), NATS: defaultNATS(), Timing: defaultTiming(), Keeping: defaultKeeping(), Log: defaultLog()}
}

func defaultPool() Pool { return Pool{DatabasePool: 24} }

// DefaultScheduler returns the settings of `belfry scheduler` without flags, which lack the servers' URLs.
func DefaultScheduler() Scheduler {
	return Scheduler{Pool: defaultPool(), NATS: defaultNATS(), Timing: defaultTiming(), Log: defaultLog()}
}

// DefaultDispatcher returns the settings of `belfry dispatcher` without flags, which lack the servers' URLs.
func DefaultDispatcher() Dispatcher {
	return Dispatcher{Pool: defaultPool(), NATS: defaultNATS(), Timing: defaultTiming(), Keeping: defaultKeeping(), Log: defaultLog()}
}

// DefaultConsole returns the settings of `belfry console` without flags, which lack the servers' URLs.
func DefaultConsole() Console {
	return Console{Web: defaultWeb(), OIDC: defaultOIDC(), Pool: defaultPool(), NATS: defaultNATS(), Timing: defaultTiming(), Log: defaultLog()}
}

// DefaultExecutor returns the settings of `belfry executor` without flags, which lack the group.
func DefaultExecutor() Executor {
	return Executor{NATSURL: "nats://127.0.0.1:4222", Capacity: 256, DrainTimeout: 30 * time.Second, SettleTimeout: 30 * time.Second, Log: defaultLog()}
}

// DefaultGateway returns the settings of `belfry gateway` without flags, which lack the servers' URLs.
func DefaultGateway() Gateway {
	return Gateway{HTTP: "127.0.0.1:8081", Pool: defaultPool(), NATS: defaultNATS(), Log: defaultLog()}
}

// DefaultMigrate returns the settings of `belfry migrate` without flags, which lack the database's URL.
func DefaultMigrate() Migrate { return Migrate{Log: defaultLog()} }

// DefaultRestored returns the settings of `belfry restored` without flags, which lack the database's URL.
func DefaultRestored() Restored { return Restored{Timing: defaultTiming(), Log: defaultLog()} }

// Location returns the location of TimeZone. Call it only after Validate.
func (t Timing) Location() *time.Location {
	zone, err := time.LoadLocation(t.TimeZone)
	if err != nil {
		return time.UTC
	}
	return zone
}

// Validate reports all faults at once, as an Invalid error whose locations are flags.
func (c Standalone) Validate() error {
	var f domain.Faults
	if c.DataDir == "" && (c.DatabaseURL == "" || c.NATSURL == "") {
		f.Add("--data-dir", "is required: the directory for Postgres and NATS")
	}
	checkLanguages(&f, c.AllowScript)
	if len(c.AllowScript) > 0 && !c.Demo {
		f.Add("--allow-script", "requires --demo, because otherwise this process has no executor; start one with belfry executor")
	}
	c.Web.check(&f)
	c.OIDC.check(&f, true)
	checkAddress(&f, "--nats", c.NATSListen)
	if c.Gateway != "" {
		checkAddress(&f, "--gateway", c.Gateway)
	}
	checkPair(&f, "--nats-tls-cert", c.NATSTLSCert, "--nats-tls-key", c.NATSTLSKey)
	if c.NATSTLSCert != "" && c.NATSURL != "" {
		f.Add("--nats-tls-cert", "cannot be used with --nats-url, which replaces the built-in NATS")
	}
	c.Database.check(&f, false)
	c.Pool.check(&f)
	c.NATS.check(&f, false)
	c.Timing.check(&f)
	c.Keeping.check(&f)
	c.Alerts.check(&f)
	c.Profiling.check(&f)
	c.Log.check(&f)
	return f.Err("")
}

// Validate reports all faults at once, as an Invalid error whose locations are flags.
func (c Scheduler) Validate() error {
	var f domain.Faults
	c.Database.check(&f, true)
	c.Pool.check(&f)
	c.NATS.check(&f, true)
	c.Timing.check(&f)
	c.Metrics.check(&f)
	c.Profiling.check(&f)
	c.Log.check(&f)
	return f.Err("")
}

// Validate reports all faults at once, as an Invalid error whose locations are flags.
func (c Dispatcher) Validate() error {
	var f domain.Faults
	c.Database.check(&f, true)
	c.Pool.check(&f)
	c.NATS.check(&f, true)
	c.Timing.check(&f)
	c.Keeping.check(&f)
	c.Alerts.check(&f)
	c.Metrics.check(&f)
	c.Profiling.check(&f)
	c.Log.check(&f)
	return f.Err("")
}

// Validate reports all faults at once, as an Invalid error whose locations are flags.
func (c Console) Validate() error {
	var f domain.Faults
	c.Web.check(&f)
	c.OIDC.check(&f, c.ConsoleURL != "")
	c.Database.check(&f, true)
	c.Pool.check(&f)
	c.NATS.check(&f, true)
	c.Timing.check(&f)
	c.Alerts.check(&f)
	c.Profiling.check(&f)
	c.Log.check(&f)
	return f.Err("")
}

// Validate reports all faults at once, as an Invalid error whose locations are flags.
func (c Gateway) Validate() error {
	var f domain.Faults
	checkAddress(&f, "--http", c.HTTP)
	checkSecretKey(&f, c.SecretKey)
	c.Database.check(&f, true)
	c.Pool.check(&f)
	c.NATS.check(&f, true)
	c.Metrics.check(&f)
	c.Profiling.check(&f)
	c.Log.check(&f)
	return f.Err("")
}

// Validate reports all faults at once, as an Invalid error whose locations are flags.
func (c Migrate) Validate() error {
	var f domain.Faults
	c.Database.check(&f, true)
	c.Log.check(&f)
	return f.Err("")
}

// Validate reports all faults at once, as an Invalid error whose locations are flags.
func (c Restored) Validate() error {
	var f domain.Faults
	c.Database.check(&f, true)
	c.Timing.check(&f)
	c.Log.check(&f)
	return f.Err("")
}

// Validate reports all faults at once, as an Invalid error whose locations are flags. Package executor validates the
// instance and the labels.
func (c Executor) Validate() error {
	var f domain.Faults
	if c.Group == "" {
		f.Add("--group", "is required: the executor group to join")
	} else if !domain.ValidGroupName(c.Group) {
		f.Add("--group", domain.GroupNameRule)
	}
	checkNATSURL(&f, "--nats-url", c.NATSURL, true)
	c.NATSTLS.check(&f)
	between(&f, "--capacity", c.Capacity, 1, 65536)
	checkLanguages(&f, c.AllowScript)
	if c.RunAs != "" && !c.AllowCommand && len(c.AllowScript) == 0 {
		f.Add("--run-as", "has no effect without --allow-command or --allow-script")
	}
	for _, text := range c.HTTPAllow {
		if _, err := network(text); err != nil {
			f.Add("--http-allow", fmt.Sprintf("%q is neither an address nor a network; write 10.1.2.3 or 10.0.0.0/8", text))
		}
	}
	between(&f, "--drain-timeout", c.DrainTimeout, 0, 24*time.Hour)
	between(&f, "--settle-timeout", c.SettleTimeout, 0, 24*time.Hour)
	c.Metrics.check(&f)
	c.Profiling.check(&f)
	c.Log.check(&f)
	return f.Err("")
}

// AllowedNetworks returns the networks of --http-allow.
func (c Executor) AllowedNetworks() []netip.Prefix { return networks(c.HTTPAllow) }

func (d Database) check(f *domain.Faults, required bool) {
	if required && d.DatabaseURL == "" {
		f.Add("--database-url", "is required: the Postgres that holds all state, such as postgres://belfry@db/belfry")
	}
}

func (p Pool) check(f *domain.Faults) { between(f, "--database-pool", p.DatabasePool, 8, 500) }

func (n NATS) check(f *domain.Faults, required bool) {
	checkNATSURL(f, "--nats-url", n.NATSURL, required)
	checkNATSURL(f, "--nats-system-url", n.NATSSystemURL, false)
	n.NATSTLS.check(f)
	between(f, "--nats-replicas", n.NATSReplicas, 1, 5)
	if n.NATSAccount == "" {
		f.Add("--nats-account", "is required: the NATS account that executors are placed in")
	}
}

func checkNATSURL(f *domain.Faults, flag string, u URL, required bool) {
	if u == "" {
		if required {
			f.Add(flag, "is required, such as nats://127.0.0.1:4222")
		}
		return
	}
	for one := range strings.SplitSeq(string(u), ",") {
		parsed, err := url.Parse(strings.TrimSpace(one))
		if err != nil || parsed.Host == "" {
			f.Add(flag, "is not a URL such as nats://127.0.0.1:4222") // leaves out the URL, which may contain a password
			return
		}
		checkOneOf(f, flag, parsed.Scheme, "nats", "tls", "ws", "wss")
	}
}

func (t Timing) check(f *domain.Faults) {
	// LoadLocation accepts "Local" and "", but their zone depends on the machine.
	if _, err := time.LoadLocation(t.TimeZone); err != nil || t.TimeZone == "" || t.TimeZone == "Local" {
		f.Add("--time-zone", fmt.Sprintf("%q is not the IANA name of a time zone, such as Europe/Berlin", t.TimeZone))
	}
	between(f, "--misfire-tolerance", t.MisfireTolerance, time.Second, 24*time.Hour)
	between(f, "--misfire-fire-all-max", t.MisfireFireAllMax, 1, 10_000)
	between(f, "--alert-every", t.AlertEvery, time.Second, 720*time.Hour)
	between(f, "--alert-late-after", t.AlertLateAfter, time.Millisecond, 24*time.Hour)
}

const tenYears = 10 * 365 * 24 * time.Hour

func (k Keeping) check(f *domain.Faults) {
	// An executor's lease is 10 s. An executor must not be declared dead while it may still start attempts.
	between(f, "--lost-after", k.LostAfter, 12*time.Second, time.Hour)
	between(f, "--log-retention", k.LogRetention, time.Hour, tenYears)
	between(f, "--run-retention", k.RunRetention, time.Hour, tenYears)
	between(f, "--event-retention", k.EventRetention, 24*time.Hour, tenYears)
}

func (a Alerts) check(f *domain.Faults) {
	if u, err := url.Parse(a.ConsoleURL); a.ConsoleURL != "" && (err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "") {
		f.Add("--console-url", "is not an http or https URL such as https://belfry.example.org")
	}
	if u, err := url.Parse(a.TraceURL); a.TraceURL != "" && (err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || !strings.Contains(a.TraceURL, "{trace_id}")) {
		f.Add("--trace-url", "is not an http or https URL with {trace_id}, such as https://traces.example.org/trace/{trace_id}")
	}
	checkSecretKey(f, a.SecretKey)
}

func checkSecretKey(f *domain.Faults, key Secret) {
	if n := len(key); n > 0 && n < 32 {
		f.Add("--secret-key", "must have 32 random characters or more; create one with: openssl rand -base64 32")
	}
}

func (w Web) check(f *domain.Faults) {
	checkAddress(f, "--http", w.HTTP)
	checkPair(f, "--tls-cert", w.TLSCert, "--tls-key", w.TLSKey)
	checkNATSURL(f, "--executor-url", URL(w.ExecutorURL), false)
	if strings.Contains(w.ExecutorURL, "@") {
		f.Add("--executor-url", "contains a user or a password, which the console would show")
	}
	for _, p := range w.TrustedProxies {
		if _, err := network(p); err != nil {
			f.Add("--trusted-proxy", fmt.Sprintf("%q is neither an address nor a network; write 10.1.2.3 or 10.0.0.0/8", p))
		}
	}
}

// Proxies returns the networks of --trusted-proxy.
func (w Web) Proxies() []netip.Prefix { return networks(w.TrustedProxies) }

// networks parses networks and leaves out invalid ones.
func networks(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if n, err := network(text); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// network parses a network or a single address.
func network(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().Prefix(a.Unmap().BitLen())
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err
}

func (t NATSTLS) check(f *domain.Faults) {
	checkPair(f, "--nats-cert", t.NATSCert, "--nats-key", t.NATSKey)
}

// checkPair requires that both files are given, or none.
func checkPair(f *domain.Faults, certFlag, cert, keyFlag, key string) {
	switch {
	case cert != "" && key == "":
		f.Add(keyFlag, "is required with "+certFlag)
	case cert == "" && key != "":
		f.Add(certFlag, "is required with "+keyFlag)
	}
}

func (m Metrics) check(f *domain.Faults) {
	if m.Metrics != "" {
		checkAddress(f, "--metrics", m.Metrics)
	}
}

func (p Profiling) check(f *domain.Faults) {
	if p.Pprof != "" {
		checkAddress(f, "--pprof", p.Pprof)
	}
}

func (l Log) check(f *domain.Faults) {
	checkOneOf(f, "--log-level", l.Level, "debug", "info", "warn", "error")
	checkOneOf(f, "--log-format", l.Format, "auto", "text", "json")
}

func checkLanguages(f *domain.Faults, languages []string) {
	for _, language := range languages {
		checkOneOf(f, "--allow-script", language, domain.AgentLanguages...)
	}
}

func checkAddress(f *domain.Faults, flag, address string) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		f.Add(flag, fmt.Sprintf("%q is not an address such as 127.0.0.1:8080", address))
	}
}

func between[T int | time.Duration](f *domain.Faults, flag string, v, lo, hi T) {
	if v < lo || v > hi {
		f.Add(flag, fmt.Sprintf("is %v; it must be %v to %v", v, lo, hi))
	}
}

func checkOneOf(f *domain.Faults, flag, v string, allowed ...string) {
	for _, a := range allowed {
		if v == a {
			return
		}
	}
	f.Add(flag, fmt.Sprintf("%q is not known; use one of %s", v, strings.Join(allowed, ", ")))
}
