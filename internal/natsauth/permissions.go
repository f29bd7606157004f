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

// An executor answers an offer within 2 s or not at all, and everything else sooner. The bound leaves room for
// a slow machine and keeps the server from remembering reply subjects for long.
const (
	answersPerRequest = 1
	answerWithin      = 30 * time.Second
)

// groupName is a single subject token by construction: no dot, no wildcard, no white space.
var groupName = regexp.MustCompile(`\A[a-z0-9][a-z0-9_-]{0,62}\z`)

// Permissions returns what an executor of the group, or who listens with its token, may do. A name that is not a group name is an error of code
// invalid, so that no wildcard ever gets into a subject.
func Permissions(group string) (jwt.Permissions, error) {
	if !groupName.MatchString(group) {
		return jwt.Permissions{}, domain.NewError(domain.Invalid, fmt.Sprintf("%q is not a group name", group))
	}
	return jwt.Permissions{
		Sub: jwt.Permission{Allow: jwt.StringList{
			"belfry.v1.trigger." + group + ".>",
			"belfry.v1.control." + group + ".>",
			"belfry.v1.run." + group, // what becomes of its runs, for programs that react to them
			InboxPrefix(group) + ".>",
		}},
		Pub: jwt.Permission{Allow: jwt.StringList{
			"belfry.v1.result." + group,
			"belfry.v1.log." + group,
			// One token for the instance: deeper keys would be nobody's heartbeat.
			"$KV.belfry_instances." + group + ".*",
		}},
		Resp: &jwt.ResponsePermission{MaxMsgs: answersPerRequest, Expires: answerWithin},
	}, nil
}

// SenderName names the sender of events that an API token stands for. No group is called so.
func SenderName(tokenID int64) string { return senderPrefix + strconv.FormatInt(tokenID, 10) }

const senderPrefix = "EVENTS_"

// SenderPermissions returns what a sender of events may do: publish them, and hear that JetStream has them.
func SenderPermissions(sender string) jwt.Permissions {
	return jwt.Permissions{
		Sub: jwt.Permission{Allow: jwt.StringList{InboxPrefix(sender) + ".>"}},
		Pub: jwt.Permission{Allow: jwt.StringList{wire.EventSubject(">")}},
	}
}

// InboxPrefix returns the prefix that an executor of the group, or a sender of events, must set for its inboxes.
func InboxPrefix(group string) string { return "_INBOX_" + group }
