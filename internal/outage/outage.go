package outage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/explain"
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

// Reason says why a server is unavailable, if Belfry knows it.
type Reason string

// The reasons of Postgres.
const (
	ReadOnly   Reason = explain.PostgresReadOnly   // it is a standby, or read-only
	NotReached Reason = explain.PostgresNotReached // it was not reached since the process started, or lacks migrations
)

// The roles that the engine cannot do without.
const (
	Scheduler  = explain.RoleScheduler
	Dispatcher = explain.RoleDispatcher
	standalone = "standalone" // a process with all roles
)

// Trouble is something that is wrong with the engine.
type Trouble struct {
	Kind    Kind
	Key     string              // identifies the trouble within its kind
	Alert   string              // the alert with the same words; empty: none
	Since   time.Time           // when this process saw it first
	Count   int64               // servers, sessions or processes; for connections the percentage
	Why     explain.Explanation // what is wrong and what it means
	Detail  string              // names of hosts and sessions, and errors; only for admins. May be empty
	Runbook string              // URL
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

// trouble returns a trouble with the words of an alert, which is empty if there is none.
func trouble(kind Kind, key, alert, runbook string, count int64, why explain.Note, detail string) Trouble {
	return Trouble{Kind: kind, Key: key, Alert: alert, Count: count, Why: *why.Explanation(), Detail: detail, Runbook: runbooks + runbook}
}

// Away returns the trouble that a server is unavailable. The detail is for admins.
func Away(server string, reason Reason, detail string) Trouble {
	if server == JetStream {
		return trouble(ServerUnavailable, server, "BelfryJetStreamUnavailable", "jetstream-is-unavailable", 1, explain.Of(explain.JetStreamUnavailable), detail)
	}
	return trouble(ServerUnavailable, server, "BelfryServerAway", "postgres-or-nats-is-unavailable", 1,
		explain.Of(explain.ServerUnavailable, server, string(reason)), detail)
}

// silentServers has no alert, because no process of Belfry misses anything yet.
func silentServers(silent []string, of int) Trouble {
	return trouble(ServerUnavailable, NATSServers, "", "jetstream-is-unavailable", int64(len(silent)),
		explain.Of(explain.NATSServersSilent, len(silent), of), strings.Join(silent, ", "))
}

// noRole returns the trouble that a role is missing. running says that it has processes, and none of them works.
func noRole(role string, running int) Trouble {
	alert := "BelfryNoScheduler"
	if role == Dispatcher {
		alert = "BelfryNoDispatcher"
	}
	if running > 0 {
		alert = "" // the process answers Prometheus
	}
	return trouble(RoleMissing, role, alert, "a-role-is-missing", 1, explain.Of(explain.RoleMissing, role, running), "")
}

// fewer returns the trouble that processes of a role are gone.
func fewer(role string, now, before int, gone []string) Trouble {
	slices.Sort(gone)
	return trouble(ProcessMissing, role, "BelfryProcessDown", "a-role-is-missing", int64(before-now),
		explain.Of(explain.ProcessesMissing, role, before-now, before), strings.Join(gone, ", "))
}

func blockedBy(blockers []Blocker) Trouble {
	sessions := 0
	var by []string
	for _, b := range blockers {
		sessions += b.Sessions
		by = append(by, fmt.Sprintf("pid %d (%s)", b.PID, cmp.Or(b.Application, "without a name")))
	}
	return trouble(PostgresBlocked, locks, "BelfryBlocked", "nothing-starts", int64(sessions), explain.Of(explain.PostgresBlocked, sessions), strings.Join(by, ", "))
}

func crowded(used, most int64) Trouble {
	percent := 100 * used / most
	return trouble(PostgresConnections, taken, "BelfryPostgresConnections", "postgres-nearly-full", percent, explain.Of(explain.ConnectionsTaken, percent), "")
}
