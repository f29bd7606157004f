package natsauth

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The outcomes of log-ins, as the label of a metric.
const (
	accepted           = "accepted"
	acceptedFromMemory = "accepted_from_memory" // while the Verifier was unavailable
	acceptedObserver   = "observer"             // accepted, without the permissions of an executor
	refusedToken       = "token"
	refusedUnavailable = "unavailable"
	refusedConnections = "max_connections"
	refusedInstances   = "max_instances"
	refusedRate        = "rate"
	refusedName        = "name"    // the client name is meant for an executor, but is not valid
	dropped            = "dropped" // waited too long, or too many waited
	malformed          = "malformed"
)

type metrics struct {
	logins      *prometheus.CounterVec
	ended       *prometheus.CounterVec
	connections *prometheus.GaugeVec
}

// newMetrics registers the metrics of log-ins. A process has one Responder and one Sessions, which share them.
func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		logins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_nats_logins_total", Help: "Log-ins at NATS that this process has answered, by group and outcome. Without a known group, the label is empty.",
		}, []string{"group", "outcome"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_nats_connections_ended_total", Help: "Connections at NATS that this process has ended, by group and reason: token or max_instances.",
		}, []string{"group", "reason"}),
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "belfry_nats_connections", Help: "Open connections with a group's token. Only with a system connection to NATS.",
		}, []string{"group"}),
	}
	if registry != nil {
		registry.MustRegister(m.logins, m.ended, m.connections)
	}
	return m
}

// samples limits the warnings of each group to one in logInterval, so that one group's warnings do not hide those of
// another. It is safe for concurrent use.
type samples struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time
}

const (
	logInterval   = 10 * time.Second
	groupsSampled = 1000 // with further groups, the samples of all groups are cleared
)

func newSamples(log *slog.Logger) *samples {
	return &samples{log: log, last: make(map[string]time.Time)}
}

// warn logs a warning about a group, unless there was one with the same message within logInterval.
func (s *samples) warn(failure, group string, err error, args ...any) {
	now := time.Now()
	s.mu.Lock()
	key := group + "\x00" + failure
	at, ok := s.last[key]
	if ok && now.Sub(at) < logInterval {
		s.mu.Unlock()
		return
	}
	if len(s.last) >= groupsSampled {
		clear(s.last)
	}
	s.last[key] = now
	s.mu.Unlock()
	s.log.Warn(failure, append(args, "group", group, "err", err)...)
}
