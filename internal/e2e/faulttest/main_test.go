//go:build unix

package faulttest

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/belfryhq/belfry/internal/app"
	"github.com/belfryhq/belfry/internal/build"
	"github.com/belfryhq/belfry/internal/cli"
	"github.com/belfryhq/belfry/internal/e2e/hostile"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// Environment variables of the processes that the test binary starts, in addition to rig.EnvAs.
const (
	envClock = "E2E_CLOCK" // file with the error of the process's wall clock in milliseconds
	envNotes = "E2E_NOTES" // file to which an executor's handlers write their starts and ends
)

func TestMain(m *testing.M) {
	switch os.Getenv(rig.EnvAs) {
	case "belfry":
		os.Exit(belfry())
	case "nats":
		os.Exit(rig.NATSServer())
	case "executor":
		os.Exit(testExecutor())
	case "hostile":
		os.Exit(attack())
	}
	os.Exit(m.Run())
}

// attack runs a hostile client.
func attack() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return hostile.Main(ctx)
}

// belfry runs the command line with a clock that the test can shift.
func belfry() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	roles := &app.App{OwnsProcess: true, Stdout: os.Stdout, Stderr: os.Stderr, Build: build.Info{Version: "e2e"}, Clock: wrongClock(os.Getenv(envClock))}
	return cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, roles)
}
