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

	"github.com/belfryhq/belfry/internal/app"
	"github.com/belfryhq/belfry/internal/build"
	"github.com/belfryhq/belfry/internal/cli"
	"github.com/belfryhq/belfry/internal/e2e/hostile"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/pgtest"
)

// Environment variables of the processes that the test binary starts.
const (
	envAs       = rig.EnvAs       // "belfry" or "nats"
	envCrashAt  = "E2E_CRASH_AT"  // "bound:3": send SIGKILL to itself when it reaches the point bound for the third time
	envFreezeAt = "E2E_FREEZE_AT" // "bound:3": send SIGSTOP to itself there
)

func TestMain(m *testing.M) {
	switch os.Getenv(envAs) {
	case "belfry":
		os.Exit(belfry())
	case "nats":
		os.Exit(rig.NATSServer())
	case "nats-pub":
		os.Exit(natsPub())
	case "curl":
		os.Exit(curl())
	case "hostile":
		os.Exit(attack())
	default:
		// These tests mostly wait, so more of them can run at a time than there are cores. A -parallel flag overrides this, because
		// flags are parsed later.
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err) // package testing no longer has this flag
		}
		pgtest.Main(m)
	}
}

// belfry runs the command line. The process can kill or freeze itself at named points.
func belfry() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	roles := &app.App{OwnsProcess: true, Stdout: os.Stdout, Stderr: os.Stderr, Build: build.Info{Version: "e2e"}, Trace: trace(os.Getenv(envCrashAt), os.Getenv(envFreezeAt))}
	return cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, roles)
}

// attack runs a hostile client.
func attack() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return hostile.Main(ctx)
}

// trace returns a dispatcher.Config.Trace that kills or freezes the process at the given points.
func trace(crashAt, freezeAt string) func(string) {
	crash := signalAt(crashAt, "killing itself at", syscall.SIGKILL)
	freeze := signalAt(freezeAt, "freezing itself at", syscall.SIGSTOP)
	return func(at string) {
		if crash(at) {
			select {} // the signal may arrive a little later, and nothing more may happen until then
		}
		if freeze(at) {
			<-time.After(100 * time.Millisecond) // as above; when the process resumes, this time has passed
		}
	}
}

// signalAt returns a function that is called at each point of the process's work. It sends the signal when the process reaches
// the point the given number of times, such as "bound:3", and reports whether it did.
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

// patience bounds waits for events that have no bound in the contract.
const patience = rig.Patience
