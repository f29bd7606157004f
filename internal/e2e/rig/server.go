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
	// Of a server in a cluster: its name, its port for the others, their URLs with commas between them, and its port for
	// questions about its health.
	envName   = "E2E_NATS_NAME"
	envRoute  = "E2E_NATS_ROUTE_PORT"
	envRoutes = "E2E_NATS_ROUTES"
	envHealth = "E2E_NATS_HEALTH_PORT"
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
	if err := joinCluster(opts); err != nil {
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

// joinCluster makes the server one of a cluster, if it was told to be. It does not tell clients of the others, so that
// they know only the addresses that the test gave them, which may be those of proxies.
func joinCluster(opts *server.Options) error {
	name := os.Getenv(envName)
	if name == "" {
		return nil
	}
	port, err := strconv.Atoi(os.Getenv(envRoute))
	if err != nil {
		return err
	}
	opts.ServerName, opts.HTTPHost = name, "127.0.0.1"
	if opts.HTTPPort, err = strconv.Atoi(os.Getenv(envHealth)); err != nil {
		return err
	}
	opts.Cluster.Name, opts.Cluster.Host, opts.Cluster.Port, opts.Cluster.NoAdvertise = "belfry", "127.0.0.1", port, true
	opts.Routes = server.RoutesFromStr(os.Getenv(envRoutes))
	return nil
}
