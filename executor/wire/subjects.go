package wire

import (
	"strings"
)

// Version is the wire version that this package speaks.
const Version = 1

// Prefix begins every subject of this version.
const Prefix = "belfry.v1."

// The streams and the bucket.
const (
	StreamResults   = "BELFRY_RESULTS"
	StreamLogs      = "BELFRY_LOGS"
	StreamEvents    = "BELFRY_EVENTS"
	StreamDead      = "BELFRY_DEAD"
	BucketInstances = "belfry_instances"
)

// HeaderMessageID says what a message is known by, where Nats-Msg-Id cannot: JetStream would take it for the first
// delivery's and drop it.
const HeaderMessageID = "Belfry-Msg-Id"

// TriggerSubject carries offers to one instance, by request and reply.
func TriggerSubject(group, instance string) string {
	return Prefix + "trigger." + group + "." + instance
}

// ControlSubject carries control requests to one instance.
func ControlSubject(group, instance string) string {
	return Prefix + "control." + group + "." + instance
}

// ResultSubject carries the results of a group's runs, into StreamResults.
func ResultSubject(group string) string { return Prefix + "result." + group }

// LogSubject carries the log lines of a group's runs, into StreamLogs.
func LogSubject(group string) string { return Prefix + "log." + group }

// RunSubject carries each change of state of a group's runs, as plain publishes.
func RunSubject(group string) string { return Prefix + "run." + group }

// EventSubject carries an event, into StreamEvents.
func EventSubject(name string) string { return Prefix + "event." + name }

// DeadSubject takes what could not be understood; kind is result, log or event.
func DeadSubject(kind string) string { return Prefix + "dead." + kind }

// InstanceKey is an instance's key in BucketInstances.
func InstanceKey(group, instance string) string { return group + "." + instance }

// InstanceSubject is the subject by which the value of a key gets into BucketInstances.
func InstanceSubject(key string) string { return "$KV." + BucketInstances + "." + key }

// SplitInstanceKey undoes InstanceKey.
func SplitInstanceKey(key string) (group, instance string, ok bool) {
	group, instance, ok = strings.Cut(key, ".")
	return group, instance, ok && group != "" && instance != "" && !strings.Contains(instance, ".")
}

// GroupOfSubject returns the group in a result or log subject, which is its last token.
func GroupOfSubject(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// ValidInstance reports whether s may name an instance: one NATS token without anything NATS gives a meaning to, which is
// up to 128 ASCII letters, digits, and further on underscores and hyphens.
func ValidInstance(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '_' || c == '-'):
		default:
			return false
		}
	}
	return s != "" && len(s) <= 128
}
