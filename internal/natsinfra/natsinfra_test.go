package natsinfra_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/embednats"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newJetStream(t *testing.T, maxStoreBytes int64) jetstream.JetStream {
	t.Helper()
	ctx := context.Background()
	s, err := embednats.Start(ctx, embednats.Config{StoreDir: t.TempDir(), MaxStoreBytes: maxStoreBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	nc, err := nats.Connect(s.URL(), append(s.SystemOptions(), nats.Timeout(time.Minute))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func info(t *testing.T, js jetstream.JetStream, name string) *jetstream.StreamInfo {
	t.Helper()
	s, err := js.Stream(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo()
}

var names = []string{natsinfra.Results, natsinfra.Logs, natsinfra.Events, natsinfra.Dead, natsinfra.DeadEvents, natsinfra.Overflow, natsinfra.Probe, "KV_" + natsinfra.Instances}

func TestEnsureConcurrentlyAndTwice(t *testing.T) {
	js := newJetStream(t, natsinfra.StorageBytes)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := natsinfra.Ensure(context.Background(), js, 1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var sum int64
	for _, name := range names {
		c := info(t, js, name).Config
		// Executors must not be able to use these features through a header of a message.
		if c.AllowRollup || c.AllowMsgTTL || c.AllowMsgSchedules || c.AllowAtomicPublish || c.AllowMsgCounter {
			t.Errorf("%s obeys headers: %+v", name, c)
		}
		if c.MaxBytes <= 0 || c.MaxMsgSize <= 0 || c.Storage != jetstream.FileStorage {
			t.Errorf("%s is not bounded or not on disk: %+v", name, c)
		}
		sum += c.MaxBytes
	}
	if sum != natsinfra.StorageBytes {
		t.Errorf("StorageBytes is %d, the streams' sum %d", int64(natsinfra.StorageBytes), sum)
	}
	for name, atLeast := range map[string]time.Duration{natsinfra.Events: 2 * time.Minute, natsinfra.Dead: 2 * time.Minute, natsinfra.DeadEvents: 2 * time.Minute} {
		if c := info(t, js, name).Config; c.Duplicates < atLeast {
			t.Errorf("%s: duplicates %s", name, c.Duplicates)
		}
	}
	// If an executor guesses a Nats-Msg-Id of another group, the stream drops that group's message as a duplicate. The window in which
	// this is possible must be short.
	for _, name := range []string{natsinfra.Results, natsinfra.Logs, "KV_" + natsinfra.Instances} {
		if c := info(t, js, name).Config; c.Duplicates > time.Second {
			t.Errorf("%s: duplicates %s", name, c.Duplicates)
		}
	}
}

func TestEnsureUpdatesAndKeeps(t *testing.T) {
	ctx := context.Background()
	js := newJetStream(t, 0)
	for _, config := range []jetstream.StreamConfig{
		{Name: natsinfra.Results, Subjects: []string{"belfry.v1.result.old"}, Retention: jetstream.WorkQueuePolicy, MaxBytes: 1000_000},
		{Name: natsinfra.Dead, Subjects: []string{"belfry.v1.dead.*"}, MaxAge: time.Hour},
		{Name: natsinfra.Events, Subjects: []string{"belfry.v1.event.>"}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew},
		{Name: "KV_" + natsinfra.Instances, Subjects: []string{"$KV.belfry_instances.>"}, AllowRollup: true, MaxMsgsPerSubject: 5, MaxAge: time.Hour},
	} {
		if _, err := js.CreateStream(ctx, config); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.Publish(ctx, "belfry.v1.result.old", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	if err := natsinfra.Ensure(ctx, js, 1); err != nil {
		t.Fatal(err)
	}
	results := info(t, js, natsinfra.Results)
	if results.State.Msgs != 1 || results.Config.Subjects[0] != "belfry.v1.result.*" || results.Config.MaxBytes < 1<<30 {
		t.Errorf("got %+v", results)
	}
	if c := info(t, js, "KV_"+natsinfra.Instances).Config; c.AllowRollup || c.MaxAge != natsinfra.InstanceTTL || c.MaxMsgsPerSubject != 1 {
		t.Errorf("got %+v", c)
	}
	if c := info(t, js, natsinfra.Dead).Config; c.MaxAge != 14*24*time.Hour || c.MaxMsgsPerSubject != 1000 {
		t.Errorf("got %+v", c)
	}
	if c := info(t, js, natsinfra.Events).Config; !c.DiscardNewPerSubject || c.MaxMsgsPerSubject <= 0 {
		t.Errorf("got %+v", c)
	}
}

func TestWorkQueueRefusesWhenFull(t *testing.T) {
	ctx := context.Background()
	js := newJetStream(t, 0)
	if err := natsinfra.Ensure(ctx, js, 1); err != nil {
		t.Fatal(err)
	}
	// The test lowers the bound, so that it reaches the bound quickly.
	c := info(t, js, natsinfra.Results).Config
	c.MaxMsgsPerSubject = 3
	if _, err := js.UpdateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
	publish := func(subject string) error {
		_, err := js.Publish(ctx, subject, nil)
		return err
	}
	for range 3 {
		if err := publish("belfry.v1.result.a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := publish("belfry.v1.result.a"); err == nil {
		t.Error("a group without a consumer is not limited")
	}
	if err := publish("belfry.v1.result.b"); err != nil {
		t.Errorf("another group is held back too: %v", err)
	}
	consumer, err := js.CreateConsumer(ctx, natsinfra.Results, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := consumer.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := msg.DoubleAck(ctx); err != nil {
		t.Fatal(err)
	}
	if err := publish("belfry.v1.result.a"); err != nil {
		t.Errorf("after one was taken: %v", err)
	}
	if err := js.Conn().Publish("belfry.v1.result.a", make([]byte, 1<<20)); err != nil {
		t.Errorf("a message of the largest size: %v", err)
	}
}

// Dead letters of executors' messages displace no event, and no dead letters of two streams have the same sequence, also after the
// settings were updated.
func TestDeadEventsHaveTheirOwnStream(t *testing.T) {
	ctx := t.Context()
	js := newJetStream(t, natsinfra.StorageBytes)
	for range 2 {
		if err := natsinfra.Ensure(ctx, js, 1); err != nil {
			t.Fatal(err)
		}
	}
	ack, err := js.Publish(ctx, wire.DeadEventSubject("orders.created"), []byte("kept"))
	if err != nil || ack.Stream != natsinfra.DeadEvents || ack.Sequence != wire.FirstDeadEvent {
		t.Fatalf("stored as %+v, %v", ack, err)
	}
	if ack, err := js.Publish(ctx, wire.DeadSubject("result", "a"), nil); err != nil || ack.Stream != natsinfra.Dead || ack.Sequence != 1 {
		t.Errorf("stored as %+v, %v", ack, err)
	}
	if c := info(t, js, natsinfra.DeadEvents).Config; c.MaxBytes != 128<<20 || c.MaxMsgsPerSubject != 1000 || c.MaxAge != 14*24*time.Hour {
		t.Errorf("settings %+v", c)
	}
}

// A group with too many dead letters loses its oldest ones. Those of other groups and kinds stay.
func TestDeadLettersOfAGroup(t *testing.T) {
	ctx := context.Background()
	js := newJetStream(t, 0)
	if err := natsinfra.Ensure(ctx, js, 1); err != nil {
		t.Fatal(err)
	}
	const others = 2
	for _, subject := range []string{"belfry.v1.dead.result.b", "belfry.v1.dead.log.a"} {
		if _, err := js.Publish(ctx, subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 1001 {
		if _, err := js.Publish(ctx, "belfry.v1.dead.result.a", nil); err != nil {
			t.Fatal(err)
		}
	}
	s, err := js.Stream(ctx, natsinfra.Dead)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1000+others {
		t.Errorf("%d letters are kept", n)
	}
	if m, err := s.GetMsg(ctx, 1, jetstream.WithGetMsgSubject("belfry.v1.dead.result.a")); err != nil || m.Sequence != others+2 {
		t.Errorf("the oldest of the group is %+v, %v", m, err)
	}
}

// If an event name has reached its bound, further events of this name are refused, and events of other names are not.
func TestEventsOfAName(t *testing.T) {
	ctx := context.Background()
	js := newJetStream(t, 0)
	if err := natsinfra.Ensure(ctx, js, 1); err != nil {
		t.Fatal(err)
	}
	c := info(t, js, natsinfra.Events).Config
	c.MaxMsgsPerSubject = 1 // so that the test reaches it quickly
	if _, err := js.UpdateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		name    string
		refused bool
	}{{"orders.created", false}, {"orders.created", true}, {"orders.paid", false}} {
		_, err := js.Publish(ctx, "belfry.v1.event."+p.name, nil)
		if api := (*jetstream.APIError)(nil); errors.As(err, &api) != p.refused {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

func TestBucketForWatchers(t *testing.T) {
	ctx := context.Background()
	js := newJetStream(t, 0)
	if err := natsinfra.Ensure(ctx, js, 1); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(ctx, natsinfra.Instances)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Add(-time.Second) // the server uses the clock of this machine
	for _, value := range []string{"1", "2"} {
		if _, err := kv.PutString(ctx, "a.i1", value); err != nil {
			t.Fatal(err)
		}
	}
	watch, err := kv.WatchAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Stop() }()
	entry := <-watch.Updates()
	if entry == nil || string(entry.Value()) != "2" || entry.Created().Before(begin) {
		t.Fatalf("got %+v", entry)
	}
	if entry := <-watch.Updates(); entry != nil {
		t.Fatalf("more than the last value: %+v", entry)
	}
	if err := kv.Delete(ctx, "a.i1"); err != nil {
		t.Fatal(err)
	}
	if entry := <-watch.Updates(); entry.Operation() != jetstream.KeyValueDelete {
		t.Errorf("got %+v", entry)
	}
}

func TestEnsureErrors(t *testing.T) {
	ctx := context.Background()
	small := newJetStream(t, 1<<20)
	if err := natsinfra.Ensure(ctx, small, 1); err == nil {
		t.Error("streams larger than the storage were created")
	}
	if err := natsinfra.Ensure(ctx, newJetStream(t, 0), 3); err == nil {
		t.Error("three replicas on one server")
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	err := natsinfra.Ensure(cancelled, small, 1)
	if domain.CodeOf(err) != domain.Unavailable || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
