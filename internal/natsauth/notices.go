package natsauth

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// The subjects on which Belfry's processes notify each other. No executor may use them.
const (
	changedSubject = wire.Prefix + "login.changed" // the body is a group, or the name of a sender
	closedSubject  = wire.Prefix + "login.closed"  // the body is a closedGroup
)

// AnnounceChange tells all Responders that the tokens of a group or of a sender have changed. They forget what they
// know of its tokens, and end the connections whose token is no longer valid.
func AnnounceChange(nc *nats.Conn, owner string) error {
	if err := nc.Publish(changedSubject, []byte(owner)); err != nil {
		return domain.WrapError(domain.Unavailable, "announce changed tokens", err)
	}
	return nil
}

type closedGroup struct {
	Group     string   `json:"group"`
	Instances []string `json:"instances"`
}

// AnnounceClosed tells all Responders that a group has more instances than its limit. For a minute they refuse log-ins
// of the group's instances that are not known to be alive. They end the connections of the named instances.
func AnnounceClosed(nc *nats.Conn, group string, instances []string) error {
	body, err := json.Marshal(closedGroup{group, instances})
	if err == nil {
		err = nc.Publish(closedSubject, body)
	}
	if err != nil {
		return domain.WrapError(domain.Unavailable, "announce a group with too many instances", err)
	}
	return nil
}

// changed handles the message of AnnounceChange.
func (r *Responder) changed(msg *nats.Msg) {
	r.Recheck(string(msg.Data))
	if r.cfg.Sessions != nil {
		r.cfg.Sessions.Check()
	}
}

// Recheck removes those tokens of a group or sender from the cache that are no longer valid, so that they are not accepted
// in a later outage. If this cannot be known now, it removes them all.
func (r *Responder) Recheck(owner string) {
	if r.cfg.Directory != nil {
		ctx, cancel := context.WithTimeout(context.Background(), verifyTimeout)
		defer cancel()
		if gone, err := invalid(ctx, r.cfg.Directory, r.known.users(owner)); err == nil {
			r.known.removeUsers(gone)
			return
		}
	}
	r.known.removeOwner(owner)
}

// closed handles the message of AnnounceClosed.
func (r *Responder) closed(msg *nats.Msg) {
	var c closedGroup
	if err := json.Unmarshal(msg.Data, &c); err != nil || !groupName.MatchString(c.Group) {
		r.samples.warn("a message about a group with too many instances is malformed, it is ignored", "", err)
		return
	}
	r.gates.close(c.Group, time.Now())
	if r.cfg.Sessions != nil {
		r.cfg.Sessions.EndInstances(c.Group, c.Instances)
	}
}
