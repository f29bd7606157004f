// Package verdict finds out what happened to bound attempts about which no message arrived.
//
// A Judge asks live instances about such attempts, and declares the attempts of dead instances lost. The proof that a lost
// attempt never starts is in package dispatcher, under "The fence".
package verdict

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/belfryhq/belfry/dispatcher/fire"
	"github.com/belfryhq/belfry/dispatcher/glance"
	"github.com/belfryhq/belfry/dispatcher/offer"
	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/results"
	"github.com/belfryhq/belfry/dispatcher/roster"
	"github.com/belfryhq/belfry/dispatcher/settle"
	"github.com/belfryhq/belfry/dispatcher/waiting"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Store defines the database operations that the judge needs.
type Store interface {
	Now() time.Time // the database's clock
	Silent(ctx context.Context, groups []string, after time.Duration, limit int) ([]engine.LiveRun, error)
	BoundBoots(ctx context.Context, silentAfter time.Duration) ([]engine.BoundBoot, error)
	RunsOf(ctx context.Context, b engine.BoundBoot, after domain.RunID, limit int) ([]engine.LiveRun, error)
	RaiseBinds(ctx context.Context, runs []engine.LiveRun) ([]engine.LiveRun, error)
}

// Config holds the dependencies and settings of a Judge. All fields but LostAfter are required.
type Config struct {
	Store    Store
	Peers    *peer.Peers
	Roster   *roster.Roster
	Sender   *offer.Sender
	Firer    *fire.Firer
	Recorder *settle.Recorder
	Results  *results.Consumer
	Waiting  *waiting.Kinds
	Glance   *glance.Glance
	Log      *slog.Logger
	// LostAfter is the time from an instance's death within which its attempts are declared lost. Values below 15 s count as
	// 15 s.
	LostAfter time.Duration
}

// Judge asks about attempts. Create one with New and call Run.
type Judge struct {
	Config
	bound    bound
	silent   *peer.Lanes                    // of askSilent
	running  *peer.Lanes                    // of askRunning
	deaths   *peer.Lanes                    // of judgeDeaths
	doubts   *peer.Lanes                    // of judgeSuspects
	left     *peer.Lanes                    // of routeLeft
	missing  map[engine.BoundBoot]time.Time // since when boots with runs are not live in the roster; only judgeDeaths uses it
	suspects map[engine.BoundBoot]*suspect  // only judgeSuspects uses it
	patient  time.Duration                  // the part of LostAfter beyond minLostAfter
}

// New returns a judge.
func New(cfg Config) *Judge {
	return &Judge{
		Config: cfg, bound: newBound(), silent: peer.NewLanes(), running: peer.NewLanes(), deaths: peer.NewLanes(), doubts: peer.NewLanes(),
		left: peer.NewLanes(), missing: make(map[engine.BoundBoot]time.Time), suspects: make(map[engine.BoundBoot]*suspect), patient: max(cfg.LostAfter-minLostAfter, 0),
	}
}

// Run asks instances and gives verdicts until ctx ends. Each kind of question has its own loop, and in a loop each group has its own
// lane, because questions wait for answers.
func (j *Judge) Run(ctx context.Context) {
	defer j.keepSuspects(nil)
	every := func(period time.Duration, failure string, lanes *peer.Lanes, f func(context.Context) error) func(context.Context) {
		return func(ctx context.Context) {
			defer lanes.Wait()
			for lifecycle.Rest(ctx, period) {
				if err := errors.Join(f(ctx), lanes.Err()); err != nil && ctx.Err() == nil {
					j.Log.WarnContext(ctx, failure, "err", err)
				}
			}
		}
	}
	lifecycle.Together(ctx,
		every(time.Second, "cannot find offers without an answer, retrying", j.silent, j.askSilent),
		every(250*time.Millisecond, "cannot route attempts of stopped instances again, retrying", j.left, j.routeLeft),
		every(5*time.Second, "cannot find running attempts, retrying", j.running, j.askRunning),
		every(time.Second, "cannot judge whether instances are dead, retrying", j.deaths, j.judgeDeaths),
		every(500*time.Millisecond, "cannot judge whether suspects are dead, retrying", j.doubts, j.judgeSuspects),
	)
}

// bound caches the list of boots with runs for the loops of the judge. The loop that asks about silent runs reads a new list in
// each pass. The other loops use the cached list while it is recent.
type bound struct {
	turn  chan struct{} // holds a token while no loop reads; the token guards the other fields
	boots []engine.BoundBoot
	at    time.Time
	read  time.Time // when the boots were last read, and not only a glance was taken
}

// rereadEvery is how often the list is read although a glance shows no bound runs.
const rereadEvery = 10 * time.Second

func newBound() bound {
	b := bound{turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b
}

// recent is the maximum age of a cached list. It is a little more than the period of the loop that reads a new one each time.
const recent = 1200 * time.Millisecond

// boundBoots returns the boots that runs are bound to. It reads a new list if the age of the cached one is at least old.
func (j *Judge) boundBoots(ctx context.Context, old time.Duration) ([]engine.BoundBoot, error) {
	select {
	case <-j.bound.turn:
		defer func() { j.bound.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if time.Since(j.bound.at) < old {
		return j.bound.boots, nil
	}
	g, err := j.Glance.Look(ctx)
	if err != nil {
		return nil, err
	}
	// The glance shows runs that are due by the database's clock. If this clock was set back, there can be others.
	if !g.Bound && len(j.bound.boots) == 0 && time.Since(j.bound.read) < rereadEvery {
		j.bound.at = time.Now()
		return nil, nil
	}
	boots, err := j.Store.BoundBoots(ctx, j.leastSilent(j.bound.boots))
	if err == nil {
		j.bound.boots, j.bound.at, j.bound.read = boots, time.Now(), time.Now()
	}
	return boots, err
}

// Overdue returns the groups with bound runs that are past their timeout and the grace period.
func (j *Judge) Overdue(ctx context.Context) ([]string, error) {
	boots, err := j.boundBoots(ctx, recent)
	return slices.Collect(maps.Keys(counted(boots, func(b engine.BoundBoot) int { return b.Overdue }))), err
}

// counted sums a number of boots by group, without groups whose sum is zero.
func counted(boots []engine.BoundBoot, number func(engine.BoundBoot) int) map[string]int {
	out := make(map[string]int)
	for _, b := range boots {
		if n := number(b); n > 0 {
			out[b.Group] += n
		}
	}
	return out
}
