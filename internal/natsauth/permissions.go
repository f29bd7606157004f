package natsauth

import (
	"fmt"
	"regexp"
	"strconv"
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

// Permissions returns the permissions of an executor of the group, or of another client with its token. If the name is
// not a group name, the error has code invalid, so that no wildcard ever gets into a subject.
func Permissions(group string) (jwt.Permissions, error) {
	if !groupName.MatchString(group) {
		return jwt.Permissions{}, domain.NewError(domain.Invalid, fmt.Sprintf("%q is not a group name", group))
	}
	return jwt.Permissions{
		Sub: jwt.Permission{Allow: jwt.StringList{
			"belfry.v1.trigger." + group + ".>",
			"belfry.v1.control." + group + ".>",
			"belfry.v1.run." + group, // the changes of its runs, for programs that react to them
			InboxPrefix(group) + ".>",
		}},
		Pub: jwt.Permission{Allow: jwt.StringList{
			"belfry.v1.result." + group,
			"belfry.v1.log." + group,
			// Only one token for the instance: deeper keys are not heartbeats.
			"$KV.belfry_instances." + group + ".*",
		}},
		Resp: &jwt.ResponsePermission{MaxMsgs: answersPerRequest, Expires: answerWithin},
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

// InboxPrefix returns the inbox prefix that an executor of the group, or a sender of events, must set.
func InboxPrefix(group string) string { return "_INBOX_" + group }
