package scheduler

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	fires, missed, misfired, stranded, refused prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, ringSize func() float64) metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := metrics{
		fires:    counter("belfry_fires_total", "Runs handed to Fire at their due instant."),
		missed:   counter("belfry_missed_total", "Fire times recorded in the missed ledger."),
		misfired: counter("belfry_misfired_total", "Runs planned by a misfire policy in place of stranded runs."),
		stranded: counter("belfry_stranded_total", "Planned runs taken over from another scheduler that did not fire them."),
		refused:  counter("belfry_ring_refused_total", "Runs refused by a full ring; they are taken over later as stranded."),
	}
	if reg != nil {
		reg.MustRegister(m.fires, m.missed, m.misfired, m.stranded, m.refused, prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "belfry_ring_size", Help: "Runs in this scheduler's time ring."}, ringSize))
	}
	return m
}
