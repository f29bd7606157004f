package app

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/attention"
	"github.com/belfryhq/belfry/internal/store/group"
)

// overflowLogEvery is the least time between two log lines about groups with too many live runs.
const overflowLogEvery = 30 * time.Second

// overflows returns a function that counts runs that are refused because their group has too many live runs, and logs
// some of them.
func (p *process) overflows() func(context.Context, store.Overflow) {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belfry_runs_over_limit_total",
		Help: "Runs that were refused or skipped because their group had max_live_runs unfinished runs, by group and cause.",
	}, []string{"group", "cause"})
	p.registry.MustRegister(refused)
	sometimes := rate.Sometimes{Interval: overflowLogEvery}
	return func(ctx context.Context, o store.Overflow) {
		refused.WithLabelValues(o.Group, string(o.Cause)).Add(float64(o.Runs))
		sometimes.Do(func() {
			p.log.WarnContext(ctx, "a group has too many live runs, refusing more", "group", o.Group, "kind", o.Cause, "runs", o.Runs)
		})
	}
}

const (
	usageEvery  = 15 * time.Second
	usageGroups = 1000 // in the metrics; bounds the number of series
)

// usageMetrics exports each group's use of its limits as metrics. A scrape runs no query.
type usageMetrics struct {
	usage, limit *prometheus.Desc
	mu           sync.Mutex
	groups       map[string]domain.GroupUsage // guarded by mu; replaced as a whole
}

func newUsageMetrics() *usageMetrics {
	labels := []string{"group", "what"}
	return &usageMetrics{
		usage: prometheus.NewDesc("belfry_group_usage", "Usage of a group's limits, for the first 1000 groups by name.", labels, nil),
		limit: prometheus.NewDesc("belfry_group_limit", "Limits of a group, for the first 1000 groups by name.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *usageMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.usage; ch <- m.limit }

// Collect implements prometheus.Collector.
func (m *usageMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	groups := m.groups
	m.mu.Unlock()
	for name, u := range groups {
		for _, v := range u.All() {
			ch <- prometheus.MustNewConstMetric(m.usage, prometheus.GaugeValue, float64(v.Used), name, v.Name)
			ch <- prometheus.MustNewConstMetric(m.limit, prometheus.GaugeValue, float64(v.Limit), name, v.Name)
		}
	}
}

func (m *usageMetrics) set(groups map[string]domain.GroupUsage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups = groups
}

// addUsage adds the component that reports the usage of groups in the metrics, and ends the acknowledgements of the absence of executors in groups
// that have some. instances lists the live instances of a group.
func (p *process) addUsage(groups *group.Store, acks *attention.Store, instances func(group string) []domain.Instance) {
	m := newUsageMetrics()
	p.registry.MustRegister(m)
	p.add("group usage", func(ctx context.Context) error {
		for {
			usages, err := groups.GroupUsages(ctx, usageGroups)
			if err == nil {
				var seen []string
				for name, u := range usages {
					if u.Instances.Used = int64(len(instances(name))); u.Instances.Used > 0 {
						seen = append(seen, name)
					}
					usages[name] = u
				}
				m.set(usages)
				if err := acks.InstancesSeen(ctx, seen); err != nil && ctx.Err() == nil {
					p.log.WarnContext(ctx, "cannot end acknowledgements, retrying", "err", err)
				}
			} else if ctx.Err() == nil {
				p.log.WarnContext(ctx, "cannot read the usage of groups, retrying", "err", err)
			}
			if !lifecycle.Pause(ctx, usageEvery) {
				return nil
			}
		}
	})
}
