package cli

import "github.com/belfryhq/belfry/internal/config"

type conformanceCmd struct{ config.Conformance }

func (*conformanceCmd) Help() string {
	return "The command starts a NATS server with Belfry's streams and permissions, starts the executor several times, and tests " +
		"every duty of docs/wire.md: offers, refusals, kills, drains, freezes, kills of the process, an outage of NATS. " +
		"It prints one line for each duty. If the executor breaks a duty, the exit code is 1.\n\n" +
		"The executor needs the handlers of docs/conformance.md. It reads its settings from BELFRY_NATS_URL, BELFRY_TOKEN, BELFRY_GROUP, " +
		"BELFRY_INSTANCE, BELFRY_SPOOL_DIR, BELFRY_CAPACITY and BELFRY_DRAIN_TIMEOUT.\n\nExamples:\n\n" +
		"    belfry conformance --executor './my-executor'\n" +
		"    belfry conformance --executor 'exec python3 docs/examples/conformance.py' -o json\n" +
		"    belfry conformance --executor './my-executor' --duty frozen --log-dir /tmp/logs"
}
func (c *conformanceCmd) Run(a *app) error { return a.roles.Conformance(a.ctx, c.Conformance) }
