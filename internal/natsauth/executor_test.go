package natsauth_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/internal/natsinfra"
)

// TestMinimalExecutor does everything that an executor needs with its token and inbox prefix alone.
func TestMinimalExecutor(t *testing.T) {
	w := newWorld(t, 0)
	ctx := context.Background()
	a := w.executor(t, "token-a", "a")
	js, err := jetstream.New(a.Conn)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("heartbeat", func(t *testing.T) {
		kv, err := w.js.KeyValue(ctx, natsinfra.Instances)
		if err != nil {
			t.Fatal(err)
		}
		watch, err := kv.Watch(ctx, "a.*", jetstream.UpdatesOnly())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = watch.Stop() })
		if _, err := js.Publish(ctx, "$KV.belfry_instances.a.i1", []byte("beat")); err != nil {
			t.Fatal(err)
		}
		if entry := <-watch.Updates(); entry.Key() != "a.i1" || string(entry.Value()) != "beat" {
			t.Errorf("got %s %s", entry.Key(), entry.Value())
		}
		// An executor leaves by deleting its key: it publishes the header of a delete.
		bye := nats.NewMsg("$KV.belfry_instances.a.i1")
		bye.Header.Set("KV-Operation", "DEL")
		if _, err := js.PublishMsg(ctx, bye); err != nil {
			t.Fatal(err)
		}
		if entry := <-watch.Updates(); entry.Operation() != jetstream.KeyValueDelete {
			t.Errorf("got %s", entry.Operation())
		}
	})
	for _, subject := range []string{"belfry.v1.trigger.a.i1", "belfry.v1.control.a.i1"} {
		t.Run(subject, func(t *testing.T) {
			if _, err := w.system.Request(subject, nil, bound); !errors.Is(err, nats.ErrNoResponders) {
				t.Fatalf("before anybody listens: %v", err)
			}
			sub, err := a.Subscribe(subject, func(msg *nats.Msg) { _ = msg.Respond(append([]byte("re "), msg.Data...)) })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = sub.Unsubscribe() })
			if err := a.Flush(); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				answer, err := w.system.Request(subject, []byte("offer"), bound)
				if err != nil || string(answer.Data) != "re offer" {
					t.Fatalf("got %v, %v", answer, err)
				}
			}
		})
	}
	for subject, stream := range map[string]string{"belfry.v1.result.a": natsinfra.Results, "belfry.v1.log.a": natsinfra.Logs} {
		t.Run(subject, func(t *testing.T) {
			ack, err := js.Publish(ctx, subject, []byte("one"))
			if err != nil || ack.Stream != stream {
				t.Fatalf("got %v, %v", ack, err)
			}
			future, err := js.PublishAsync(subject, []byte("two"))
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-future.Ok():
			case err := <-future.Err():
				t.Fatal(err)
			}
		})
	}
	select {
	case err := <-a.refusals:
		t.Errorf("something was refused: %v", err)
	default:
	}
}

// The demo executor in the process of standalone logs in with a token like any other executor.
func TestExecutorInProcess(t *testing.T) {
	w := newWorld(t, 0)
	a := w.executor(t, "token-a", "a", w.server.InProcess())
	if err := a.Publish("belfry.v1.result.b", nil); err != nil {
		t.Fatal(err)
	}
	if !a.refused(t) {
		t.Error("an in-process executor is not held to its group")
	}
}
