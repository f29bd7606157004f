package executor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// runLogged runs an executor that will not get as far as its first heartbeat, until look returns.
func runLogged(t *testing.T, c Config, look func(*logbook)) {
	t.Helper()
	book := newLogbook()
	c.Logger = book.logger()
	e, err := New(c)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	defer func() {
		cancel()
		must(t, <-done)
	}()
	look(book)
}

func TestNoTokenIsSaidOnce(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.Token = ""
	runLogged(t, c, func(book *logbook) {
		book.await(t, "still refuses", `"within":"200ms"`)
		if errs := book.lines(`"level":"ERROR"`); len(errs) != 1 || !strings.Contains(errs[0], "no token was given") || !strings.Contains(errs[0], "BELFRY_TOKEN") {
			t.Errorf("errors logged: %q", errs)
		}
	})
	c.Token = "wrong"
	runLogged(t, c, func(book *logbook) {
		book.await(t, `"level":"ERROR"`, "refuses the token", `"within":"200ms"`)
		if said := book.lines("no token was given"); len(said) > 0 {
			t.Errorf("logged with a token: %q", said)
		}
	})
}

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

// TestTokenOfAnotherGroup gives group g's token to an executor of group other.
func TestTokenOfAnotherGroup(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.Group = "other"
	runLogged(t, c, func(book *logbook) {
		book.await(t, "still another group's", `"within":"200ms"`)
		if errs := book.lines(`"level":"ERROR"`); len(errs) != 1 || !strings.Contains(errs[0], "this token is not group other's") {
			t.Errorf("errors logged: %q", errs)
		}
	})
}

// TestRefusedWhileReconnecting takes the token away during an outage and gives it back.
func TestRefusedWhileReconnecting(t *testing.T) {
	w := newWorld(t)
	book := newLogbook()
	c := w.config()
	c.Logger = book.logger()
	i := w.start(c, nil)
	w.stopServer()
	w.refuse.Store(true)
	w.startServer()
	book.await(t, `"level":"ERROR"`, "refuses the token", `"within":"400ms"`)
	w.refuse.Store(false)
	book.await(t, "connected to NATS again")
	must(t, i.end())
}

func TestPaceOfReconnecting(t *testing.T) {
	l := &link{config: Config{Token: "t"}, log: quietLogger()}
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
		t.Errorf("said to be within %s", got)
	}
	l.complain(errors.New("connection refused"))
	within("an outage after refusals", l.delay(1000), reconnectLast/2, reconnectLast)
}

// TestLogInRunsOut shows that the ordinary end of a log-in is no refusal.
func TestLogInRunsOut(t *testing.T) {
	book := newLogbook()
	l := &link{config: Config{Token: "t"}, log: book.logger()}
	l.natsError(nil, nats.ErrAuthExpired)
	if l.refused.Load() != 0 || len(book.lines(`"level":"ERROR"`)) != 0 {
		t.Errorf("%d refusals; logged %q", l.refused.Load(), book.lines())
	}
}
