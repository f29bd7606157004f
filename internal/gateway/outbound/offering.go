package outbound

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/clock"
)

// nobodyOffers reports whether no live instance of a group offers a target any more, according to this process's addresses and to the heartbeats of all
// other instances. If the heartbeats cannot be read, it reports false.
func (f *Fleet) nobodyOffers(group, target string) bool {
	ctx, cancel := context.WithTimeout(f.work, storeTime)
	defer cancel()
	js, err := jetstream.New(f.Conn)
	if err != nil {
		return false
	}
	kv, err := js.KeyValue(ctx, wire.BucketInstances)
	if err != nil {
		return false
	}
	w, err := kv.Watch(ctx, group+".*", jetstream.IgnoreDeletes())
	if err != nil {
		return false
	}
	defer w.Stop() //nolint:errcheck // the subscription ends with ctx as well
	for {
		select {
		case <-ctx.Done():
			return false
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return false
			case e == nil: // all values have come
				return true
			case f.offers(e.Value(), target):
				return false
			}
		}
	}
}

// offers reports whether the instance of a heartbeat offers a target. A heartbeat of this process may be older than what the process knows.
func (f *Fleet) offers(heartbeat []byte, target string) bool {
	var h wire.Heartbeat
	if wire.Decode(heartbeat, &h) != nil || !domain.Offers(h.Handlers, h.Languages, h.Lacks, target) {
		return false
	}
	t := f.find(place{h.Group, h.Instance})
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.machine.Lacked(target, clock.Now())
}
