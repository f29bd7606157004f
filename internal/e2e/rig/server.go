//go:build unix

package rig

import (
	"fmt"
	"os"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
)

// What a NATS server is told.
const (
	EnvNATSConf = "E2E_NATS_CONF"
	EnvNATSPort = "E2E_NATS_PORT"
)

// NATSServer runs a NATS server of the configuration that EnvNATSConf names, on the port of EnvNATSPort, until it is
// killed, and returns an exit code. It says "ready".
func NATSServer() int {
	opts, err := server.ProcessConfigFile(os.Getenv(EnvNATSConf))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	opts.Host, opts.NoSigs = "127.0.0.1", true
	if opts.Port, err = strconv.Atoi(os.Getenv(EnvNATSPort)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ns.ConfigureLogger()
	go ns.Start()
	if !ns.ReadyForConnections(Patience) {
		fmt.Fprintln(os.Stderr, "not ready")
		return 1
	}
	fmt.Println("ready")
	ns.WaitForShutdown()
	return 0
}
