package executor

import (
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

// Config says whom an Executor connects to, as what, and how much it takes. NATSURL and Group are required.
type Config struct {
	// NATSURL is one or more NATS server URLs, with commas between them. Required.
	NATSURL string
	// Token is the group's token, as shown when the group was made. It is never logged.
	Token string
	// Group is the executor group that this instance belongs to. Required.
	Group string
	// Instance names this process within its group, stable over restarts: up to 128 letters, digits, _ or -.
	// Default: a name kept with the spool; see the package comment.
	Instance string
	// Capacity is the number of attempts that may be accepted and running at once: 1 to 65536, default 256.
	Capacity int
	// Labels are shown beside the instance: at most 32, keys up to 63 bytes, values up to 255.
	Labels map[string]string
	// SpoolDir is the directory below which results wait until they are settled. Default: belfry/executor in
	// the user's cache directory, or in the directory for temporary files where there is none.
	SpoolDir string
	// SpoolBytes bounds the results that wait; beyond it offers are refused. Default 64 MiB, at least 1 MiB.
	// Results of what runs at that moment may still exceed it.
	SpoolBytes int64
	// DrainTimeout is how long running handlers may go on after Run's context is cancelled. Default 30 s;
	// negative means none.
	DrainTimeout time.Duration
	// Logger takes what the executor itself has to say, and each run's log at level debug. Default: slog.Default().
	Logger *slog.Logger
	// Version is the program's own version, shown beside the instance.
	Version string
	// NATSOptions are added to the connection's: TLS, a proxy. Those that the wire contract fixes (inbox prefix,
	// reconnecting, handlers of connection events) cannot be changed by them.
	NATSOptions []nats.Option
	// Clock is the wall clock by which leases and offers are judged, beside the monotonic one. Default: time.Now. It is
	// there for tests, which set a clock forward and back.
	Clock func() time.Time
	// Trace, if set, is called at named points, so that a test can stop the process there: "due" before the executor looks
	// which accepted attempts are due, "start" directly before the last check that precedes a handler's call.
	Trace func(point string)
}

const (
	defaultCapacity     = 256
	maxCapacity         = 65536
	defaultSpoolBytes   = 64 << 20
	minSpoolBytes       = 1 << 20
	defaultDrainTimeout = 30 * time.Second
)

var groupName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// withDefaults fills in what was left out and names every fault at once.
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
		fault("Config.Labels has %d labels; at most 32 are taken", len(c.Labels))
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
	if err != nil { // an account without a home
		base = os.TempDir()
	}
	return filepath.Join(base, "belfry", "executor")
}
