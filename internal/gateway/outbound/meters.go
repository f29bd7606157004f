package outbound

import "github.com/prometheus/client_golang/prometheus"

// meters holds the metrics of a Fleet.
type meters struct {
	answers *prometheus.CounterVec
	lost    prometheus.Counter
}

func newMeters(registry prometheus.Registerer) meters {
	m := meters{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_gateway_requests_total", Help: "Requests to executors of XXL-JOB that start runs, by what is known of them: taken, refused, not_sent or unknown.",
		}, []string{"outcome"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "belfry_gateway_lost_total", Help: "Attempts at executors of XXL-JOB that this gateway declared lost.",
		}),
	}
	if registry != nil {
		registry.MustRegister(m.answers, m.lost)
	}
	return m
}

// meter registers metrics of the addresses.
func (f *Fleet) meter(registry prometheus.Registerer) {
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "belfry_gateway_addresses", Help: "Addresses of XXL-JOB executors that this gateway serves."},
			func() float64 { return float64(len(f.all())) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "belfry_gateway_running", Help: "Slots that are taken at the addresses that this gateway serves."},
			func() float64 {
				n := 0
				for _, t := range f.all() {
					t.mu.Lock()
					n += t.machine.Load().Running
					t.mu.Unlock()
				}
				return float64(n)
			}),
	)
}
