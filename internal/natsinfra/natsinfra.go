// Package natsinfra creates the JetStream streams and the instance bucket that Belfry uses, and updates their settings
// to those of this version.
//
// NATS transports the data and Postgres holds the truth, so the streams may be deleted at any time: call Ensure at
// start and after each reconnect, and executors send unsettled results again.
//
// Executors publish into three of the streams, and JetStream obeys the headers of publishers. The settings prevent one
// group's headers from affecting another group's messages. Roll-ups are off, because Nats-Rollup: all would purge the
// stream. Message TTLs are off. Where executors publish, the duplicate window is the shortest possible, because
// Nats-Msg-Id is compared over all subjects, and a guessed id would suppress another group's message. Settling is
// idempotent and needs no such window.
package natsinfra

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// Names of the streams and the bucket.
const (
	Results    = "BELFRY_RESULTS"
	Logs       = "BELFRY_LOGS"
	Events     = "BELFRY_EVENTS"
	Dead       = "BELFRY_DEAD"
	DeadEvents = "BELFRY_DEAD_EVENTS"
	Overflow   = "BELFRY_OVERFLOW"
	Probe      = "BELFRY_PROBE"
	Instances  = "belfry_instances" // bucket; its stream is KV_belfry_instances
)

// InstanceTTL is how long a heartbeat stays in the bucket. Watchers get no marker when a key expires: markers need
// roll-ups, and those would let one executor delete every group's heartbeats. So each watcher keeps its own deadline
// for each key.
const InstanceTTL = 10 * time.Second

const (
	kib = 1 << 10
	mib = 1 << 20

	// The server's own bound on a message, max_payload, is 1 MiB by default.
	maxMessageBytes = mib
	// If no dispatcher takes a group's results or logs, the group reaches this bound before it fills the stream for all
	// other groups.
	maxMessagesPerGroup = 50_000
	// Publishers of events have no groups, so the same bound holds for each name of an event.
	maxEventsPerName = 50_000
	// Messages in the overflow have up to 1 MiB, because dispatchers pack small results. So one group can fill at most a
	// quarter of the stream.
	maxOverflowPerGroup = 64
	maxDeadPerGroup     = 1000
	noDuplicates        = 100 * time.Millisecond // the minimum that the server accepts

	// bucketBytes bounds the heartbeats of all groups. With the default limits, a group has at most 1000 heartbeats of 16 KiB.
	// For about a second, until the dispatchers remove the excess, it can have a heartbeat of 64 KiB for each of its 2000
	// connections.
	bucketBytes = 1024 * mib

	attempts   = 5
	retryAfter = 200 * time.Millisecond
)

// StorageBytes is the sum of all streams' bounds. A server with less JetStream storage refuses to create the streams.
const StorageBytes = 2*1024*mib + 512*mib + 256*mib + 128*mib + 256*mib + probeBytes + bucketBytes

// Ensure creates missing streams and updates those that differ. Any number of processes may call it at once. Replicas
// is 1 or, in a cluster, 3. A stream with more replicas keeps them; otherwise one role that is started without its
// setting would reduce them for all. The error has code unavailable if NATS cannot answer, and invalid if the server
// refuses a setting.
func Ensure(ctx context.Context, js jetstream.JetStream, replicas int) error {
	for _, config := range streams(replicas) {
		if err := ensure(ctx, js, config); err != nil {
			return err
		}
	}
	return nil
}

func ensure(ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig) error {
	var err error
	for try := range attempts {
		if try > 0 {
			select {
			case <-ctx.Done():
				return domain.WrapError(domain.Unavailable, "create stream "+config.Name, ctx.Err())
			case <-time.After(retryAfter):
			}
		}
		if stream, found := js.Stream(ctx, config.Name); found == nil {
			config.Replicas = max(config.Replicas, stream.CachedInfo().Config.Replicas)
		}
		if _, err = js.CreateOrUpdateStream(ctx, config); err == nil {
			return nil
		}
		// Between the look-up and the creation, another process may have created the stream with older settings, or the
		// leader may change. Both are transient; a refused setting is not.
		if refused(err) {
			return domain.WrapError(domain.Invalid, "create stream "+config.Name, err)
		}
	}
	return domain.WrapError(domain.Unavailable, "create stream "+config.Name, err)
}

func refused(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case jetstream.JSErrCodeStreamNameInUse, jetstream.JSErrCodeStreamNotFound:
		return false
	}
	return api.Code >= 400 && api.Code < 500
}

func streams(replicas int) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		fromExecutors(Results, "belfry.v1.result.*", "Results that executors report, until they are settled.", replicas),
		fromExecutors(Logs, "belfry.v1.log.*", "Run log lines, until they are stored.", replicas),
		{
			Name:        Events,
			Description: "Events that may trigger jobs, until they are matched.",
			Subjects:    []string{"belfry.v1.event.>"},
			Retention:   jetstream.WorkQueuePolicy,
			Storage:     jetstream.FileStorage,
			Discard:     jetstream.DiscardNew,
			// Further events of a name that has reached its bound are refused. Other names are not affected.
			DiscardNewPerSubject: true,
			MaxMsgsPerSubject:    maxEventsPerName,
			MaxBytes:             512 * mib,
			MaxMsgSize:           maxMessageBytes,
			// Other publishers may repeat an event after a lost acknowledgement.
			Duplicates: 5 * time.Minute,
			DenyDelete: false, // a work queue deletes acknowledged messages
			Replicas:   replicas,
		},
		// The subject of a dead letter names its kind and group.
		dead(Dead, "belfry.v1.dead.>", "Messages that could not be processed, with the error.", 256*mib, 0, replicas),
		// Executors can fill the stream above with other messages, which must not displace events that can be replayed.
		dead(DeadEvents, "belfry.v1.dead_event.>", "Events that could not be processed, with the error.", 128*mib, wire.FirstDeadEvent, replicas),
		{
			Name:                 Overflow,
			Description:          "Results of groups that exceed their share of a dispatcher's memory, until they are settled.",
			Subjects:             []string{"belfry.v1.overflow.result.*"},
			Retention:            jetstream.WorkQueuePolicy,
			Storage:              jetstream.FileStorage,
			Discard:              jetstream.DiscardNew,
			DiscardNewPerSubject: true,
			MaxMsgsPerSubject:    maxOverflowPerGroup,
			MaxBytes:             256 * mib,
			MaxMsgSize:           maxMessageBytes,
			Duplicates:           noDuplicates,
			Replicas:             replicas,
		},
		probe(replicas),
		instances(replicas),
	}
}

func dead(name, subject, description string, maxBytes int64, first uint64, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              name,
		Description:       description,
		Subjects:          []string{subject},
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardOld,
		MaxAge:            14 * 24 * time.Hour,
		MaxBytes:          maxBytes,
		MaxMsgSize:        maxMessageBytes,
		MaxMsgsPerSubject: maxDeadPerGroup,
		FirstSeq:          first,
		Duplicates:        2 * time.Minute,
		Replicas:          replicas,
	}
}

func fromExecutors(name, subject, description string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                 name,
		Description:          description,
		Subjects:             []string{subject},
		Retention:            jetstream.WorkQueuePolicy,
		Storage:              jetstream.FileStorage,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
		MaxMsgsPerSubject:    maxMessagesPerGroup,
		MaxBytes:             1024 * mib,
		MaxMsgSize:           maxMessageBytes,
		Duplicates:           noDuplicates,
		Replicas:             replicas,
	}
}

// instances returns the key-value bucket, in the form of its stream, because nats.go's bucket settings always allow
// roll-ups. The stream is on disk although heartbeats are useless after a restart: a single server loses a stream in
// memory completely, and executors could not send heartbeats until the stream is created again.
func instances(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              "KV_" + Instances,
		Description:       "Heartbeats of executor instances, key <group>.<instance>.",
		Subjects:          []string{"$KV." + Instances + ".>"},
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardNew,
		MaxMsgsPerSubject: 1,
		MaxAge:            InstanceTTL,
		MaxBytes:          bucketBytes,
		MaxMsgSize:        64 * kib,
		Duplicates:        noDuplicates,
		AllowDirect:       true,
		DenyDelete:        true,
		Replicas:          replicas,
	}
}
