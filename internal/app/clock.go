package app

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store"
)

// unrecordedMax is how many disturbances wait at most until Postgres can record them. There is one for each outage.
const unrecordedMax = 16

// clockWatch reports the disturbances that a process notices: it logs and counts them, and records them for the fire check.
type clockWatch struct {
	*process
	store      *store.Store
	schedules  bool // only schedulers report an absence of Postgres, because only they are late because of it
	steps      prometheus.Counter
	unrecorded chan domain.Disturbance
}

// addClock adds the component that tracks the database clock and reports its steps. schedules says that the process is a scheduler.
func (p *process) addClock(s *store.Store, schedules bool) {
	w := &clockWatch{
		process: p, store: s, schedules: schedules, unrecorded: make(chan domain.Disturbance, unrecordedMax),
		steps: prometheus.NewCounter(prometheus.CounterOpts{Name: "belfry_clock_steps_total", Help: "Steps of the database's clock that this process has noticed."}),
	}
	p.registry.MustRegister(w.steps, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "belfry_clock_offset_seconds", Help: "This process's wall clock minus the database's clock.",
	}, func() float64 { return s.ClockOffset().Seconds() }))
	p.add("database clock", func(ctx context.Context) error {
		s.KeepClock(ctx, func(err error) {
			p.log.WarnContext(ctx, "cannot read the database clock, retrying", "err", err)
		}, func(d domain.Disturbance) { w.noticed(ctx, d) })
		return nil
	})
	p.add("disturbances", w.record)
}

func (w *clockWatch) noticed(ctx context.Context, d domain.Disturbance) {
	switch {
	case d.Kind == domain.PostgresAway && !w.schedules:
		return
	case d.Kind == domain.PostgresAway:
		w.log.WarnContext(ctx, "Postgres was unavailable, fire times since then follow the misfire policies of their jobs", "took", d.To.Sub(d.From).Round(time.Millisecond).String())
	case d.Back():
		w.log.WarnContext(ctx, "the database's clock stepped back, nothing fires until it has reached the time of the next fire", "step", d.Step.String())
	default:
		w.log.WarnContext(ctx, "the database's clock stepped forward, fire times in between are late and follow the misfire policies of their jobs", "step", d.Step.String())
	}
	if d.Kind == domain.ClockStep {
		w.steps.Inc()
	}
	select {
	case w.unrecorded <- d:
	default: // Postgres has been unavailable since many disturbances
	}
}

// record writes disturbances to Postgres, and retries until it succeeds.
func (w *clockWatch) record(ctx context.Context) error {
	by := w.name()
	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-w.unrecorded:
			for failed := false; ; failed = true {
				err := w.store.RecordDisturbance(ctx, d, by)
				if err == nil || ctx.Err() != nil {
					break
				}
				if !failed {
					w.log.WarnContext(ctx, "cannot record a disturbance for the fire check, retrying", "err", err)
				}
				if !lifecycle.Pause(ctx, time.Second) {
					return nil
				}
			}
		}
	}
}

// name returns the host and id of this process.
func (p *process) name() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}
