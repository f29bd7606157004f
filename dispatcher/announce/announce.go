// Package announce publishes state changes of runs for consoles and for other subscribers.
//
// Delivery is best effort: no other package depends on the messages, because the states are stored in Postgres.
package announce

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/engine"
)

// Store defines the database operations that the announcer needs.
type Store interface {
	Definitions(ctx context.Context, runs []engine.Due) (engine.Definitions, error)
}

// Announcer publishes state changes. Create one with New. It is safe for concurrent use.
type Announcer struct {
	store       Store
	nc          *nats.Conn
	peers       *peer.Peers
	log         *slog.Logger
	subscribers subscribers
	// Finished, if not nil, is called with all changes after their commit. It must not block. It is set before the first Notify.
	Finished func(changes []engine.Change)
}

// New returns an announcer.
func New(store Store, nc *nats.Conn, peers *peer.Peers, log *slog.Logger) *Announcer {
	return &Announcer{store: store, nc: nc, peers: peers, log: log}
}

// MaxChanges is the maximum number of changes in one message.
const MaxChanges = 500

const (
	unasked          = 8                      // publishing up to this many changes costs less than asking for subscribers
	notifyTimeout    = time.Second            // for the reads from Postgres
	subscribeTimeout = 200 * time.Millisecond // for the server's answer whether anyone subscribes; firing waits for it
	subscribedFor    = 10 * time.Second       // how long a positive answer is cached
)

// Notify publishes changes. The changes of one group keep their order. Notify drops all changes if NATS is unavailable. It also
// drops more than unasked changes of a group without subscribers.
func (a *Announcer) Notify(changes []engine.Change) {
	if len(changes) == 0 {
		return
	}
	if a.Finished != nil {
		a.Finished(changes)
	}
	if !a.peers.Connected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), notifyTimeout)
	defer cancel()
	for group, changes := range byGroup(changes) {
		if len(changes) > unasked && !a.subscribers.known(group, time.Now()) && !a.subscribed(group) {
			continue
		}
		for part := range slices.Chunk(changes, MaxChanges) {
			a.publish(ctx, group, part)
		}
	}
}

// subscribed asks the server whether anyone subscribes to a group's changes. It publishes an empty message with a reply
// subject, which the server answers at once if no one subscribes. Publishing thousands of changes without a subscriber would be
// a large part of the cost of firing.
func (a *Announcer) subscribed(group string) bool {
	answers := make(chan *nats.Msg, 1)
	sub, err := a.nc.ChanSubscribe(a.nc.NewInbox(), answers)
	if err != nil {
		return false
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := a.nc.PublishMsg(&nats.Msg{Subject: wire.RunSubject(group), Reply: sub.Subject, Data: wire.EncodeRunChanges(nil)}); err != nil {
		return false
	}
	if err := a.nc.FlushTimeout(subscribeTimeout); err != nil {
		return false
	}
	// The server's answer to the message arrives before its answer to the flush.
	select {
	case m := <-answers:
		if m.Header.Get("Status") == noResponders {
			return false
		}
	default:
	}
	a.subscribers.note(group, time.Now())
	return true
}

// noResponders is the status of the server's reply if a subject has no subscriber.
const noResponders = "503"

// publish publishes one message.
func (a *Announcer) publish(ctx context.Context, group string, changes []engine.Change) {
	keys := make([]engine.Due, len(changes))
	for i, c := range changes {
		keys[i] = engine.Due{JobID: c.JobID, JobVersion: c.JobVersion}
	}
	defs, err := a.store.Definitions(ctx, keys)
	if err != nil {
		return
	}
	runs := make([]wire.RunChange, 0, len(changes))
	for _, c := range changes {
		if def := defs.Of(c.JobID, c.JobVersion); def != nil {
			runs = append(runs, wire.RunChange{
				RunID: c.RunID.String(), JobID: int64(c.JobID), JobName: def.Name, State: string(c.State), Reason: string(c.Reason),
				Cause: string(c.Cause), FireTime: peer.WireTime(c.FireTime), Attempt: c.Attempt,
			})
		}
	}
	if len(runs) == 0 {
		return
	}
	if err := a.nc.Publish(wire.RunSubject(group), wire.EncodeRunChanges(runs)); err != nil {
		a.log.Debug("cannot publish state changes, dropping them", "group", group, "runs", len(runs), "err", err)
	}
}

// byGroup splits changes by group and keeps their order. Usually there is one group, and nothing is copied.
func byGroup(changes []engine.Change) map[string][]engine.Change {
	first := changes[0].Group
	if !slices.ContainsFunc(changes, func(c engine.Change) bool { return c.Group != first }) {
		return map[string][]engine.Change{first: changes}
	}
	out := make(map[string][]engine.Change)
	for _, c := range changes {
		out[c.Group] = append(out[c.Group], c)
	}
	return out
}

// subscribers records which groups had a subscriber recently.
type subscribers struct {
	mu sync.Mutex
	at map[string]time.Time
}

// known reports whether a group had a subscriber a short time ago.
func (s *subscribers) known(group string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.at[group]
	return ok && now.Sub(at) < subscribedFor
}

// note records that a group has a subscriber, and removes old entries.
func (s *subscribers) note(group string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.at, func(_ string, at time.Time) bool { return now.Sub(at) >= subscribedFor })
	if s.at == nil {
		s.at = make(map[string]time.Time)
	}
	s.at[group] = now
}
