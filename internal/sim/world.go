package sim

import (
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/internal/sim/memstore"
	"github.com/belfryhq/belfry/internal/sim/simnats"
)

// World is one simulated cluster with everything that acts on it and observes it.
type World struct {
	*journal
	seed     uint64
	plan     plan
	dir      string // of the spools
	dice     *dice
	faults   *faults
	db       *memstore.DB
	nats     *simnats.Server
	cluster  *cluster
	handlers *handlers
	user     *user
	nemesis  *nemesis
	working  atomic.Int64 // the number of follow-ups that a worker has taken
	healedAt time.Time    // when the last fault ended
}

// newWorld creates a cluster that is not started. Its files are in subdirectories of dir.
func newWorld(seed uint64, dir string) *World {
	w := &World{
		journal: &journal{began: time.Now()}, seed: seed, plan: newPlan(seed), dir: dir, dice: newDice(seed), db: memstore.New(),
		cluster: &cluster{},
	}
	w.faults = &faults{dice: w.dice}
	w.handlers = newHandlers(w.journal, seed)
	w.user = newUser(w.journal, w.db, w.cluster)
	w.nats = simnats.New(w.faults, func(m simnats.Message) {
		w.message(m)
		w.cluster.springTraps(m)
	})
	w.nemesis = &nemesis{journal: w.journal, cluster: w.cluster, faults: w.faults, nats: w.nats}
	for _, n := range w.plan.nodes {
		w.cluster.nodes = append(w.cluster.nodes, &node{w: w, name: n.name, role: n.role, group: n.group})
	}
	return w
}

// Run starts the cluster, loads and breaks it, heals it, waits until no work is left, and checks the promises.
func (w *World) Run() {
	w.cluster.start()
	w.user.create(w.plan.jobs)
	for _, s := range w.plan.steps {
		w.nemesis.steps.Go(func() {
			time.Sleep(time.Until(w.began.Add(s.at)))
			s.do(w)
		})
	}
	time.Sleep(loadFor)
	w.nemesis.heal()
	w.nemesis.steps.Wait()
	w.nemesis.heal() // again, because a step may have broken something while it ended
	w.healedAt = time.Now()
	time.Sleep(recoverFor)
	w.user.disableAll()
	w.awaitQuiet()
	if taken := w.cluster.slotsReleased(); len(taken) > 0 {
		w.fail("all runs are final, and slots are taken: %v", taken)
	}
	w.cluster.stop()
	w.nats.Close()
	w.check()
}

// The periods of a world.
const (
	loadFor    = 40 * time.Second
	recoverFor = 10 * time.Second // from the end of the faults to the end of the load
	quietFor   = 3 * time.Second
	quietMax   = 5 * time.Minute
)

// awaitQuiet waits until nothing is left to do.
func (w *World) awaitQuiet() {
	quiet := time.Time{}
	for deadline := time.Now().Add(quietMax); time.Now().Before(deadline); time.Sleep(250 * time.Millisecond) {
		if w.db.Unfinished() > 0 || w.db.FollowUps() > 0 || w.working.Load() > 0 || w.nats.Stored("BELFRY_RESULTS")+w.nats.Stored("BELFRY_OVERFLOW") > 0 || w.handlers.running() > 0 {
			quiet = time.Time{}
			continue
		}
		if quiet.IsZero() {
			quiet = time.Now()
		}
		if time.Since(quiet) >= quietFor {
			return
		}
	}
}
