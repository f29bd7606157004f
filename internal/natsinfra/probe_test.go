package natsinfra_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

// A write succeeds while JetStream has the stream and space, and the stream keeps one message.
func TestWrite(t *testing.T) {
	ctx := context.Background()
	js := newJetStream(t, natsinfra.StorageBytes)
	if err := natsinfra.Write(ctx, js); !errors.Is(err, natsinfra.ErrNoStream) || domain.CodeOf(err) != domain.Unavailable {
		t.Errorf("without the streams: %v", err)
	}
	if err := natsinfra.Ensure(ctx, js, 1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := natsinfra.Write(ctx, js); err != nil {
			t.Error(err)
		}
	}
	if n := info(t, js, natsinfra.Probe).State.Msgs; n != 1 {
		t.Errorf("the stream has %d messages", n)
	}
	if err := js.DeleteStream(ctx, natsinfra.Probe); err != nil {
		t.Fatal(err)
	}
	if err := natsinfra.Write(ctx, js); !errors.Is(err, natsinfra.ErrNoStream) {
		t.Errorf("after the stream was deleted: %v", err)
	}
}

// If the storage of the server is used up, a write fails.
func TestWriteWithoutSpace(t *testing.T) {
	ctx := context.Background()
	const limit = 4 << 20
	js := newJetStream(t, limit)
	for _, c := range []jetstream.StreamConfig{
		{Name: natsinfra.Probe, Subjects: []string{"belfry.v1.probe"}, MaxMsgsPerSubject: 1},
		{Name: "OTHER", Subjects: []string{"other"}},
	} {
		if _, err := js.CreateStream(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := natsinfra.Write(ctx, js); err != nil {
		t.Fatal(err)
	}
	var err error
	for sent := 0; sent < 2*limit && err == nil; sent += 64 << 10 {
		_, err = js.Publish(ctx, "other", bytes.Repeat([]byte("x"), 64<<10))
	}
	if err == nil {
		t.Fatal("the server took more than its storage")
	}
	if err := natsinfra.Write(ctx, js); domain.CodeOf(err) != domain.Unavailable {
		t.Errorf("got %v", err)
	}
}
