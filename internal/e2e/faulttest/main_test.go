//go:build unix

package faulttest

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/belfryhq/belfry/internal/app"
	"github.com/belfryhq/belfry/internal/cli"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// What the test binary is told when it starts itself again, beside as what.
const (
	envClock = "E2E_CLOCK" // file with the milliseconds by which the process's wall clock is wrong, at any moment
	envNotes = "E2E_NOTES" // file into which an executor writes what its handlers do
)

func TestMain(m *testing.M) {
	switch os.Getenv(rig.EnvAs) {
	case "belfry":
		os.Exit(belfry())
	case "nats":
		os.Exit(rig.NATSServer())
	case "executor":
		os.Exit(testExecutor())
	}
	os.Exit(m.Run())
}

// belfry is main with a clock that may be wrong.
func belfry() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	roles := &app.App{Stdout: os.Stdout, Stderr: os.Stderr, Version: "e2e", Clock: wrongClock(os.Getenv(envClock))}
	return cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, roles)
}
