package sdktest

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor"
)

// runLogged runs an executor that never sends its first heartbeat until look returns.
func runLogged(t *testing.T, c executor.Config, look func(*logbook)) {
	t.Helper()
	book := newLogbook()
	c.Logger = book.logger()
	e, err := executor.New(c)
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
		book.await(t, "still refuses a log-in", `"within":"200ms"`)
		if errs := book.lines(`"level":"ERROR"`); len(errs) != 1 || !strings.Contains(errs[0], "without a token") || !strings.Contains(errs[0], "BELFRY_TOKEN") {
			t.Errorf("errors logged: %q", errs)
		}
	})
	c.Token = "wrong"
	runLogged(t, c, func(book *logbook) {
		book.await(t, `"level":"ERROR"`, "refuses the token", `"within":"200ms"`)
		if said := book.lines("without a token"); len(said) > 0 {
			t.Errorf("logged with a token: %q", said)
		}
	})
}

// TestTokenOfAnotherGroup runs an executor of group other with the token of group g.
func TestTokenOfAnotherGroup(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.Group = "other"
	runLogged(t, c, func(book *logbook) {
		book.await(t, "still belongs to another group", `"within":"200ms"`)
		if errs := book.lines(`"level":"ERROR"`); len(errs) != 1 || !strings.Contains(errs[0], "this token does not belong to group other") {
			t.Errorf("errors logged: %q", errs)
		}
	})
}

// TestRefusedWhileReconnecting makes the token invalid during an outage and later valid again.
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

// TestStatusSaysWhyThereIsNoLease covers the reasons that an operator can remove.
func TestStatusSaysWhyThereIsNoLease(t *testing.T) {
	w := newWorld(t)
	await := func(e *executor.Executor, want string) {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(patience); e.Status().Leased || e.Status().Unleased != want; <-tick.C {
			if time.Now().After(deadline) {
				t.Fatalf("the status is %+v, want %q", e.Status(), want)
			}
		}
	}
	for want, edit := range map[string]func(*executor.Config){
		"token refused, or no dispatcher answers log-ins": func(c *executor.Config) { c.Token = "wrong" },
		"no token is set": func(c *executor.Config) { c.Token = "" },
		"token refused, it belongs to another group": func(c *executor.Config) { c.Group = "other" },
		"nats: not connected":                        func(c *executor.Config) { c.NATSURL = "nats://127.0.0.1:1" },
	} {
		c := w.config()
		edit(&c)
		e, err := executor.New(c)
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		await(e, want)
		tick := time.NewTicker(10 * time.Millisecond)
		for range 20 { // the closed connection is reported later, and must not replace the reason
			<-tick.C
			if s := e.Status(); s.Unleased != want {
				t.Errorf("after the reason %q, the status is %+v", want, s)
			}
		}
		tick.Stop()
		cancel()
		must(t, <-done)
	}

	var jump atomic.Int64
	c := w.config()
	c.Clock = func() time.Time { return time.Now().Add(time.Duration(jump.Load())) }
	i := w.start(c, nil)
	if s := i.e.Status(); !s.Leased || s.Unleased != "" {
		t.Errorf("with a lease: %+v", s)
	}
	w.stopServer()
	jump.Store(int64(time.Minute))
	await(i.e, "nats: not connected")
	w.refuse.Store(true)
	w.startServer()
	await(i.e, "token refused, or no dispatcher answers log-ins")
	w.refuse.Store(false)
	for tick := time.NewTicker(10 * time.Millisecond); !i.e.Status().Leased; <-tick.C {
	}
	must(t, i.end())
}
