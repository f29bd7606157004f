// Package peer sends requests to executor instances and tracks whether this process can receive their heartbeats.
package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// Peers is the connection to all executor instances. Create one with New and call Run. It is safe for concurrent use.
type Peers struct {
	nc *nats.Conn
	js jetstream.JetStream
	*hearing
}

// New returns the connection to the instances. The reconnected function is called after each reconnection to NATS. If
// heardFor is positive, it replaces the default time after which HeardForLong is true; tests shorten it.
func New(nc *nats.Conn, js jetstream.JetStream, heardFor time.Duration, reconnected func()) *Peers {
	return &Peers{nc: nc, js: js, hearing: newHearing(nc, heardFor, reconnected)}
}

// askTimeout is how long Ask waits for an answer.
const askTimeout = time.Second

// Ask sends a control request to an instance and returns the answer. If there is no answer within a second, the error has
// the code Unavailable. The error wraps nats.ErrNoResponders if no process subscribes under that name.
func (p *Peers) Ask(ctx context.Context, group, instance string, c wire.Control) (*wire.ControlReply, error) {
	c.V = wire.Version
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	msg, err := p.nc.RequestWithContext(ctx, wire.ControlSubject(group, instance), wire.Encode(c))
	if err != nil {
		return nil, domain.WrapError(domain.Unavailable, "instance "+instance+" does not answer", err)
	}
	var reply wire.ControlReply
	if err := wire.Decode(msg.Data, &reply); err != nil {
		return nil, domain.WrapError(domain.Unavailable, "the answer of instance "+instance+" cannot be read", err)
	}
	return &reply, nil
}

// Drain tells an instance to take no more runs. The error has the code NotFound if no process subscribes under that name, and
// Unavailable if there is no answer.
func (p *Peers) Drain(ctx context.Context, group, instance string) error {
	missing := "group " + group + " has no live instance " + instance
	if !wire.ValidInstance(instance) { // the name would address another subject, or none
		return domain.NewError(domain.NotFound, missing)
	}
	_, err := p.Ask(ctx, group, instance, wire.Control{Op: wire.OpDrain})
	if errors.Is(err, nats.ErrNoResponders) {
		return domain.WrapError(domain.NotFound, missing, err)
	}
	return err
}

// Listen calls heard for each heartbeat of an instance's boot that is published, also if the bucket refuses it. The returned function
// ends this.
func (p *Peers) Listen(group, instance, boot string, heard func()) (stop func(), err error) {
	sub, err := p.nc.Subscribe(wire.InstanceSubject(wire.InstanceKey(group, instance)), func(msg *nats.Msg) {
		var beat wire.Heartbeat
		if len(msg.Data) <= wire.MaxHeartbeat && wire.Decode(msg.Data, &beat) == nil && beat.BootID == boot {
			heard()
		}
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = sub.Unsubscribe() }, nil // it fails only if the connection is closed
}

// Lease is what the leader of the instance bucket has stored at the key of one instance.
type Lease struct {
	// BootID is the boot of the newest heartbeat. It is "" if the key has expired, the instance deleted it at its shutdown, or the
	// value is not a heartbeat: an executor can direct JetStream's acknowledgement of a message to the key of another instance.
	BootID string
	// Seq is a sequence of the bucket's stream. Every heartbeat that the stream held for the instance at the moment of
	// the read has this sequence or a lower one.
	Seq uint64
}

// ReadLease reads the lease of an instance from the leader of the bucket's stream. It does not ask a replica, because a
// replica may lag.
func (p *Peers) ReadLease(ctx context.Context, group, instance string) (Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := json.Marshal(map[string]string{"last_by_subj": wire.InstanceSubject(wire.InstanceKey(group, instance))})
	if err != nil {
		return Lease{}, err
	}
	msg, err := p.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.KV_"+wire.BucketInstances, req)
	if err != nil {
		return Lease{}, err
	}
	var reply struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Seq    uint64 `json:"seq"`
			Header []byte `json:"hdrs"`
			Data   []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &reply); err != nil {
		return Lease{}, fmt.Errorf("read the bucket's answer: %w", err)
	}
	switch {
	case reply.Error != nil && reply.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		// The key has expired or was purged. The stream's last sequence is read after that, so no earlier heartbeat
		// has a higher one.
		s, err := p.js.Stream(ctx, "KV_"+wire.BucketInstances)
		if err != nil {
			return Lease{}, err
		}
		return Lease{Seq: s.CachedInfo().State.LastSeq}, nil
	case reply.Error != nil:
		return Lease{}, reply.Error
	case reply.Message == nil:
		return Lease{}, errors.New("the bucket's answer has neither a message nor an error")
	case len(reply.Message.Header) > 0 && len(reply.Message.Data) == 0:
		return Lease{Seq: reply.Message.Seq}, nil // the instance deleted its heartbeat at shutdown
	}
	var beat wire.Heartbeat
	if wire.Decode(reply.Message.Data, &beat) != nil {
		return Lease{Seq: reply.Message.Seq}, nil
	}
	return Lease{BootID: beat.BootID, Seq: reply.Message.Seq}, nil
}
