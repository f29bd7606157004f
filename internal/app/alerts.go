package app

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/belfryhq/belfry/dispatcher/followup"
	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/alerts"
)

func alertStore(s *store.Store, c config.Alerts) *alerts.Store {
	return alerts.New(s.Pool(), alerts.Config{Key: c.SecretKey.Reveal(), ConsoleURL: c.ConsoleURL, TraceURL: c.TraceURL, Zone: s.Zone()})
}

// addAlerts adds the components that deliver alerts and returns the part that the follow-up workers use.
func (p *process) addAlerts(s *store.Store, c config.Alerts, keep time.Duration) *followup.Alerts {
	kept, sender := alertStore(s, c), alert.NewSender(alert.Config{DenyPrivate: c.AlertDenyPrivate})
	p.hold("alert connections", func(context.Context) error { sender.Close(); return nil })
	p.add("alert sweep", func(ctx context.Context) error { return p.sweepAlerts(ctx, kept, keep) })
	return &followup.Alerts{Store: kept, Sender: sender, Registry: p.registry}
}

// sweepAlerts deletes old alerts every hour.
func (p *process) sweepAlerts(ctx context.Context, kept *alerts.Store, keep time.Duration) error {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := kept.Sweep(ctx, keep); err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "cannot delete old alerts, retrying", "err", err)
		}
	}
}

// consoleAlerts provides alerts to the console.
type consoleAlerts struct {
	*alerts.Store
	sender *alert.Sender
	url    string
}

func newConsoleAlerts(s *store.Store, c config.Alerts) *consoleAlerts {
	return &consoleAlerts{alertStore(s, c), alert.NewSender(alert.Config{DenyPrivate: c.AlertDenyPrivate}), c.ConsoleURL}
}

// Test delivers a test alert through a channel, immediately and without retries.
func (a *consoleAlerts) Test(ctx context.Context, c alert.Channel) (answer string, err error) {
	defer a.sender.Close()
	return a.sender.Send(ctx, &c, alert.Test("test-"+rand.Text(), time.Now(), a.url))
}
