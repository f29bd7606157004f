package app

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/belfryhq/belfry/dispatcher/followup"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/migrations"
)

// restoredBy is recorded as the author of changes by Restored, and restoredReason is the reason of its pauses.
const (
	restoredBy     = "belfry restored"
	restoredReason = "restored from a backup"
)

// Restored records that the database was restored to an earlier state, and prints what is uncertain.
func (a *App) Restored(ctx context.Context, c config.Restored) error {
	url := c.DatabaseURL.Reveal()
	schema, err := store.ReadSchema(ctx, url)
	if err != nil {
		return err
	}
	if err := usable(schema); err != nil {
		return err
	}
	s, err := store.Open(ctx, a.storeConfig(url, config.Pool{}, c.Timing, "restored"))
	if err != nil {
		return err
	}
	defer s.Close()
	q, err := followup.NewQueue(s.Pool(), migrations.RiverSchema, newLog(a.Stderr, c.Log))
	if err != nil {
		return err
	}
	s.UseFollowUps(q) // alerts about the fire times
	var until *time.Time
	if c.Until != nil {
		until = &c.Until.Time
	}
	found, err := s.Restored(ctx, until, restoredBy)
	if err != nil {
		return err
	}
	if err := a.printRestoration(found); err != nil || !c.Pause {
		return err
	}
	n, err := s.PauseAll(ctx, restoredReason, restoredBy)
	if err == nil {
		fmt.Fprintf(a.Stdout, "\nGroups paused: %d. To resume them: belfry group resume --all --reason %q\n", n, restoredReason)
	}
	return err
}

func (a *App) printRestoration(r store.Restoration) error {
	fmt.Fprintf(a.Stdout, "The database has its state of %s. It does not know what ran from then until %s.\n", domain.At(r.From), domain.At(r.To))
	fmt.Fprintf(a.Stdout, "Uncertain fire times: %d of %d jobs. They are in the missed ledger and do not run; `belfry audit` lists them.\n", r.FireTimes, r.Jobs)
	if r.Suspected > 0 {
		fmt.Fprintf(a.Stdout, "Attempts that were sent to an instance and may have run: %d. They count as running until their instances are asked.\n", r.Suspected)
	}
	if len(r.Unfinished) == 0 {
		return nil
	}
	fmt.Fprintln(a.Stdout, "\nUnfinished runs of the restored state. Those that are not running may have run since, and will run:")
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GROUP\tSTATE\tRUNS")
	for _, u := range r.Unfinished {
		state := string(u.State)
		if u.Held {
			state += " (held)"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\n", u.Group, state, u.Runs)
	}
	return w.Flush()
}
