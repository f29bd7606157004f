package dispatcher

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	offers     *prometheus.CounterVec
	settled    *prometheus.CounterVec
	finished   *prometheus.CounterVec
	lateness   prometheus.Histogram
	reconciled *prometheus.CounterVec
	lag        prometheus.Gauge
	waiting    *prometheus.GaugeVec
	dead       *prometheus.CounterVec
	pings      *prometheus.CounterVec
	dispatch   *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := metrics{
		offers:     counters("belfry_offers_total", "Attempts offered to instances, by what came of the offer.", "verdict"),
		settled:    counters("belfry_results_total", "Results taken in, by what was done with them.", "disposition"),
		finished:   counters("belfry_runs_finished_total", "Runs that became final, by state.", "state"),
		reconciled: counters("belfry_reconciled_total", "Findings that a reconciler mended, by kind.", "kind"),
		pings:      counters("belfry_pings_total", "Pings to instances for the routes failover and busyover, by answer.", "answer"),
		dead:       counters("belfry_dead_letters_total", "Messages set aside because they could not be taken, by kind.", "kind"),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "belfry_lateness_seconds", Help: "First start minus due instant of runs, by the database's clock.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 3600},
		}),
		dispatch: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "belfry_dispatch_seconds", Help: "From sending a message of offers to its answer, by lane.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2},
		}, []string{"lane"}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{Name: "belfry_results_lag", Help: "Result messages in the stream that are not settled yet."}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "belfry_waiting_runs", Help: "Queued runs that no instance could take yet, by reason.",
		}, []string{"reason"}),
	}
	if reg != nil {
		reg.MustRegister(m.offers, m.settled, m.finished, m.lateness, m.reconciled, m.lag, m.waiting, m.dead, m.pings, m.dispatch)
	}
	return m
}
