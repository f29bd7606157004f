package natsauth

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// An executor answers an offer within 2 s or not at all, and other requests sooner. The bound leaves room for a slow
// machine, and limits how long the server remembers reply subjects.
const (
	answersPerRequest = 1
	answerWithin      = 30 * time.Second
)

// groupName matches a single subject token: no dot, no wildcard, no white space.
var groupName = regexp.MustCompile(`\A[a-z0-9][a-z0-9_-]{0,62}\z`)

// ClientName returns the name with which the connection of an executor logs in.
func ClientName(group, instance string) string { return group + "." + instance }

// formerClient begins the client names of older SDKs.
const formerClient = "belfry executor "

// instanceOf returns the instance that a connection's client name states. If the name begins like that of an executor of
// the group, meant is true. ok is false if it is not valid.
func instanceOf(clientName, group string) (instance string, meant, ok bool) {
	instance, meant = strings.CutPrefix(strings.TrimPrefix(clientName, formerClient), group+".")
	if !meant || !wire.ValidInstance(instance) {
		return "", meant, false
	}
	return instance, true, true
}

// Permissions returns the permissions of an executor: one instance of a group. If the group or the instance is not a
// valid name, the error has code invalid, so that no wildcard ever gets into a subject.
func Permissions(group, instance string) (jwt.Permissions, error) {
	if !groupName.MatchString(group) {
		return jwt.Permissions{}, domain.NewError(domain.Invalid, fmt.Sprintf("%q is not a group name", group))
	}
	if !wire.ValidInstance(instance) {
		return jwt.Permissions{}, domain.NewError(domain.Invalid, fmt.Sprintf("%.140q is not an instance name", instance))
	}
	return jwt.Permissions{
		Sub: jwt.Permission{Allow: jwt.StringList{
			wire.TriggerSubject(group, instance),
			wire.ControlSubject(group, instance),
			wire.RunSubject(group), // the changes of its runs, for programs that react to them
			InboxPrefix(group) + ".>",
		}},
		Pub: jwt.Permission{Allow: jwt.StringList{
			wire.ResultSubject(group),
			wire.LogSubject(group),
			wire.InstanceSubject(wire.InstanceKey(group, instance)),
		}},
		Resp: &jwt.ResponsePermission{MaxMsgs: answersPerRequest, Expires: answerWithin},
	}, nil
}

// ObserverPermissions returns the permissions of a client with a group's token whose client name is not that of an
// executor. It may receive the changes of the group's runs, and publish nothing.
func ObserverPermissions(group string) (jwt.Permissions, error) {
	if !groupName.MatchString(group) {
		return jwt.Permissions{}, domain.NewError(domain.Invalid, fmt.Sprintf("%q is not a group name", group))
	}
	return jwt.Permissions{
		Sub: jwt.Permission{Allow: jwt.StringList{wire.RunSubject(group)}},
		Pub: jwt.Permission{Deny: jwt.StringList{">"}},
	}, nil
}

// SenderName returns the user name for a sender of events, identified by its API token. It is never a group name.
func SenderName(tokenID int64) string { return senderPrefix + strconv.FormatInt(tokenID, 10) }

const senderPrefix = "EVENTS_"

// SenderPermissions returns the permissions of a sender of events: to publish them, and to receive JetStream's
// acknowledgement.
func SenderPermissions(sender string) jwt.Permissions {
	return jwt.Permissions{
		Sub: jwt.Permission{Allow: jwt.StringList{InboxPrefix(sender) + ".>"}},
		Pub: jwt.Permission{Allow: jwt.StringList{wire.EventSubject(">")}},
	}
}

// InboxPrefix returns the inbox prefix that an executor of the group, or a sender of events, must set. All instances of a
// group share it, because it receives only acknowledgements.
func InboxPrefix(group string) string { return "_INBOX_" + group }
