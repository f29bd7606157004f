//go:build unix

package freezes

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/belfryhq/belfry/internal/app"
	"github.com/belfryhq/belfry/internal/build"
	"github.com/belfryhq/belfry/internal/cli"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/pgtest"
)

func TestMain(m *testing.M) {
	switch os.Getenv(rig.EnvAs) {
	case "belfry":
		os.Exit(belfry())
	case "nats":
		os.Exit(rig.NATSServer())
	case "executor":
		os.Exit(goExecutor())
	}
	pgtest.Main(m)
}

func belfry() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	roles := &app.App{OwnsProcess: true, Stdout: os.Stdout, Stderr: os.Stderr, Build: build.Info{Version: "e2e"}}
	return cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, roles)
}
