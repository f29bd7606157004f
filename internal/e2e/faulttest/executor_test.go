//go:build unix

package faulttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/scripts"
	"github.com/belfryhq/belfry/internal/e2e/checker"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// wrongClock returns a wall clock with the error that a file contains, or nil if file is "". It reads the file every 50 ms, so that a
// test can shift the clock of a running process.
func wrongClock(file string) func() time.Time {
	if file == "" {
		return nil
	}
	var wrong atomic.Int64
	read := func() {
		text, err := os.ReadFile(file)
		if err != nil {
			return // without a file the clock is right
		}
		if ms, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			wrong.Store(ms)
		}
	}
	read()
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			read()
		}
	}()
	return func() time.Time {
		now := time.Now()
		if ms := wrong.Load(); ms != 0 {
			return now.Round(0).Add(time.Duration(ms) * time.Millisecond)
		}
		return now
	}
}

// work is the param of the fault test's handler.
type work struct {
	MS        int    `json:"ms"`                  // shortest duration
	MSMax     int    `json:"ms_max,omitempty"`    // longest duration; 0 means MS
	Fail      int    `json:"fail,omitempty"`      // percent
	Permanent int    `json:"permanent,omitempty"` // percent
	Panic     int    `json:"panic,omitempty"`     // percent
	Tag       string `json:"tag,omitempty"`
}

func (w work) String() string {
	data, err := json.Marshal(w)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return string(data)
}

// testExecutor runs an executor whose handlers write their starts and ends to a file, with the machine's clock.
func testExecutor() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	notes, err := os.OpenFile(os.Getenv(envNotes), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	looks := rig.NewLooks(wrongClock(os.Getenv(envClock)))
	e, err := executor.New(executor.Config{
		NATSURL: os.Getenv("BELFRY_NATS_URL"), Token: os.Getenv("BELFRY_TOKEN"), Group: os.Getenv("BELFRY_GROUP"),
		Instance: os.Getenv("BELFRY_INSTANCE"), SpoolDir: os.Getenv("BELFRY_SPOOL_DIR"), DrainTimeout: time.Second,
		Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)), Version: "e2e", Clock: looks.Now,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	sh, err := scripts.New(scripts.Options{Languages: []string{"sh"}, Dir: os.Getenv("BELFRY_SPOOL_DIR")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	boot := strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	n := &noted{file: notes, boot: boot, looks: looks}
	e.HandleFunc("work", func(ctx context.Context, run executor.Run) error { return doWork(ctx, run, n) })
	e.RegisterScripts(notedScripts{sh, n}, "sh")
	if err := e.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// noted writes the notes of an executor's handlers.
type noted struct {
	file  *os.File
	boot  string
	looks *rig.Looks
}

// start writes the start of a call. Its instant is the executor's last reading of its clocks, which decided that the attempt may
// start. The process may have been frozen since then.
func (n *noted) start(run executor.Run) error {
	at, ok := n.looks.Taken()
	if !ok {
		at = time.Now()
	}
	return checker.WriteStart(n.file, run.ID(), run.Attempt(), n.boot, at)
}

func (n *noted) end(run executor.Run, outcome string) error {
	return checker.WriteEnd(n.file, run.ID(), run.Attempt(), n.boot, time.Now(), outcome)
}

// notedScripts runs scripts and writes their starts and ends.
type notedScripts struct {
	*scripts.Runner
	notes *noted
}

// RunScript implements executor.ScriptRunner.
func (n notedScripts) RunScript(ctx context.Context, run executor.Run, script executor.Script) error {
	if err := n.notes.start(run); err != nil {
		return err
	}
	err := n.Runner.RunScript(ctx, run, script)
	outcome := checker.OK
	switch {
	case errors.Is(err, executor.ErrKilled), errors.Is(err, executor.ErrDrained):
		outcome = checker.Cancelled
	case err != nil:
		outcome = checker.Error
	}
	return errors.Join(err, n.notes.end(run, outcome))
}

var errBadLuck = errors.New("bad luck")

// doWork does what the param says. Its random choices depend only on the run and the attempt.
func doWork(ctx context.Context, run executor.Run, notes *noted) (err error) {
	if err := notes.start(run); err != nil {
		return err
	}
	ended := func(outcome string) {
		err = errors.Join(err, notes.end(run, outcome))
	}
	var w work
	if err := json.Unmarshal([]byte(run.Param()), &w); err != nil {
		ended(checker.Permanent)
		return executor.Permanent(err)
	}
	hash := fnv.New64a()
	fmt.Fprint(hash, run.ID())
	random := rand.New(rand.NewPCG(hash.Sum64(), uint64(run.Attempt())))
	ms := w.MS
	if w.MSMax > ms {
		ms += random.IntN(w.MSMax - ms)
	}
	if random.IntN(10) == 0 {
		run.Log().Info("working", "ms", ms)
	}
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		ended(checker.Cancelled)
		return ctx.Err()
	}
	switch luck := random.IntN(100); {
	case luck < w.Panic:
		ended(checker.Panic)
		panic("very bad luck")
	case luck < w.Panic+w.Permanent:
		ended(checker.Permanent)
		return executor.Permanent(errBadLuck)
	case luck < w.Panic+w.Permanent+w.Fail:
		ended(checker.Error)
		return errBadLuck
	}
	if err := run.SetOutput(run.ID()); err != nil {
		return err
	}
	ended(checker.OK)
	return err
}
