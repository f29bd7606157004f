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
	"github.com/belfryhq/belfry/internal/cli"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/pgtest"
)

// What the test binary is told when it starts itself again.
const (
	envAs       = rig.EnvAs       // "belfry" or "nats"
	envCrashAt  = "E2E_CRASH_AT"  // "bound:3": SIGKILL itself when it comes to the point for the third time
	envFreezeAt = "E2E_FREEZE_AT" // "bound:3": SIGSTOP itself there
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
	roles := &app.App{Stdout: os.Stdout, Stderr: os.Stderr, Version: "e2e", Trace: trace(os.Getenv(envCrashAt), os.Getenv(envFreezeAt))}
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

// patience bounds what has no bound of its own in the contract.
const patience = rig.Patience
