//go:build unix

package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/belfryhq/belfry/internal/app"
	"github.com/belfryhq/belfry/internal/cli"
	"github.com/belfryhq/belfry/internal/pgtest"
)

// What the test binary is told when it starts itself again.
const (
	envAs       = "E2E_AS"        // "belfry", "nats" or "executor"
	envCrashAt  = "E2E_CRASH_AT"  // "bound:3": SIGKILL itself when it comes to the point for the third time
	envFreezeAt = "E2E_FREEZE_AT" // "bound:3": SIGSTOP itself there
	envConf     = "E2E_NATS_CONF"
	envPort     = "E2E_NATS_PORT"
	// Of a server in a cluster: its name, its port for the others, their URLs with commas between them, and its port for
	// questions about its health.
	envName   = "E2E_NATS_NAME"
	envRoute  = "E2E_NATS_ROUTE_PORT"
	envRoutes = "E2E_NATS_ROUTES"
	envHealth = "E2E_NATS_HEALTH_PORT"
	envClock  = "E2E_CLOCK" // file with the milliseconds by which the process's wall clock is wrong, at any moment
	envNotes  = "E2E_NOTES" // file into which an executor of the torture's writes what its handlers do
)

func TestMain(m *testing.M) {
	switch os.Getenv(envAs) {
	case "belfry":
		os.Exit(belfry())
	case "nats":
		os.Exit(natsServer())
	case "executor":
		os.Exit(torturedExecutor())
	default:
		// These tests wait far more than they compute, so that more of them fit beside each other than there are
		// cores. The flag of that name, if given, still counts, as flags are parsed after this.
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err) // the testing package has no such flag any more
		}
		pgtest.Main(m)
	}
}

// belfry is main with a way to die or to freeze on the spot.
func belfry() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	roles := &app.App{Stdout: os.Stdout, Stderr: os.Stderr, Version: "e2e", Trace: trace(os.Getenv(envCrashAt), os.Getenv(envFreezeAt)),
		Clock: wrongClock(os.Getenv(envClock))}
	return cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, roles)
}

// trace has the process send itself a signal at a named point of its work, if it is told so.
func trace(crashAt, freezeAt string) func(string) {
	crash := signalAt(crashAt, "killing itself at", syscall.SIGKILL)
	freeze := signalAt(freezeAt, "freezing itself at", syscall.SIGSTOP)
	return func(at string) {
		if crash(at) {
			select {} // the signal may take a moment, in which nothing more may happen
		}
		if freeze(at) {
			<-time.After(100 * time.Millisecond) // as above; once it thaws this has passed
		}
	}
}

// signalAt returns what sends a signal to the process where it comes to a point for the given time, "bound:3", and
// reports whether it did.
func signalAt(where, what string, s syscall.Signal) func(string) bool {
	point, count, found := strings.Cut(where, ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if !found || err != nil {
		return func(string) bool { return false }
	}
	var passed atomic.Int64
	return func(at string) bool {
		if at != point || passed.Add(1) != n {
			return false
		}
		fmt.Fprintln(os.Stderr, what, where)
		_ = syscall.Kill(os.Getpid(), s)
		return true
	}
}

// natsServer is an external NATS server, until it is killed.
func natsServer() int {
	opts, err := server.ProcessConfigFile(os.Getenv(envConf))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	opts.Host, opts.NoSigs = "127.0.0.1", true
	if opts.Port, err = strconv.Atoi(os.Getenv(envPort)); err != nil {
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
	if !ns.ReadyForConnections(patience) {
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

// patience bounds what has no bound of its own in the contract. A healthy machine needs a second or two.
const patience = 60 * time.Second
