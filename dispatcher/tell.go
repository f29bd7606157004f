package dispatcher

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

const (
	tellMax     = 500                    // changes of one message
	tellAtOnce  = 8                      // changes that cost less to tell than to ask whether anybody listens
	tellTimeout = time.Second            // for what a telling has to ask Postgres
	hearTimeout = 200 * time.Millisecond // for the server to say whether anybody listens; firing waits for it
	heardFor    = 10 * time.Second       // for so long who was heard to listen is taken to listen still
)

// tell publishes changes of state for whoever watches. They are a courtesy: nothing waits for them.
func (d *Dispatcher) tell(changes []domain.Change) {
	if len(changes) == 0 || !d.steady.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	for group, changes := range byGroup(changes) {
		if len(changes) > tellAtOnce && !d.hearers.known(group, time.Now()) {
			if !d.heard(group) {
				continue
			}
		}
		for part := range slices.Chunk(changes, tellMax) {
			d.tellPart(ctx, group, part)
		}
	}
}

// heard reports whether anybody may listen to a group's changes: nobody does where a message that asks for an answer is at once
// told so. It tells of no change. To name each of thousands of runs to nobody would be a good part of what firing them costs.
func (d *Dispatcher) heard(group string) bool {
	answers := make(chan *nats.Msg, 1)
	sub, err := d.nc.ChanSubscribe(d.nc.NewInbox(), answers)
	if err != nil {
		return false
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := d.nc.PublishMsg(&nats.Msg{Subject: wire.RunSubject(group), Reply: sub.Subject, Data: wire.EncodeRunChanges(nil)}); err != nil {
		return false
	}
	if err := d.nc.FlushTimeout(hearTimeout); err != nil {
		return false
	}
	// What the server had to say to the message has come before its answer to the flush.
	select {
	case m := <-answers:
		if m.Header.Get("Status") == noResponders {
			return false
		}
	default:
	}
	d.hearers.note(group, time.Now())
	return true
}

// noResponders is the status by which a server says that nobody listens.
const noResponders = "503"

// tellPart publishes one message.
func (d *Dispatcher) tellPart(ctx context.Context, group string, changes []domain.Change) {
	keys := make([]domain.Due, len(changes))
	for i, c := range changes {
		keys[i] = domain.Due{JobID: c.JobID, JobVersion: c.JobVersion}
	}
	defs, err := d.store.Definitions(ctx, keys)
	if err != nil {
		return
	}
	runs := make([]wire.RunChange, 0, len(changes))
	for _, c := range changes {
		if def := defs.Of(c.JobID, c.JobVersion); def != nil {
			runs = append(runs, wire.RunChange{
				RunID: c.RunID.String(), JobID: int64(c.JobID), JobName: def.Name, State: string(c.State), Reason: string(c.Reason),
				Cause: string(c.Cause), FireTime: wireTime(c.FireTime), Attempt: c.Attempt,
			})
		}
	}
	if len(runs) == 0 {
		return
	}
	if err := d.nc.Publish(wire.RunSubject(group), wire.EncodeRunChanges(runs)); err != nil {
		d.log.Debug("telling what changed", "group", group, "runs", len(runs), "err", err)
	}
}

// byGroup takes changes apart, each group's in their order. Most often there is one group, and nothing is copied.
func byGroup(changes []domain.Change) map[string][]domain.Change {
	first := changes[0].Group
	if !slices.ContainsFunc(changes, func(c domain.Change) bool { return c.Group != first }) {
		return map[string][]domain.Change{first: changes}
	}
	out := make(map[string][]domain.Change)
	for _, c := range changes {
		out[c.Group] = append(out[c.Group], c)
	}
	return out
}

// hearers are the groups whose changes somebody was heard to listen to lately.
type hearers struct {
	mu sync.Mutex
	at map[string]time.Time
}

// known reports whether somebody listened to a group's changes a short while ago.
func (h *hearers) known(group string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, heard := h.at[group]
	return heard && now.Sub(at) < heardFor
}

// note takes in that somebody listens to a group's changes, and forgets what is old.
func (h *hearers) note(group string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.at, func(_ string, at time.Time) bool { return now.Sub(at) >= heardFor })
	if h.at == nil {
		h.at = make(map[string]time.Time)
	}
	h.at[group] = now
}
