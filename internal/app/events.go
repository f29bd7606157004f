package app

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher"
	"github.com/belfryhq/belfry/dispatcher/events"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/store"
	storeevent "github.com/belfryhq/belfry/internal/store/event"
)

// meteredEvents is an event store that counts accepted events.
type meteredEvents struct {
	*storeevent.Store
	accepted   *prometheus.CounterVec
	deliveries *prometheus.CounterVec
}

// useEvents creates the event store that the console and the dispatcher share. Further calls do nothing.
func (p *process) useEvents(s *store.Store) error {
	if p.events != nil {
		return nil
	}
	kept, err := storeevent.New(s)
	if err != nil {
		return err
	}
	p.events = &meteredEvents{
		Store: kept,
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_events_total", Help: "Received events, by the way they arrived and whether they were accepted or repeated."}, []string{"via", "kind"}),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_event_deliveries_total", Help: "Deliveries of accepted events to event triggers, by outcome."}, []string{"outcome"}),
	}
	for _, outcome := range event.DeliveryOutcomes {
		p.events.deliveries.WithLabelValues(string(outcome))
	}
	p.registry.MustRegister(p.events.accepted, p.events.deliveries)
	return nil
}

// Accept accepts events and counts them in the metrics.
func (m *meteredEvents) Accept(ctx context.Context, in []event.Incoming) ([]storeevent.Accepted, error) {
	out, err := m.Store.Accept(ctx, in)
	for i, e := range out {
		if e.Repeated {
			m.accepted.WithLabelValues(string(in[i].Via), "repeated").Inc()
			continue
		}
		m.accepted.WithLabelValues(string(in[i].Via), "accepted").Inc()
		for _, d := range e.Deliveries {
			m.deliveries.WithLabelValues(string(d.Outcome)).Inc()
		}
	}
	return out, err
}

// AcceptEvents implements events.Store.
func (m *meteredEvents) AcceptEvents(ctx context.Context, in []event.Incoming) error {
	_, err := m.Accept(ctx, in)
	return err
}

// addEvents adds the component that receives events from NATS.
func (p *process) addEvents(d *dispatcher.Firing, js jetstream.JetStream) {
	p.add("events", events.New(events.Config{JetStream: js, Store: p.events, SetAside: d.SetAside, Log: p.log, Registry: p.registry}).Run)
}
