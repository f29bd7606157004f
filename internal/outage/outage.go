package outage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind says what kind of trouble it is.
type Kind string

// The kinds of troubles.
const (
	ServerUnavailable   Kind = "server_unavailable"
	PostgresBlocked     Kind = "postgres_blocked"
	PostgresConnections Kind = "postgres_connections"
	RoleMissing         Kind = "role_missing"
	ProcessMissing      Kind = "process_missing"
)

// Kinds lists the kinds of troubles.
var Kinds = []Kind{ServerUnavailable, PostgresBlocked, PostgresConnections, RoleMissing, ProcessMissing}

// The servers.
const (
	Postgres    = "postgres"
	NATS        = "nats"
	JetStream   = "jetstream"
	NATSServers = "nats_servers" // some servers of the cluster
)

// The roles that the engine cannot do without.
const (
	Scheduler  = "scheduler"
	Dispatcher = "dispatcher"
	standalone = "standalone" // a process with all roles
)

// Trouble is something that is wrong with the engine.
type Trouble struct {
	Kind    Kind
	Key     string    // identifies the trouble within its kind
	Alert   string    // the alert with the same words; empty: none
	Since   time.Time // when this process saw it first
	Count   int64     // servers, sessions or processes; for connections the percentage
	Text    string    // what is wrong and what it means
	Detail  string    // names of hosts and sessions, and errors; only for admins. May be empty
	Runbook string    // URL
}

// ID returns the id of the trouble.
func (t *Trouble) ID() string { return t.Kind.id(t.Key) }

func (k Kind) id(key string) string { return string(k) + ":" + key }

// The only keys of their kinds.
const (
	locks = "locks"
	taken = "connections"
)

const runbooks = "https://github.com/belfryhq/belfry/blob/main/docs/operations.md#"

// text is what an alert says, and its runbook.
type text struct{ alert, summary, description, runbook string }

func (t text) of(kind Kind, key string, count int64, summary, detail string) Trouble {
	return Trouble{Kind: kind, Key: key, Alert: t.alert, Count: count, Text: cmp.Or(summary, t.summary) + ". " + t.description, Detail: detail, Runbook: runbooks + t.runbook}
}

// The words of the alerts. A summary is left empty if it contains numbers.
func noScheduler() text {
	return text{"BelfryNoScheduler", "No scheduler is up",
		"Nothing fires. When a scheduler is back, each job's misfire policy decides about the late fire times.", "a-role-is-missing"}
}

func noDispatcher() text {
	return text{"BelfryNoDispatcher", "No dispatcher is up",
		"Results are not settled, waiting runs and retries do not start, and executors cannot reconnect.", "a-role-is-missing"}
}

func processDown() text {
	return text{"BelfryProcessDown", "", "Other processes of the role do its work. Without them, one more failure stops the role.", "a-role-is-missing"}
}

func serverAway() text {
	return text{"BelfryServerAway", "", "Without Postgres, nothing new fires; without NATS due runs wait. Running handlers continue and report later.",
		"postgres-or-nats-is-unavailable"}
}

func noJetStream() text {
	return text{"BelfryJetStreamUnavailable", "JetStream accepts no messages",
		"Too few NATS servers are up for a quorum, or their disks are full. Due runs wait, heartbeats expire, and results stay with the executors.", "jetstream-is-unavailable"}
}

// natsServers has no alert, because no process of Belfry misses anything yet.
func natsServers() text {
	return text{"", "", "The others do the work. If more servers fail, JetStream has no quorum and due runs wait.", "jetstream-is-unavailable"}
}

func blocked() text {
	return text{"BelfryBlocked", "", "Another client holds a lock that Belfry needs. The log of the dispatchers names its session. Until it ends, parts of Belfry stand still.",
		"nothing-starts"}
}

func connections() text {
	return text{"BelfryPostgresConnections", "", "At 100 %, Postgres refuses connections, and a process that restarts cannot work.", "postgres-nearly-full"}
}

// Away returns the trouble that a server is unavailable. The reason is for all callers and may be empty, the detail is for admins.
func Away(server, reason, detail string) Trouble {
	if server == JetStream {
		return noJetStream().of(ServerUnavailable, server, 1, "", detail)
	}
	summary := server + " is unavailable"
	if server == Postgres {
		summary += ", or accepts no writes"
	}
	if reason != "" {
		summary += ": " + reason
	}
	return serverAway().of(ServerUnavailable, server, 1, summary, detail)
}

func silentServers(silent []string, of int) Trouble {
	n := len(silent)
	return natsServers().of(ServerUnavailable, NATSServers, int64(n), fmt.Sprintf("%d of %d NATS servers %s not answer", n, of, plural(n, "does", "do")),
		strings.Join(silent, ", "))
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// noRole returns the trouble that a role is missing. running says that it has processes, and none of them works.
func noRole(role string, running int) Trouble {
	words := noScheduler()
	if role == Dispatcher {
		words = noDispatcher()
	}
	if running == 0 {
		return words.of(RoleMissing, role, 1, "", "")
	}
	words.alert = "" // the process answers Prometheus
	return words.of(RoleMissing, role, 1, fmt.Sprintf("No %s works, although %d %s connected to Postgres", role, running, plural(running, "process is", "processes are")), "")
}

// fewer returns the trouble that processes of a role are gone.
func fewer(role string, now, before int, gone []string) Trouble {
	slices.Sort(gone)
	n := before - now
	return processDown().of(ProcessMissing, role, int64(n), fmt.Sprintf("%d %s of %d %s down", n, plural(n, role, role+"s"), before, plural(n, "is", "are")), strings.Join(gone, ", "))
}

func blockedBy(blockers []Blocker) Trouble {
	sessions := 0
	var by []string
	for _, b := range blockers {
		sessions += b.Sessions
		by = append(by, fmt.Sprintf("pid %d (%s)", b.PID, cmp.Or(b.Application, "without a name")))
	}
	return blocked().of(PostgresBlocked, locks, int64(sessions), fmt.Sprintf("A transaction in Postgres blocks %d sessions of Belfry", sessions), strings.Join(by, ", "))
}

func crowded(used, most int64) Trouble {
	percent := 100 * used / most
	return connections().of(PostgresConnections, taken, percent, fmt.Sprintf("%d %% of the connections of Postgres are taken", percent), "")
}
