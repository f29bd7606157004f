package app

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store"
)

// values returns the values of a metric as lines of text.
func values(t *testing.T, registry *prometheus.Registry, metric string) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != metric {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			lines = append(lines, fmt.Sprintf("%s %v", strings.Join(labels, " "), m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	return strings.Join(lines, ", ")
}

func TestUsageMetrics(t *testing.T) {
	registry, m := prometheus.NewRegistry(), newUsageMetrics()
	registry.MustRegister(m)
	m.set(map[string]domain.GroupUsage{"g": {Jobs: domain.Usage{Used: 3, Limit: 7}}, "gone": {}})
	m.set(map[string]domain.GroupUsage{"g": {Jobs: domain.Usage{Used: 4, Limit: 7}, Instances: domain.Usage{Used: 1, Limit: 2}}})
	const used = "g fires_per_minute 0, g instances 1, g jobs 4, g live_runs 0, g log_bytes_today 0, g script_versions 0"
	if got := values(t, registry, "belfry_group_usage"); got != used {
		t.Errorf("the usage is %s", got)
	}
	const limits = "g fires_per_minute 0, g instances 2, g jobs 7, g live_runs 0, g log_bytes_today 0, g script_versions 0"
	if got := values(t, registry, "belfry_group_limit"); got != limits {
		t.Errorf("the limits are %s", got)
	}
}

func TestOverflowsAreCountedAndSampled(t *testing.T) {
	var log bytes.Buffer
	p := &process{registry: prometheus.NewRegistry(), log: slog.New(slog.NewTextHandler(&log, nil))}
	report := p.overflows()
	for range 3 {
		report(t.Context(), store.Overflow{Group: "g", Cause: domain.CauseEvent, Runs: 2})
	}
	if got := values(t, p.registry, "belfry_runs_over_limit_total"); got != "event g 6" {
		t.Errorf("counted: %s", got)
	}
	if n := strings.Count(log.String(), "too many live runs"); n != 1 {
		t.Errorf("%d lines were logged: %s", n, &log)
	}
}
