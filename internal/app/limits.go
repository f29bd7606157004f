package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/internal/store"
)

// overflowLogEvery is the least time between two log lines about groups with too many live runs.
const overflowLogEvery = 30 * time.Second

// watchOverflows counts runs that are refused because their group has too many live runs, and logs some of them.
func (p *process) watchOverflows(s *store.Store) {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belfry_runs_over_limit_total",
		Help: "Runs that were refused or skipped because their group had max_live_runs unfinished runs, by group and cause.",
	}, []string{"group", "cause"})
	p.registry.MustRegister(refused)
	sometimes := rate.Sometimes{Interval: overflowLogEvery}
	s.OnOverflow(func(ctx context.Context, o store.Overflow) {
		refused.WithLabelValues(o.Group, string(o.Cause)).Add(float64(o.Runs))
		sometimes.Do(func() {
			p.log.WarnContext(ctx, "a group has too many live runs, refusing more", "group", o.Group, "kind", o.Cause, "runs", o.Runs)
		})
	})
}
