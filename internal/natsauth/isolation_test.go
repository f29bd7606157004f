package natsauth_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

// foreign lists subjects to which an executor of group a must not be able to subscribe.
var foreign = []string{
	">", "*", "*.>", "*.*.*.*.*", "belfry.>", "belfry.v1.>", "belfry.*.trigger.a.>",
	"belfry.v1.trigger.>", "belfry.v1.trigger.*", "belfry.v1.trigger.*.>", "belfry.v1.trigger.*.i1",
	"belfry.v1.trigger.a.>", "belfry.v1.trigger.a.*", "belfry.v1.trigger.a.i2", "belfry.v1.control.a.>", "belfry.v1.control.a.i2", // of siblings
	"belfry.v1.trigger.b.>", "belfry.v1.trigger.b.i1", "belfry.v1.trigger.a_b.i1", "belfry.v1.trigger.a",
	"belfry.v1.control.>", "belfry.v1.control.*.*", "belfry.v1.control.b.i1",
	"belfry.v1.result.>", "belfry.v1.result.*", "belfry.v1.result.b", "belfry.v1.result.a",
	"belfry.v1.log.>", "belfry.v1.log.b", "belfry.v1.log.a", "belfry.v1.event.>", "belfry.v1.dead.>", "belfry.v1.run.b", "belfry.v1.run.>", "belfry.v1.run.*", "belfry.v1.run.a.>", "belfry.v1.run",
	"$KV.>", "$KV.belfry_instances.>", "$KV.belfry_instances.b.i1", "$KV.*.b.*",
	"$JS.>", "$JS.API.>", "$JS.ACK.>", "$JS.EVENT.>", "$SYS.>", "$SYS.REQ.USER.AUTH",
	"_INBOX.>", "_INBOX.*", "_INBOX_b.>", "_INBOX_a_b.>", "_INBOX_b", "_R_.>", "_GR_.>",
}

func TestExecutorCannotListenElsewhere(t *testing.T) {
	w := newWorld(t, 0)
	for _, subject := range foreign {
		t.Run(subject, func(t *testing.T) {
			a := w.executor(t, "token-a", "a")
			if _, err := a.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
			if !a.refused(t) {
				t.Error("subscribed")
			}
			if _, err := a.QueueSubscribeSync(subject, "belfry_auth"); err != nil {
				t.Fatal(err)
			}
			if !a.refused(t) {
				t.Error("subscribed as a queue")
			}
		})
	}
}

// A client with the group's token may subscribe to the state changes of the group's runs.
func TestGroupHearsOfItsRuns(t *testing.T) {
	w := newWorld(t, 0)
	a := w.executor(t, "token-a", "a")
	sub, err := a.SubscribeSync(wire.RunSubject("a"))
	if err != nil {
		t.Fatal(err)
	}
	if a.refused(t) {
		t.Fatal("refused")
	}
	if err := w.system.Publish(wire.RunSubject("a"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	receive(t, sub)
}

// An observer is a client with the group's token whose client name is not that of an executor. It may receive the changes of
// the group's runs, and nothing else.
func TestObserver(t *testing.T) {
	w := newWorld(t, 0)
	for _, name := range []string{"", "dashboard", "b.i1"} {
		o := w.executor(t, "token-a", "a", nats.Name(name))
		sub, err := o.SubscribeSync(wire.RunSubject("a"))
		if err != nil {
			t.Fatal(err)
		}
		if o.refused(t) {
			t.Fatalf("%q: refused", name)
		}
		if err := w.system.Publish(wire.RunSubject("a"), []byte("{}")); err != nil {
			t.Fatal(err)
		}
		receive(t, sub)
		for _, subject := range append([]string{"belfry.v1.trigger.a.i1", "belfry.v1.control.a.i1", "_INBOX_a.>"}, foreign...) {
			o := w.executor(t, "token-a", "a", nats.Name(name))
			if _, err := o.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
			if !o.refused(t) {
				t.Errorf("%q: subscribed to %s", name, subject)
			}
		}
		for _, subject := range append([]string{"belfry.v1.result.a", "belfry.v1.log.a", "$KV.belfry_instances.a.i1"}, beyond...) {
			o := w.executor(t, "token-a", "a", nats.Name(name))
			if err := o.Publish(subject, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if !o.refused(t) {
				t.Errorf("%q: published to %s", name, subject)
			}
		}
	}
}

// beyond lists subjects to which an executor of group a must not be able to publish.
var beyond = []string{
	"belfry.v1.trigger.b.i1", "belfry.v1.trigger.a.i1", "belfry.v1.control.b.i1", "belfry.v1.control.a.i1",
	"belfry.v1.result.b", "belfry.v1.result.a_b", "belfry.v1.result.a.b", "belfry.v1.log.b", "belfry.v1.event.orders",
	"belfry.v1.run.a", "belfry.v1.dead.x", "belfry.v2.result.a", "belfry.v1.login.changed", "belfry.v1.login.closed",
	"$KV.belfry_instances.a.i2", "$KV.belfry_instances.a.i1x", "$KV.belfry_instances.a.*", // of siblings
	"$KV.belfry_instances.b.i1", "$KV.belfry_instances.a_b.i1", "$KV.belfry_instances.a", "$KV.belfry_instances.a.i1.x",
	"$KV.other.a.i1",
	"$JS.API.INFO", "$JS.API.ACCOUNT.PURGE.BELFRY",
	"$JS.API.STREAM.INFO.KV_belfry_instances", "$JS.API.STREAM.INFO.BELFRY_RESULTS", "$JS.API.STREAM.LIST",
	"$JS.API.STREAM.NAMES", "$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.UPDATE.BELFRY_RESULTS",
	"$JS.API.STREAM.DELETE.BELFRY_RESULTS", "$JS.API.STREAM.PURGE.BELFRY_RESULTS", "$JS.API.STREAM.MSG.GET.BELFRY_RESULTS",
	"$JS.API.STREAM.MSG.DELETE.BELFRY_RESULTS", "$JS.API.STREAM.SNAPSHOT.BELFRY_RESULTS", "$JS.API.STREAM.RESTORE.MINE",
	"$JS.API.DIRECT.GET.KV_belfry_instances", "$JS.API.DIRECT.GET.KV_belfry_instances.$KV.belfry_instances.b.i1",
	"$JS.API.DIRECT.GET.KV_belfry_instances.$KV.belfry_instances.a.i1",
	"$JS.API.CONSUMER.CREATE.BELFRY_RESULTS", "$JS.API.CONSUMER.CREATE.BELFRY_RESULTS.c",
	"$JS.API.CONSUMER.CREATE.KV_belfry_instances.c.$KV.belfry_instances.a.>",
	"$JS.API.CONSUMER.DURABLE.CREATE.BELFRY_RESULTS.c", "$JS.API.CONSUMER.LIST.BELFRY_RESULTS",
	"$JS.API.CONSUMER.INFO.BELFRY_RESULTS.c", "$JS.API.CONSUMER.DELETE.BELFRY_RESULTS.c",
	"$JS.API.CONSUMER.MSG.NEXT.BELFRY_RESULTS.c", "$JS.ACK.BELFRY_RESULTS.c.1.1.1.1.1", "$JS.FC.BELFRY_RESULTS.x",
	"$SYS.REQ.USER.INFO", "$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.X.KICK", "$SYS.REQ.ACCOUNT.BELFRY.CONNZ",
	"_INBOX.x", "_INBOX_b.x", "_INBOX_a.x",
}

func TestExecutorCannotPublishElsewhere(t *testing.T) {
	w := newWorld(t, 0)
	for _, subject := range beyond {
		t.Run(subject, func(t *testing.T) {
			a := w.executor(t, "token-a", "a")
			if err := a.Publish(subject, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if !a.refused(t) {
				t.Error("published")
			}
		})
	}
	// An executor must not publish log-in requests either.
	a := w.executor(t, "token-a", "a")
	if err := a.Publish("$SYS.REQ.USER.AUTH", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if !a.refused(t) {
		t.Error("published a log-in request")
	}
}

// The client library's JetStream functions must fail as well, within their deadline.
func TestExecutorCannotUseJetStreamAPI(t *testing.T) {
	w := newWorld(t, 0)
	attempts := map[string]func(context.Context, jetstream.JetStream) error{
		"open the bucket": func(ctx context.Context, js jetstream.JetStream) error {
			_, err := js.KeyValue(ctx, natsinfra.Instances)
			return err
		},
		"open a stream": func(ctx context.Context, js jetstream.JetStream) error {
			_, err := js.Stream(ctx, natsinfra.Results)
			return err
		},
		"create a consumer": func(ctx context.Context, js jetstream.JetStream) error {
			_, err := js.CreateConsumer(ctx, natsinfra.Results, jetstream.ConsumerConfig{FilterSubject: "belfry.v1.result.a"})
			return err
		},
		"create a stream": func(ctx context.Context, js jetstream.JetStream) error {
			_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "MINE", Subjects: []string{"mine"}})
			return err
		},
		"see the account": func(ctx context.Context, js jetstream.JetStream) error {
			_, err := js.AccountInfo(ctx)
			return err
		},
	}
	for name, attempt := range attempts {
		t.Run(name, func(t *testing.T) {
			js, err := jetstream.New(w.executor(t, "token-a", "a").Conn)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			if attempt(ctx, js) == nil {
				t.Error("allowed")
			}
		})
	}
}

// JetStream obeys some headers of a message. None of them may affect anything but the publisher's own key.
func TestHostileHeaders(t *testing.T) {
	w := newWorld(t, 0)
	ctx := context.Background()
	kv, err := w.js.KeyValue(ctx, natsinfra.Instances)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(ctx, "b.i1", "alive"); err != nil {
		t.Fatal(err)
	}
	trace, err := w.system.SubscribeSync("belfry.v1.trigger.b.i1")
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(w.executor(t, "token-a", "a").Conn)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ header, value string }{
		{"Nats-Rollup", "all"},
		{"Nats-Rollup", "sub"},
		{"Nats-TTL", "never"},
		{"Nats-TTL", "1s"},
		{"Nats-Schedule", "@every 1s"},
		{"Nats-Batch-Id", "x"},
		{"Nats-Incr", "1"},
	}
	for _, test := range tests {
		msg := nats.NewMsg("$KV.belfry_instances.a.i1")
		msg.Header.Set(test.header, test.value)
		if test.header == "Nats-Batch-Id" {
			msg.Header.Set("Nats-Batch-Sequence", "1")
			msg.Header.Set("Nats-Batch-Commit", "1")
		}
		if _, err := js.PublishMsg(ctx, msg); err == nil {
			t.Errorf("%s: %s was taken", test.header, test.value)
		}
	}
	msg := nats.NewMsg("belfry.v1.result.a")
	msg.Header.Set("Nats-Trace-Dest", "belfry.v1.trigger.b.i1")
	if _, err := js.PublishMsg(ctx, msg); err != nil {
		t.Logf("traced publish: %v", err)
	}
	if _, err := js.Publish(ctx, "belfry.v1.result.a", nil); err != nil {
		t.Fatal(err)
	}
	if err := w.system.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := trace.Pending(); err != nil || n != 0 {
		t.Errorf("a trace reached another group's trigger: %d messages, %v", n, err)
	}
	if entry, err := kv.Get(ctx, "b.i1"); err != nil || string(entry.Value()) != "alive" {
		t.Errorf("another group's heartbeat is gone: %v", err)
	}
}

// An executor can direct the acknowledgement of a message to any subject. It must not be able to choose the content of
// the acknowledgement, or to make the JetStream API act on it.
func TestReplySubjectsElsewhere(t *testing.T) {
	w := newWorld(t, 0)
	ctx := context.Background()
	victim, err := w.system.SubscribeSync("belfry.v1.trigger.b.i1")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.system.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := w.js.Publish(ctx, "belfry.v1.result.b", []byte("kept")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.js.CreateConsumer(ctx, natsinfra.Results, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	a := w.executor(t, "token-a", "a")
	for _, reply := range []string{
		"$JS.API.STREAM.PURGE.BELFRY_RESULTS", "$JS.API.STREAM.DELETE.BELFRY_RESULTS",
		"$JS.API.STREAM.UPDATE.BELFRY_RESULTS", "$JS.API.STREAM.MSG.DELETE.BELFRY_RESULTS",
		"$JS.API.CONSUMER.DELETE.BELFRY_RESULTS.c", "$JS.API.CONSUMER.PAUSE.BELFRY_RESULTS.c",
		"belfry.v1.trigger.b.i1", // last: when it arrives, the server has processed the others
	} {
		msg := nats.NewMsg("belfry.v1.result.a")
		msg.Reply = reply
		msg.Data = []byte(`{"v":1,"offers":[]}`)
		if err := a.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	if got := receive(t, victim); !bytes.HasPrefix(got.Data, []byte(`{"stream":"BELFRY_RESULTS","seq":`)) {
		t.Errorf("the executor chose what another group's instance got: %s", got.Data)
	}
	stream, err := w.js.Stream(ctx, natsinfra.Results)
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.State.FirstSeq != 1 || info.State.Msgs != 10 {
		t.Errorf("messages were removed: %+v", info.State)
	}
	consumer, err := w.js.Consumer(ctx, natsinfra.Results, "c")
	if err != nil {
		t.Fatal(err)
	}
	if consumer.CachedInfo().Paused {
		t.Error("the consumer was paused")
	}
	if err := a.PublishMsg(&nats.Msg{Subject: "belfry.v1.result.a", Reply: "$JS.ACK.BELFRY_RESULTS.c.1.1.1.1.1"}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.refusals:
	case <-time.After(bound):
		t.Error("an acknowledgement subject was taken as a reply subject")
	}
}

// One message gives the right to one answer.
func TestOneAnswerPerRequest(t *testing.T) {
	w := newWorld(t, 0)
	a := w.executor(t, "token-a", "a")
	if _, err := a.Subscribe("belfry.v1.trigger.a.i1", func(msg *nats.Msg) {
		for range 2 {
			_ = msg.Respond([]byte("yes"))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(); err != nil {
		t.Fatal(err)
	}
	inbox, err := w.system.SubscribeSync(w.system.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.system.PublishRequest("belfry.v1.trigger.a.i1", inbox.Subject, nil); err != nil {
		t.Fatal(err)
	}
	receive(t, inbox)
	if !a.refused(t) {
		t.Error("a second answer was allowed")
	}
	if _, err := inbox.NextMsg(50 * time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("a second answer came: %v", err)
	}
}
