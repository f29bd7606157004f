// Package assign gives waiting runs to instances when there is room.
package assign

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/divide"
	"github.com/belfryhq/belfry/dispatcher/fire"
	"github.com/belfryhq/belfry/dispatcher/glance"
	"github.com/belfryhq/belfry/dispatcher/offer"
	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/roster"
	"github.com/belfryhq/belfry/dispatcher/route"
	"github.com/belfryhq/belfry/dispatcher/settle"
	"github.com/belfryhq/belfry/dispatcher/waiting"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Store defines the database operations that the assigner needs.
type Store interface {
	WaitingKeys(ctx context.Context) ([]engine.WaitingKey, error)
	WaitingCounts(ctx context.Context) (map[explain.Code]int, error)
	AssignWaiting(ctx context.Context, key engine.WaitingKey, limit int, choose func([]engine.WaitingRun) []engine.Binding) (bound []engine.LiveRun, others engine.Unassigned, err error)
}

// Config holds the dependencies of an Assigner. All fields but Registry are required.
type Config struct {
	Store    Store
	Peers    *peer.Peers
	Roster   *roster.Roster
	Firer    *fire.Firer
	Sender   *offer.Sender
	Recorder *settle.Recorder
	Waiting  *waiting.Kinds
	Glance   *glance.Glance
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Assigner assigns waiting runs. Create one with New and call Run.
type Assigner struct {
	Config
	runs    *prometheus.GaugeVec
	ready   *prometheus.GaugeVec
	updated map[engine.WaitingKey]time.Time // when the reason of the first run was last updated, monotonic
}

// New returns an assigner.
func New(cfg Config) *Assigner {
	a := &Assigner{Config: cfg, runs: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "belfry_waiting_runs", Help: "Queued runs that no instance could take yet, by the code of the reason.",
	}, []string{"reason"}), ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "belfry_ready_instances", Help: "Instances that take runs, of each group with runs that wait for one; the first 1000 groups.",
	}, []string{"group"}), updated: make(map[engine.WaitingKey]time.Time)}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(a.runs, a.ready)
	}
	return a
}

// Run assigns waiting runs until ctx ends: at once when a run begins to wait or an instance has more room, and every second.
func (a *Assigner) Run(ctx context.Context) {
	a.Waiting.Assign(true)
	defer a.Waiting.Assign(false)
	lifecycle.Together(ctx, a.assignLoop, a.countLoop)
}

func (a *Assigner) assignLoop(ctx context.Context) {
	for woken := true; ctx.Err() == nil; {
		next := waiting.Poll
		if a.Peers.Connected() {
			early, err := a.assignAll(ctx, woken)
			if err != nil {
				a.warn(ctx, "cannot assign waiting runs, retrying", err)
			}
			if early {
				next = fire.AskPause
			}
		}
		woken = a.rest(ctx, next)
	}
}

// rest returns after a time, or when a run begins to wait or, if runs wait, an instance has more room. Then woken is true.
func (a *Assigner) rest(ctx context.Context, most time.Duration) (woken bool) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case <-a.Waiting.Woken():
			return true
		case <-a.Roster.Room():
			if a.Waiting.Any() {
				return true
			}
		}
	}
}

// assignAll assigns waiting runs of all kinds. early reports whether the instances of some job have to be asked again soon. If no signal woke
// the assigner and no run waited last time, a glance decides whether it is worth a search.
func (a *Assigner) assignAll(ctx context.Context, woken bool) (early bool, err error) {
	if !woken && !a.Waiting.Any() {
		if g, err := a.Glance.Look(ctx); err != nil || !g.Waiting {
			return false, err
		}
	}
	keys, err := a.Store.WaitingKeys(ctx)
	if err != nil {
		return false, err
	}
	a.Waiting.Set(keys)
	a.Firer.ForgetAsked()
	maps.DeleteFunc(a.updated, func(k engine.WaitingKey, _ time.Time) bool { return !a.Waiting.Has(k) })
	var errs []error // errors of single kinds, which do not stop the other kinds
	for _, k := range keys {
		if k.Apart != 0 {
			early = a.Firer.AskAgain(ctx, k) || early
			continue
		}
		for more := true; more && ctx.Err() == nil; {
			if more, err = a.assign(ctx, k); err != nil {
				errs = append(errs, err)
			}
		}
		if domain.CodeOf(err) == domain.Unavailable {
			break
		}
	}
	return early, errors.Join(errs...)
}

// extra is the number of runs that are read in addition to the free slots. Some runs cannot start now, for example because an
// instance already runs their job. The additional runs can then use the free slots.
const extra = 100

// whyPeriod is the time between two updates of the reason for which the runs of a kind wait.
const whyPeriod = 5 * time.Second

// assignTimeout bounds the work on one kind.
const assignTimeout = 10 * time.Second

// assign binds and offers waiting runs of one kind while slots are free. more reports whether another call may bind more runs. It
// completes its work when ctx ends, because runs that are bound and not offered would wait for a reconciler. A run that Postgres refuses
// to bind does not stop the others: it waits until its start deadline.
func (a *Assigner) assign(ctx context.Context, k engine.WaitingKey) (more bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), assignTimeout)
	defer cancel()
	var seen []domain.RunID
	more, err = a.assignThose(ctx, k, func(id domain.RunID) bool {
		seen = append(seen, id)
		return true
	})
	if !domain.Refused(err) {
		return more, err
	}
	slices.SortFunc(seen, func(a, b domain.RunID) int { return bytes.Compare(a[:], b[:]) })
	return false, divide.Batch(slices.Compact(seen), domain.Refused, func(part []domain.RunID) error {
		_, err := a.assignThose(ctx, k, func(id domain.RunID) bool { return slices.Contains(part, id) })
		return err
	}, func(id domain.RunID, err error) error {
		a.Recorder.Refused(ctx, "bind", id, err)
		return nil
	})
}

// assignThose is assign for the runs for which among returns true.
func (a *Assigner) assignThose(ctx context.Context, k engine.WaitingKey, among func(domain.RunID) bool) (more bool, err error) {
	r := a.Firer.NewRouting()
	r.Waited()
	candidates := r.Candidates(k.Group, k.Target)
	room := 0
	for _, c := range candidates {
		if k.Pin == "" || c.Instance == k.Pin {
			room += c.Room()
		}
	}
	if room == 0 {
		a.endLostShards(ctx, k, candidates)
		return false, a.updateWhy(ctx, k, r)
	}
	limit := min(room+extra, waiting.Batch)
	looked, skipped, all := 0, 0, 0
	var uncounted []engine.Due
	defs := make(engine.Definitions)
	choose := func(runs []engine.WaitingRun) []engine.Binding {
		looked = len(runs)
		out := make([]engine.Binding, len(runs))
		uncounted, skipped = nil, 0
		for i, w := range runs {
			if !among(w.ID) {
				skipped++
				continue
			}
			if r.Uncounted(w.Pin, w.Def) {
				uncounted = append(uncounted, w.Due())
				defs[engine.VersionKey{Job: w.JobID, Version: w.JobVersion}] = w.Def
			}
			if len(uncounted) == 0 {
				out[i] = r.Pick(w.Due(), w.Def)
			}
		}
		return out
	}
	for pass := 0; pass < 2; pass++ {
		bound, others, err := a.Store.AssignWaiting(ctx, k, limit, choose)
		if err != nil {
			return false, err
		}
		all += len(bound)
		a.Sender.Send(ctx, bound, r.Beats(), true)
		a.Firer.Unassigned(ctx, others)
		if len(uncounted) == 0 {
			if looked+len(others.Expand) < limit && skipped == 0 {
				a.Waiting.Remove(k) // every run of this kind was considered, so new runs need not queue behind them
			}
			break
		}
		// The transaction stopped at the first run whose job needs shared counters, which cannot be read within it.
		if err := r.Count(ctx, uncounted, defs); err != nil {
			return false, err
		}
	}
	return all >= limit || (len(uncounted) > 0 && all > 0), nil
}

// updateWhy updates the reason of the first run of a kind for which there is no room. The runs behind it show the same reason.
func (a *Assigner) updateWhy(ctx context.Context, k engine.WaitingKey, r *fire.Routing) error {
	if time.Since(a.updated[k]) < whyPeriod {
		return nil
	}
	a.updated[k] = time.Now()
	_, _, err := a.Store.AssignWaiting(ctx, k, 1, func(runs []engine.WaitingRun) []engine.Binding {
		out := make([]engine.Binding, len(runs))
		for i, w := range runs {
			out[i].Waiting = r.Pick(w.Due(), w.Def).Waiting
		}
		return out
	})
	return err
}

// endLostShards ends shards that may run only on one instance, if that instance is gone.
func (a *Assigner) endLostShards(ctx context.Context, k engine.WaitingKey, candidates []*route.Candidate) {
	if k.Pin == "" || !a.Peers.HeardForLong() {
		return
	}
	for _, c := range candidates {
		if c.Instance == k.Pin {
			return // it is full
		}
	}
	if _, alive := a.Roster.Boot(k.Group, k.Pin); alive {
		return // the instance drains, or will register the handler soon
	}
	// The roster drops an instance after one request without an answer. The lease is more reliable.
	if lease, err := a.Peers.ReadLease(ctx, k.Group, k.Pin); err != nil || lease.BootID != "" {
		return
	}
	var ended []engine.Ended
	_, _, err := a.Store.AssignWaiting(ctx, k, waiting.Batch, func(runs []engine.WaitingRun) []engine.Binding {
		ended = nil
		for _, w := range runs {
			if w.BroadcastID != nil && w.Def.Shards == 0 {
				ended = append(ended, a.Recorder.NoExecutor(w.ID, w.Attempt, explain.Of(explain.ShardInstanceGone, k.Pin)))
			}
		}
		return make([]engine.Binding, len(runs))
	})
	if err != nil {
		a.warn(ctx, "cannot read the shards of an instance that is gone, retrying", err)
		return
	}
	_, released := a.Recorder.Found(ctx, "shard_of_gone_instance", ended)
	a.Firer.Release(ctx, released)
}

const (
	countPeriod = 2 * time.Second
	readyGroups = 1000 // in the metrics; bounds the number of series
)

// countLoop updates the metrics of waiting runs.
func (a *Assigner) countLoop(ctx context.Context) {
	for lifecycle.Rest(ctx, countPeriod) {
		if err := a.count(ctx); err != nil {
			a.warn(ctx, "cannot count waiting runs, retrying", err)
		}
	}
}

func (a *Assigner) count(ctx context.Context) error {
	if a.Peers.Connected() && !a.Waiting.Any() { // the assigner has just looked
		a.runs.Reset()
		a.ready.Reset()
		return nil
	}
	counts, err := a.Store.WaitingCounts(ctx)
	if err != nil {
		return err
	}
	keys, err := a.Store.WaitingKeys(ctx)
	if err != nil {
		return err
	}
	a.runs.Reset()
	for code, n := range counts {
		a.runs.WithLabelValues(string(code)).Add(float64(n))
	}
	ready := make(map[string]int)
	for _, k := range keys {
		if _, counted := ready[k.Group]; counted || len(ready) == readyGroups {
			continue
		}
		ready[k.Group] = 0
		for _, i := range a.Roster.Instances(k.Group) {
			if i.TakesRuns() {
				ready[k.Group]++
			}
		}
	}
	a.ready.Reset()
	for group, n := range ready {
		a.ready.WithLabelValues(group).Set(float64(n))
	}
	return nil
}

func (a *Assigner) warn(ctx context.Context, failure string, err error) {
	if ctx.Err() == nil {
		a.Log.WarnContext(ctx, failure, "err", err)
	}
}
