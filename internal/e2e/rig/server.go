//go:build unix

package rig

import (
	"fmt"
	"os"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
)

// Environment variables of a NATS server.
const (
	EnvNATSConf = "E2E_NATS_CONF"
	EnvNATSPort = "E2E_NATS_PORT"
)

// NATSServer runs a NATS server with the configuration file in EnvNATSConf, on the port in EnvNATSPort, until it is killed. It prints
// "ready" when clients can connect, and returns an exit code.
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
