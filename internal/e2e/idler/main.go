// Idler is the smallest program that uses package executor. A test measures its memory, which is the memory cost of the SDK.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/belfryhq/belfry/executor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	e, err := executor.New(executor.Config{
		NATSURL: os.Getenv("BELFRY_NATS_URL"), Token: os.Getenv("BELFRY_TOKEN"), Group: "g", Instance: "idler", SpoolDir: os.Getenv("IDLER_SPOOL"),
	})
	if err == nil {
		e.HandleFunc("noop", func(context.Context, executor.Run) error { return nil })
		err = e.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
