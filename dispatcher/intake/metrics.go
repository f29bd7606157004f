package intake

import "github.com/prometheus/client_golang/prometheus"

// Outcome is the treatment of a message that exceeded its group's share.
type Outcome string

// The outcomes.
const (
	Overflowed Outcome = "overflow"    // a result is in the overflow stream
	NotSettled Outcome = "not_settled" // a result was acknowledged; its executor keeps it and sends it again
	Dropped    Outcome = "dropped"     // log lines were dropped
	OverQuota  Outcome = "over_quota"  // log lines were dropped, because the group has used up its quota of the day
)

// metrics are the metrics of a Fair. The label group has one value for each group whose messages were held.
type metrics struct {
	excess *prometheus.CounterVec
	held   func() map[string]int
	bytes  *prometheus.Desc
}

func newMetrics(kind string, held func() map[string]int, registry prometheus.Registerer) *metrics {
	labels := prometheus.Labels{"kind": kind}
	m := &metrics{
		held: held,
		bytes: prometheus.NewDesc("belfry_group_queue_bytes", "Messages of a group that this dispatcher has fetched and not processed yet, in bytes.",
			[]string{"group"}, labels),
		excess: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_group_excess_total", Help: "Messages beyond a group's share, by what became of them.", ConstLabels: labels,
		}, []string{"group", "outcome"}),
	}
	if registry != nil {
		registry.MustRegister(m, m.excess)
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) { out <- m.bytes }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for group, n := range m.held() {
		out <- prometheus.MustNewConstMetric(m.bytes, prometheus.GaugeValue, float64(n), group)
	}
}

// Count counts messages of a group that exceeded its share, and logs a warning at a limited rate.
func (f *Fair) Count(group string, outcome Outcome, messages int) {
	f.metrics.excess.WithLabelValues(group, string(outcome)).Add(float64(messages))
	if ok, _ := f.warned.allow(group + " " + string(outcome)); ok {
		f.cfg.Log.Warn("a group exceeds its share, other groups are not affected", "kind", f.cfg.Kind, "group", group, "outcome", outcome)
	}
}
