package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/embednats"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

// toNATS starts a NATS server for the test, and returns a connection with the rights of the roles.
func toNATS(t *testing.T) *nats.Conn {
	t.Helper()
	server, err := embednats.Start(t.Context(), embednats.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.WithoutCancel(t.Context())) })
	nc, err := nats.Connect(server.URL(), append(server.SystemOptions(), nats.Timeout(patience))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Streams that were deleted while the connection stays are created again, because the probe finds that no server answers for its
// stream. /readyz names what is unavailable.
func TestDeletedStreams(t *testing.T) {
	nc := toNATS(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}

	p := &process{app: &App{}, log: slog.New(slog.DiscardHandler), registry: prometheus.NewRegistry()}
	v := &servers{nc: nc, lost: make(chan struct{}, 1)}
	said := func(context.Context, error) {}
	v.postgres = newProbe("postgres", 0, func(context.Context) error { return errors.New("read-only") }, said)
	v.jetStream = newProbe("jetstream", 0, func(ctx context.Context) error { return v.write(ctx, js) }, said)
	if err := p.addStreams(nc, v, 1, true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	<-v.jetStream.ready

	w := httptest.NewRecorder()
	v.readyz(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	if w.Code != http.StatusServiceUnavailable || w.Body.String() != "unavailable: postgres\n" {
		t.Errorf("/readyz: %d %s", w.Code, w.Body)
	}
	for _, name := range []string{natsinfra.Results, natsinfra.Probe} {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.write(t.Context(), js); err != nil && !errors.Is(err, natsinfra.ErrNoStream) {
		t.Errorf("without the stream: %v", err)
	}
	for err = errors.New("deleted"); err != nil && t.Context().Err() == nil; {
		_, err = js.StreamNameBySubject(t.Context(), "belfry.v1.result.g")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
