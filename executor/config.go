package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

// Config holds the settings of an Executor. NATSURL and Group are required.
type Config struct {
	// NATSURL is one or more NATS server URLs, separated by commas. Required.
	NATSURL string
	// Token is the group's token, as shown when the group was created. It is never logged.
	Token string
	// Group is the executor group that this instance belongs to. Required.
	Group string
	// Instance names this process within its group and must stay the same across restarts: up to 128 letters, digits, _
	// or -. Default: a name that is stored with the spool; see the package comment.
	Instance string
	// Capacity is the number of attempts that may be accepted and running at once: 1 to 65536, default 256.
	Capacity int
	// Labels are shown with the instance: at most 32, keys up to 63 bytes, values up to 255 bytes.
	Labels map[string]string
	// SpoolDir is the parent directory of the result spools. Default: belfry/executor in the user's cache directory, or
	// in the directory for temporary files if the user has no cache directory.
	SpoolDir string
	// SpoolBytes limits the size of the results in the spool. At the limit, the executor refuses offers. Attempts that
	// run at that moment may still exceed it. Default 64 MiB, at least 1 MiB.
	SpoolBytes int64
	// DrainTimeout is the time that running handlers have after Run's context is cancelled. Default 30 s; a negative
	// value means none.
	DrainTimeout time.Duration
	// SettleTimeout is the time that Run then waits until Belfry has settled all results. If the spool does not outlive
	// the process, as in a pod, results that are not settled by then may be lost. Run waits only while it is connected
	// to NATS. Default 30 s; a negative value means that Run waits only until NATS has stored the results.
	SettleTimeout time.Duration
	// Logger receives the executor's messages, and each run's log at level debug. Default: slog.Default().
	Logger *slog.Logger
	// Version is the version of the program. It is shown with the instance.
	Version string
	// NATSOptions are added to the options of the connection, for example TLS or a proxy. They cannot change the
	// options that the wire contract defines: inbox prefix, reconnecting, and handlers of connection events.
	NATSOptions []nats.Option
	// Clock is the wall clock that the executor uses, with the monotonic clock, to judge leases and offers. Default:
	// time.Now. Tests replace it to set a clock forward and back.
	Clock func() time.Time
	// Around, if set, is called instead of each handler, in the handler's goroutine and with the handler's context. It calls
	// handle once, with that context or one derived from it, and returns handle's error. Package executor/otel sets the span
	// of an attempt in this way.
	Around func(ctx context.Context, run Run, handle func(context.Context) error) error
	// Trace, if set, is called at named points, so that a test can stop the process there. The point "due" comes before
	// the executor looks for accepted attempts that are due. The point "start" comes directly before the last check
	// that precedes a handler's call.
	Trace func(point string)
}

const (
	defaultCapacity      = 256
	maxCapacity          = 65536
	defaultSpoolBytes    = 64 << 20
	minSpoolBytes        = 1 << 20
	defaultDrainTimeout  = 30 * time.Second
	defaultSettleTimeout = 30 * time.Second
)

var groupName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// withDefaults fills in the defaults. The error names every fault.
func (c Config) withDefaults() (Config, error) {
	if c.Capacity == 0 {
		c.Capacity = defaultCapacity
	}
	if c.SpoolBytes == 0 {
		c.SpoolBytes = defaultSpoolBytes
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = defaultDrainTimeout
	}
	if c.SettleTimeout == 0 {
		c.SettleTimeout = defaultSettleTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.SpoolDir == "" {
		c.SpoolDir = defaultSpoolDir()
	}
	return c, c.validate()
}

func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("executor: "+format, args...)) }
	if c.NATSURL == "" {
		fault("Config.NATSURL is required")
	}
	if !groupName.MatchString(c.Group) {
		fault("Config.Group %q is not a group name: 1 to 63 characters, a-z, 0-9, _ or -, the first a letter or digit", c.Group)
	}
	if c.Instance != "" && !wire.ValidInstance(c.Instance) {
		fault("Config.Instance %q is not an instance name: 1 to 128 letters, digits, _ or -, the first a letter or digit", c.Instance)
	}
	if c.Capacity < 1 || c.Capacity > maxCapacity {
		fault("Config.Capacity is %d; it is 1 to %d", c.Capacity, maxCapacity)
	}
	if c.SpoolBytes < minSpoolBytes {
		fault("Config.SpoolBytes is %d; it is at least %d", c.SpoolBytes, minSpoolBytes)
	}
	if len(c.Labels) > 32 {
		fault("Config.Labels has %d labels; at most 32 are allowed", len(c.Labels))
	}
	for k, v := range c.Labels {
		if k == "" || len(k) > 63 || len(v) > 255 {
			fault("Config.Labels: %q: a key has 1 to 63 bytes, a value up to 255", k)
		}
	}
	return errors.Join(faults...)
}

func defaultSpoolDir() string {
	base, err := os.UserCacheDir()
	if err != nil { // an account without a home directory
		base = os.TempDir()
	}
	return filepath.Join(base, "belfry", "executor")
}
