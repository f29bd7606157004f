package executor

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestNoToken(t *testing.T) {
	for _, tt := range []struct {
		c    Config
		want bool
	}{
		{Config{NATSURL: "nats://a:4222, nats://b:4222"}, true},
		{Config{NATSURL: "nats://a:4222", Token: "t"}, false},
		{Config{NATSURL: "nats://a:4222, nats://t@b:4222"}, false},
		{Config{NATSURL: "nats://a:4222", NATSOptions: []nats.Option{nats.UserCredentials("file")}}, false},
	} {
		if got := (&link{config: tt.c}).noToken(); got != tt.want {
			t.Errorf("%q: %v, want %v", tt.c.NATSURL, got, tt.want)
		}
	}
}

func TestPaceOfReconnecting(t *testing.T) {
	l := &link{config: Config{Token: "t"}, unleased: new(unleased), log: quietLogger()}
	within := func(what string, got, least, most time.Duration) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: %v, want %v to %v", what, got, least, most)
		}
	}
	within("the first try of an outage", l.delay(0), reconnectFirst/2, reconnectFirst)
	within("a long outage", l.delay(1000), reconnectLast/2, reconnectLast)
	l.complain(nats.ErrAuthorization)
	within("the first refusal, after a long outage", l.delay(1000), reconnectFirst/2, reconnectFirst)
	for range 100 {
		l.complain(nats.ErrAuthorization)
	}
	within("the last refusal", l.delay(1), refusedLast/2, refusedLast)
	if got := l.slowest(); got != "30s" {
		t.Errorf("the slowest delay is %s, want 30s", got)
	}
	l.complain(errors.New("connection refused"))
	within("an outage after refusals", l.delay(1000), reconnectLast/2, reconnectLast)
}

// TestLogInRunsOut verifies that the ordinary expiry of a log-in is not treated as a refusal.
func TestLogInRunsOut(t *testing.T) {
	var said bytes.Buffer
	l := &link{config: Config{Token: "t"}, unleased: new(unleased), log: slog.New(slog.NewJSONHandler(&said, nil))}
	l.natsError(nil, nats.ErrAuthExpired)
	if l.refused.Load() != 0 || bytes.Contains(said.Bytes(), []byte(`"level":"ERROR"`)) {
		t.Errorf("%d refusals; logged %s", l.refused.Load(), said.Bytes())
	}
}
