//go:build unix

package freezes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// envNotes names the file to which an executor's handlers append a line for each start.
const envNotes = "E2E_NOTES"

// start is one call of a handler, as the handler recorded it. A process may be frozen between the last check and the call of the
// handler, which no executor can exclude. Therefore the promise applies to checked. With entered, the test distinguishes such a
// freeze from a missing check.
type start struct {
	run       string
	attempt   int
	pid       int
	checked   time.Time     // when the executor read its clocks for the last check before the call
	entered   time.Time     // the handler's first instruction
	monotonic time.Duration // CLOCK_MONOTONIC at the handler's first instruction; setting the wall clock does not change it
}

func (s *start) ref() ref { return ref{s.run, s.attempt} }

// ref names an attempt.
type ref struct {
	run     string
	attempt int
}

func (r ref) String() string { return fmt.Sprintf("attempt %d of the run %s", r.attempt, r.run) }

// String returns the line of the start in the file.
func (s *start) String() string {
	return fmt.Sprintf("%s %d %d %d %d %d\n", s.run, s.attempt, s.pid, s.checked.UnixNano(), s.entered.UnixNano(), s.monotonic)
}

// readStart parses a line of the file.
func readStart(line string) (s start, err error) {
	f := strings.Fields(line)
	if len(f) != 6 {
		return s, fmt.Errorf("a line has %d fields: %q", len(f), line)
	}
	var n [6]int64
	for i := 1; i < 6; i++ {
		if n[i], err = strconv.ParseInt(f[i], 10, 64); err != nil {
			return s, fmt.Errorf("field %d of the line %q: %w", i, line, err)
		}
	}
	return start{
		run: f[0], attempt: int(n[1]), pid: int(n[2]), checked: time.Unix(0, n[3]), entered: time.Unix(0, n[4]), monotonic: time.Duration(n[5]),
	}, nil
}

// goExecutor is an instance that uses the SDK. It returns its exit code.
func goExecutor() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	notes, err := os.OpenFile(os.Getenv(envNotes), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	looks := rig.NewLooks(nil)
	e, err := executor.New(executor.Config{
		NATSURL: os.Getenv("BELFRY_NATS_URL"), Token: os.Getenv("BELFRY_TOKEN"), Group: os.Getenv("BELFRY_GROUP"),
		Instance: os.Getenv("BELFRY_INSTANCE"), SpoolDir: os.Getenv("BELFRY_SPOOL_DIR"),
		Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)), Version: "e2e", Clock: looks.Now,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	e.HandleFunc("work", func(ctx context.Context, run executor.Run) error {
		s := start{entered: time.Now(), monotonic: monotonic(), run: run.ID(), attempt: run.Attempt(), pid: os.Getpid()}
		var ok bool
		if s.checked, ok = looks.Taken(); !ok {
			return executor.Permanent(errors.New("the executor called the handler without a look at its clock"))
		}
		if _, err := notes.WriteString(s.String()); err != nil {
			return executor.Permanent(err)
		}
		ms, err := strconv.Atoi(run.Param())
		if err != nil {
			return executor.Permanent(err)
		}
		timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err := e.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
