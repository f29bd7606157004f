package wire

import (
	"strings"
)

// Version is the wire version that this package speaks.
const Version = 1

// Prefix is the prefix of every subject of this version.
const Prefix = "belfry.v1."

// The streams and the bucket.
const (
	StreamResults    = "BELFRY_RESULTS"
	StreamLogs       = "BELFRY_LOGS"
	StreamEvents     = "BELFRY_EVENTS"
	StreamDead       = "BELFRY_DEAD"
	StreamDeadEvents = "BELFRY_DEAD_EVENTS"
	StreamOverflow   = "BELFRY_OVERFLOW"
	BucketInstances  = "belfry_instances"
)

// HeaderMessageID identifies a message where Nats-Msg-Id cannot be used. With Nats-Msg-Id, JetStream would drop the
// message as a duplicate of its first delivery.
const HeaderMessageID = "Belfry-Msg-Id"

// TriggerSubject returns the subject of offers to one instance, which are requests with replies.
func TriggerSubject(group, instance string) string {
	return Prefix + "trigger." + group + "." + instance
}

// ControlSubject returns the subject of control requests to one instance.
func ControlSubject(group, instance string) string {
	return Prefix + "control." + group + "." + instance
}

// ResultSubject returns the subject of the results of a group's runs, stored in StreamResults.
func ResultSubject(group string) string { return Prefix + "result." + group }

// LogSubject returns the subject of the log lines of a group's runs, stored in StreamLogs.
func LogSubject(group string) string { return Prefix + "log." + group }

// RunSubject returns the subject of the state changes of a group's runs. No stream stores these messages.
func RunSubject(group string) string { return Prefix + "run." + group }

// EventSubject returns the subject of an event, stored in StreamEvents.
func EventSubject(name string) string { return Prefix + "event." + name }

// OverflowSubject returns the subject of a group's results that exceeded its share, stored in StreamOverflow. Only dispatchers use
// it.
func OverflowSubject(group string) string { return Prefix + "overflow.result." + group }

// FirstDeadEvent is the first sequence in StreamDeadEvents. It is higher than any sequence in StreamDead, so that a dead
// letter's sequence alone identifies it.
const FirstDeadEvent = 1 << 40

// DeadSubject returns the subject of messages that could not be processed, in StreamDead. kind is result, log or heartbeat, and name
// is the group. Without a name, it is the subject that older releases use. They also used StreamDead for events.
func DeadSubject(kind, name string) string {
	if name == "" {
		return Prefix + "dead." + kind
	}
	return Prefix + "dead." + kind + "." + name
}

// DeadEventSubject returns the subject of events that could not be processed, in StreamDeadEvents.
func DeadEventSubject(name string) string { return Prefix + "dead_event." + name }

// InstanceKey returns an instance's key in BucketInstances.
func InstanceKey(group, instance string) string { return group + "." + instance }

// InstanceSubject returns the subject that stores the value of a key in BucketInstances.
func InstanceSubject(key string) string { return "$KV." + BucketInstances + "." + key }

// SplitInstanceKey is the inverse of InstanceKey. ok is false if key is not an instance key.
func SplitInstanceKey(key string) (group, instance string, ok bool) {
	group, instance, ok = strings.Cut(key, ".")
	return group, instance, ok && group != "" && instance != "" && !strings.Contains(instance, ".")
}

// GroupOfSubject returns the group in a result or log subject. It is the last token.
func GroupOfSubject(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// ValidInstance reports whether s is a valid instance name. A name is one NATS token without characters that have a
// meaning in NATS: up to 128 characters, of which the first is an ASCII letter or digit and the others are ASCII
// letters, digits, underscores or hyphens.
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
