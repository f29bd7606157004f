package roster

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Limits returns the limits of groups.
type Limits interface {
	GroupLimits(ctx context.Context, names []string) (map[string]domain.GroupLimits, error)
}

// limitsEvery is the time between two readings of the limits. The default applies to groups whose limit was not read yet.
const limitsEvery = 10 * time.Second

// KeepLimits updates the limits of the groups that have instances until ctx ends. A group's newest instances beyond its
// max_instances are not part of the roster.
func (r *Roster) KeepLimits(ctx context.Context, limits Limits) {
	tick := time.NewTicker(limitsEvery)
	defer tick.Stop()
	for failed := false; ; {
		err := r.readLimits(ctx, limits)
		if err != nil && !failed && ctx.Err() == nil {
			r.log.WarnContext(ctx, "cannot read the limits of groups, keeping the last known ones", "err", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.news:
		}
	}
}

// put records a message of a key. The caller holds the mutex.
func (r *Roster) put(k key, seq uint64, size int, started time.Time) {
	if r.population.put(k, seq, size, started, time.Now()) {
		lifecycle.Signal(r.news)
	}
}

func (r *Roster) readLimits(ctx context.Context, limits Limits) error {
	r.mu.Lock()
	names := slices.Sorted(maps.Keys(r.population.groups))
	r.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limitsEvery)
	defer cancel()
	read, err := limits.GroupLimits(ctx, names)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most = make(map[string]int, len(read))
	for name, l := range read {
		r.most[name] = l.MaxInstances
	}
	return nil
}

// limit returns the maximum number of a group's instances. The caller holds the mutex.
func (r *Roster) limit(group string) int {
	if n, ok := r.most[group]; ok {
		return n
	}
	return domain.DefaultGroupLimits().MaxInstances
}

// Belongs reports whether an instance is alive and within its group's limit.
func (r *Roster) Belongs(group, name string) bool {
	_, alive := r.Boot(group, name)
	return alive
}

// unwanted is a key that a dispatcher removes from the bucket.
type unwanted struct {
	key
	seq   uint64 // of its newest message
	large bool   // it is too large; otherwise it is beyond the limit of its group
}

// unwanted returns keys to remove, at most n of each group.
func (r *Roster) unwanted(n int) []unwanted {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		return nil
	}
	now := time.Now()
	var out []unwanted
	for group, keys := range r.population.groups {
		beyond := r.population.beyond(group, r.limit(group), now)
		for _, name := range beyond[:min(n, len(beyond))] {
			out = append(out, unwanted{key{group, name}, keys[name].seq, false})
		}
		room := n - len(beyond)
		for name, e := range keys {
			if room <= 0 {
				break
			}
			if e.large && e.alive(now) && !slices.Contains(beyond, name) {
				out = append(out, unwanted{key{group, name}, e.seq, true})
				room--
			}
		}
	}
	return out
}

// removed records that a key was removed from the bucket, with all messages up to seq.
func (r *Roster) removed(k key, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.population.delete(k, seq)
	if e := r.population.groups[k.group][k.name]; e == nil || e.gone {
		delete(r.instances, k)
	}
}
