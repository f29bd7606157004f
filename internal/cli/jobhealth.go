package cli

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// healthText says how a job fares in a few words.
func healthText(h *domain.JobHealth) string {
	switch {
	case h == nil:
		return ""
	case h.State == domain.HealthFailing:
		return fmt.Sprintf("failing (%d)", h.Streak)
	}
	return string(h.State)
}

func p95Text(h *domain.JobHealth) string {
	if h == nil {
		return ""
	}
	return millisecondsText(h.P95MS)
}

func millisecondsText(ms *int64) string {
	if ms == nil {
		return ""
	}
	return (time.Duration(*ms) * time.Millisecond).String()
}

// placeText says where a run ran, after a comma.
func placeText(instance, version string) string {
	switch {
	case instance == "":
		return ""
	case version == "":
		return ", on " + instance
	}
	return fmt.Sprintf(", on %s, executor version %s", instance, version)
}

// healthPairs shows how a job fares, in the table of one job.
func healthPairs(t *table, h *domain.JobHealth) {
	if h == nil {
		return
	}
	t.pair("health", healthText(h))
	if h.FailingSince != nil {
		t.pair("failing since", h.FailingSince)
	}
	if s := h.LastSuccess; s != nil {
		t.pair("last success", fmt.Sprintf("%s, run %s, job version %d%s", people(s.At.Time), s.RunID, s.Version, placeText(s.Instance, s.ExecutorVersion)))
	}
	if f := h.LastFailure; f != nil {
		t.pair("last failure", fmt.Sprintf("%s, run %s, job version %d%s, %s: %s", people(f.At.Time), f.RunID, f.Version, placeText(f.Instance, f.ExecutorVersion), f.Reason, shown(f.Message, 200)))
	}
	for _, c := range h.Changes {
		t.pair("changed", c.Text)
	}
	if h.P50MS != nil {
		t.pair("duration", fmt.Sprintf("p50 %s, p95 %s", millisecondsText(h.P50MS), millisecondsText(h.P95MS)))
	}
	t.pair("last 24h", fmt.Sprintf("%d succeeded, %d failed", h.LastDay.Succeeded, h.LastDay.Failed))
}
