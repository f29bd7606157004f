// Package boots records the processes of executors that the roster shows, so that a run page can tell which version of an executor
// ran an attempt, long after the process has ended.
//
// Every dispatcher records what it sees, and Postgres keeps one row for each process. A dispatcher writes only when it sees a process
// for the first time, and every ten minutes while the process lives. An idle system therefore costs a small statement in ten minutes.
//
// A process that lives for less than five seconds may be missed. Its attempts then have no version.
package boots

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Store records processes of executors. Of known ones, it updates when they were last seen.
type Store interface {
	SeeBoots(ctx context.Context, instances []domain.Instance) error
}

const (
	period = 5 * time.Second
	again  = 10 * time.Minute // a living process is recorded again after this time
	batch  = 1000
	// hourly is the maximum number of new processes of one group in an hour. A group that sends heartbeats with more and more boot ids
	// cannot fill the table.
	hourly = 5000
)

// Recorder records processes periodically. Create one with New, then call Run.
type Recorder struct {
	store     Store
	instances func(group string) []domain.Instance
	log       *slog.Logger

	recorded map[boot]time.Time // when each living process was last recorded
	quotas   map[string]*quota  // by group
}

type boot struct{ group, id string }

// quota counts the new processes of a group that were recorded since an instant.
type quota struct {
	since time.Time
	count int
}

// New returns a Recorder that does nothing until Run. instances lists the living instances of a group, or of all groups if group is
// empty.
func New(store Store, instances func(group string) []domain.Instance, log *slog.Logger) *Recorder {
	return &Recorder{store: store, instances: instances, log: log, recorded: make(map[boot]time.Time), quotas: make(map[string]*quota)}
}

// Run records processes until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	for lifecycle.Rest(ctx, period) {
		if err := r.record(ctx, time.Now()); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "cannot record the versions of executors, retrying", "err", err)
		}
	}
	return nil
}

// record records the processes that are due.
func (r *Recorder) record(ctx context.Context, now time.Time) error {
	maps.DeleteFunc(r.quotas, func(_ string, q *quota) bool { return now.Sub(q.since) >= time.Hour })
	for due := range slices.Chunk(r.due(r.instances(""), now), batch) {
		if err := r.store.SeeBoots(ctx, due); err != nil {
			return err
		}
		for _, i := range due {
			r.note(i, now)
		}
	}
	return nil
}

// due returns the living processes that must be recorded now, and forgets those that have ended.
func (r *Recorder) due(living []domain.Instance, now time.Time) (due []domain.Instance) {
	seen := make(map[boot]bool, len(living))
	for _, i := range living {
		b := boot{i.Group, i.BootID}
		if seen[b] {
			continue // a process with two names: the first one counts
		}
		seen[b] = true
		at, known := r.recorded[b]
		if known && now.Sub(at) < again || !known && r.full(i.Group) {
			continue
		}
		due = append(due, i)
	}
	maps.DeleteFunc(r.recorded, func(b boot, _ time.Time) bool { return !seen[b] })
	return due
}

// full reports whether the group has used up its new processes of this hour.
func (r *Recorder) full(group string) bool {
	q := r.quotas[group]
	return q != nil && q.count >= hourly
}

// note remembers that a process was recorded.
func (r *Recorder) note(i domain.Instance, now time.Time) {
	b := boot{i.Group, i.BootID}
	if _, known := r.recorded[b]; !known {
		q := r.quotas[i.Group]
		if q == nil {
			q = &quota{since: now}
			r.quotas[i.Group] = q
		}
		if q.count++; q.count == hourly {
			r.log.Warn("a group has too many new executor processes, the versions of further ones are not recorded for an hour",
				"group", i.Group, "count", hourly)
		}
	}
	r.recorded[b] = now
}
