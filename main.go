// Belfry is a distributed job scheduler: a bell tower whose bells always ring, on time and once. One binary holds
// all its roles; `belfry --help` lists them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // time zones are known on machines without a zone database

	"github.com/belfryhq/belfry/internal/app"
	"github.com/belfryhq/belfry/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Once stopping has begun, a second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	roles := &app.App{OwnsProcess: true, Stdout: os.Stdout, Stderr: os.Stderr, Version: cli.Version()}
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, roles))
}
