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
	envAs      = "E2E_AS"       // "belfry" or "nats"
	envCrashAt = "E2E_CRASH_AT" // "bound:3": SIGKILL itself when it comes to the point for the third time
	envConf    = "E2E_NATS_CONF"
	envPort    = "E2E_NATS_PORT"
)

func TestMain(m *testing.M) {
	switch os.Getenv(envAs) {
	case "belfry":
		os.Exit(belfry())
	case "nats":
		os.Exit(natsServer())
	default:
		// These tests wait far more than they compute, so that more of them fit beside each other than there are
		// cores. The flag of that name, if given, still counts, as flags are parsed after this.
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err) // the testing package has no such flag any more
		}
		pgtest.Main(m)
	}
}

// belfry is main with a way to die on the spot.
func belfry() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	roles := &app.App{Stdout: os.Stdout, Stderr: os.Stderr, Version: "e2e", Trace: crashAt(os.Getenv(envCrashAt))}
	return cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, roles)
}

func crashAt(where string) func(string) {
	point, count, found := strings.Cut(where, ":")
	n, err := strconv.ParseInt(count, 10, 64)
	if !found || err != nil {
		return nil
	}
	var passed atomic.Int64
	return func(at string) {
		if at == point && passed.Add(1) == n {
			fmt.Fprintln(os.Stderr, "killing itself at", where)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal may take a moment, in which nothing more may happen
		}
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

// patience bounds what has no bound of its own in the contract. A healthy machine needs a second or two.
const patience = 60 * time.Second
