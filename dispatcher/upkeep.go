package dispatcher

import (
	"context"
	"log/slog"
	"time"

	"github.com/belfryhq/belfry/dispatcher/glance"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// UpkeepStore defines the database operations that the upkeep needs.
type UpkeepStore interface {
	Now() time.Time // the database's clock
	MakeDays(ctx context.Context, days []time.Time) error
	Vacuum(ctx context.Context, many bool) error
	// TendUsage and CountLiveRuns maintain the usage of groups.
	TendUsage(ctx context.Context) error
	CountLiveRuns(ctx context.Context) error
}

// upkeep maintains the database: it creates partitions for the next days, vacuums the hot tables, and maintains the usage of groups.
type upkeep struct {
	store UpkeepStore
	look  *glance.Glance
	log   *slog.Logger
}

const (
	daysCheck    = 10 * time.Second
	daysPeriod   = time.Hour
	daysAhead    = 4
	vacuumPeriod = 2 * time.Second
	usagePeriod  = 30 * time.Second
	countPeriod  = time.Second
)

func (u upkeep) daysLoop(ctx context.Context) {
	var made time.Time
	for lifecycle.Rest(ctx, daysCheck) {
		now := u.store.Now()
		if now.Sub(made) <= daysPeriod {
			continue
		}
		var days []time.Time
		for i := range daysAhead {
			days = append(days, now.AddDate(0, 0, i))
		}
		if err := u.store.MakeDays(ctx, days); err != nil {
			u.warn(ctx, "cannot create the partitions of the next days, retrying", err)
			continue
		}
		made = now
	}
}

func (u upkeep) vacuumLoop(ctx context.Context) {
	for lifecycle.Rest(ctx, vacuumPeriod) {
		g, err := u.look.Look(ctx)
		if err == nil && g.Dead {
			err = u.store.Vacuum(ctx, g.ManyDead)
		}
		if err != nil {
			u.warn(ctx, "cannot vacuum the hot tables, retrying", err)
		}
	}
}

func (u upkeep) usageLoop(ctx context.Context) {
	for lifecycle.Rest(ctx, usagePeriod) {
		if err := u.store.TendUsage(ctx); err != nil {
			u.warn(ctx, "cannot maintain the usage of groups, retrying", err)
		}
	}
}

func (u upkeep) countLoop(ctx context.Context) {
	for lifecycle.Rest(ctx, countPeriod) {
		g, err := u.look.Look(ctx)
		if err == nil && g.Live {
			err = u.store.CountLiveRuns(ctx)
		}
		if err != nil {
			u.warn(ctx, "cannot count the live runs of groups, retrying", err)
		}
	}
}

func (u upkeep) warn(ctx context.Context, failure string, err error) {
	if ctx.Err() == nil {
		u.log.WarnContext(ctx, failure, "err", err)
	}
}
