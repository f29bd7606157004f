package explain

import (
	"cmp"
	"fmt"
)

// The argument "reason" of ServerUnavailable. Another value is shown as it is.
const (
	PostgresReadOnly   = "read_only"
	PostgresNotReached = "not_reached"
)

var serverReasons = map[string]string{
	PostgresReadOnly:   "it is a standby, or read-only",
	PostgresNotReached: "it was not reached yet, or lacks migrations",
}

// The argument "role" of RoleMissing. No other role is the only one that does its work.
const (
	RoleScheduler  = "scheduler"
	RoleDispatcher = "dispatcher"
)

// missingRoles says what a missing role means.
var missingRoles = map[string]string{
	RoleScheduler:  "Nothing fires. When a scheduler is back, each job's misfire policy decides about the late fire times.",
	RoleDispatcher: "Results are not settled, waiting runs and retries do not start, and executors cannot reconnect.",
}

// engineEntries are the entries of what is wrong with the servers and the roles. The texts are those of the alerts in deploy/prometheus: a summary
// and a description.
var engineEntries = map[Code]entry{
	ServerUnavailable: {[]Param{text("server"), text("reason")}, func(a Args) string {
		s := a.text("server") + " is unavailable"
		if a.text("server") == "postgres" {
			s += ", or accepts no writes"
		}
		if reason := a.text("reason"); reason != "" {
			s += ": " + cmp.Or(serverReasons[reason], reason)
		}
		return s + ". Without Postgres, nothing new fires; without NATS due runs wait. Running handlers continue and report later."
	}},
	JetStreamUnavailable: {nil, constant("JetStream accepts no messages. Too few NATS servers are up for a quorum, or their disks are full. " +
		"Due runs wait, heartbeats expire, and results stay with the executors.")},
	NATSServersSilent: {[]Param{num("silent"), num("servers")}, func(a Args) string {
		return fmt.Sprintf("%d of %d NATS servers %s not answer. The others do the work. If more servers fail, JetStream has no quorum and due runs wait.",
			a.num("silent"), a.num("servers"), either(a.num("silent"), "does", "do"))
	}},
	PostgresBlocked: {[]Param{num("sessions")}, func(a Args) string {
		return fmt.Sprintf("A transaction in Postgres blocks %d sessions of Belfry. Another client holds a lock that Belfry needs. "+
			"The log of the dispatchers names its session. Until it ends, parts of Belfry stand still.", a.num("sessions"))
	}},
	ConnectionsTaken: {[]Param{num("percent")}, func(a Args) string {
		return fmt.Sprintf("%d %% of the connections of Postgres are taken. "+
			"At 100 %%, Postgres refuses connections, and a process that restarts cannot work.", a.num("percent"))
	}},
	RoleMissing: {[]Param{text("role"), num("processes")}, func(a Args) string {
		s := "No " + a.text("role") + " is up"
		if n := a.num("processes"); n > 0 {
			s = fmt.Sprintf("No %s works, although %d %s connected to Postgres", a.text("role"), n, either(n, "process is", "processes are"))
		}
		return s + ". " + missingRoles[a.text("role")]
	}},
	ProcessesMissing: {[]Param{text("role"), num("missing"), num("processes")}, func(a Args) string {
		n := a.num("missing")
		return fmt.Sprintf("%d %s of %d %s down. Other processes of the role do its work. Without them, one more failure stops the role.",
			n, a.text("role")+either(n, "", "s"), a.num("processes"), either(n, "is", "are"))
	}},
}

func either(n int64, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}
