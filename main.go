// Belfry is a distributed job scheduler. One binary contains all its roles; `belfry --help` lists them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // for machines without a zone database

	"github.com/belfryhq/belfry/internal/app"
	"github.com/belfryhq/belfry/internal/build"
	"github.com/belfryhq/belfry/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// During a stop, a second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	roles := &app.App{OwnsProcess: true, Stdout: os.Stdout, Stderr: os.Stderr, Build: build.Read()}
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, roles))
}
