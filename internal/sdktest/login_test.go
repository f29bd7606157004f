package sdktest

import (
	"context"
	"strings"
	"testing"

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
