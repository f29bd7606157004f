package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/belfryhq/belfry/executor/wire"
)

// ErrAcknowledgement is the reason why a message is not processed for which IsAcknowledgement is true.
var ErrAcknowledgement = errors.New("this is JetStream's answer to another message, and its publisher chose this subject as the reply subject")

// maxAcknowledgement is far more than the size of any acknowledgement.
const maxAcknowledgement = 4 << 10

// IsAcknowledgement reports whether a message is JetStream's answer to a message that was published to one of Belfry's streams.
//
// NATS does not check reply subjects. So an executor can direct the answer to its own message to any subject, also to one where
// it may not publish. It cannot choose the content of the answer. No program publishes such a message for another purpose, so readers
// must not process it.
func IsAcknowledgement(body []byte) bool {
	if len(body) > maxAcknowledgement || !bytes.HasPrefix(body, []byte("{")) || !bytes.Contains(body, []byte(`"stream"`)) {
		return false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return false
	}
	var stream string
	if fields["seq"] == nil || json.Unmarshal(fields["stream"], &stream) != nil {
		return false
	}
	for name := range fields {
		switch name {
		case "stream", "seq", "error", "domain", "duplicate", "val", "batch", "count":
		default:
			return false
		}
	}
	return strings.HasPrefix(stream, "BELFRY_") || stream == "KV_"+wire.BucketInstances
}
