package natsauth_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/natsauth"
)

func awaitEnd(t *testing.T, what string, ended <-chan nats.Status) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(bound):
		t.Fatal(what + " does not end")
	}
}

// TestReplacedToken checks that a replaced token opens no connection, and that its connections end. A connection with
// the group's other token, and those of other groups, stay.
func TestReplacedToken(t *testing.T) {
	w := newWorld(t, 0)
	a := w.executor(t, "token-a", "a")
	b := w.executor(t, "token-b", "b")
	w.tokens.change(func(v *tokens) { v.groups["token-a2"] = "a" }) // an overlap: both are valid
	a2 := w.executor(t, "token-a2", "a", nats.Name("a.i2"))
	eventually(t, "the connections are counted", func() bool { return w.sessions.Count("a") == 2 && w.sessions.Count("b") == 1 })

	ended := a.StatusChanged(nats.RECONNECTING)
	w.tokens.change(func(v *tokens) { delete(v.groups, "token-a") })
	if err := natsauth.AnnounceChange(w.system, "a"); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, "the connection of a replaced token", ended)
	if w.login(t, nats.Token("token-a")) {
		t.Error("a replaced token was let in")
	}
	for name, other := range map[string]*client{"another group": b, "the new token": a2} {
		if err := other.FlushTimeout(bound); err != nil || other.Reconnects != 0 {
			t.Errorf("the connection of %s ended too: %v", name, err)
		}
	}
	a.Close() // it would continue to log in
	eventually(t, "the connection is not counted any more", func() bool { return w.sessions.Count("a") == 1 })

	// In a later outage, the cache no longer contains the old token.
	w.tokens.change(func(v *tokens) { v.err = domain.NewError(domain.Unavailable, "Postgres is away") })
	if w.login(t, nats.Token("token-a")) {
		t.Error("a replaced token came back in an outage")
	}
	if !w.login(t, nats.Token("token-a2")) {
		t.Error("the new token was refused in an outage")
	}
}

// A token can end without an announcement: its user was disabled or lost a role, an overlap has passed, or the process
// that replaced it died. The periodic check finds it.
func TestTokenEndsUnannounced(t *testing.T) {
	reviews := new(counted)
	w := newWorldWith(t, func(c *natsauth.Config) { reviews.Directory, c.Directory = c.Directory, reviews })
	w.tokens.change(func(v *tokens) { v.sender = "sesame" })
	a := w.executor(t, "token-a", "a")
	s := w.executor(t, "sesame", natsauth.SenderName(7))
	b := w.executor(t, "token-b", "b")
	endedA, endedS := a.StatusChanged(nats.RECONNECTING), s.StatusChanged(nats.RECONNECTING)
	w.tokens.change(func(v *tokens) {
		delete(v.groups, "token-a")
		v.sender = ""
	})
	awaitEnd(t, "the group's connection", endedA)
	awaitEnd(t, "the sender's connection", endedS)
	if err := b.FlushTimeout(bound); err != nil || b.Reconnects != 0 {
		t.Errorf("another group's connection ended too: %v", err)
	}
	// The responder asks about its cache as well.
	before := reviews.n.Load()
	eventually(t, "the responder asks twice, so that it has processed the first answer", func() bool { return reviews.n.Load() >= before+2 })
	w.tokens.change(func(v *tokens) { v.err = domain.NewError(domain.Unavailable, "Postgres is away") })
	for _, token := range []string{"token-a", "sesame"} {
		if w.login(t, nats.Token(token)) {
			t.Errorf("%s came back in an outage", token)
		}
	}
}

// counted counts the questions to a Directory that have begun.
type counted struct {
	natsauth.Directory
	n atomic.Int64
}

func (c *counted) TokensOfGroups(ctx context.Context, groups []string) (map[string][][]byte, error) {
	c.n.Add(1)
	return c.Directory.TokensOfGroups(ctx, groups)
}

// Sessions that start later know the connections that exist, including those beyond a page of the server's list.
func TestSessionsStartLate(t *testing.T) {
	w := newWorld(t, 0)
	a := w.executor(t, "token-a", "a")
	const more = 1100 // over a page
	for range more {
		nc := w.connect(t, nats.Token("token-b"))
		_ = nc
	}
	late := natsauth.NewSessions(natsauth.SessionsConfig{System: w.connect(t, w.server.MonitorOptions()...), Directory: w.tokens})
	keep(t, late.Run)
	eventually(t, "all connections are known", func() bool { return late.Count("a") == 1 && late.Count("b") == more })
	ended := a.StatusChanged(nats.RECONNECTING)
	w.tokens.change(func(v *tokens) { delete(v.groups, "token-a") })
	late.Check()
	awaitEnd(t, "the connection of a replaced token", ended)
}

// A log-in ends with its token, without any check: Postgres may be away then.
func TestLoginEndsWithItsToken(t *testing.T) {
	w := newWorld(t, 0)
	w.tokens.change(func(v *tokens) { v.sender, v.left = "sesame", 3*time.Second })
	s := w.executor(t, "sesame", natsauth.SenderName(7))
	ended := s.StatusChanged(nats.RECONNECTING)
	w.tokens.change(func(v *tokens) { v.err = domain.NewError(domain.Unavailable, "Postgres is away") })
	awaitEnd(t, "the log-in", ended)
	eventually(t, "the cache does not outlive the token", func() bool { return !w.login(t, nats.Token("sesame")) })
}

// While the sessions cannot ask about tokens, no connection ends.
func TestSessionsWhilePostgresIsAway(t *testing.T) {
	w := newWorld(t, 0)
	a := w.executor(t, "token-a", "a")
	w.tokens.change(func(v *tokens) {
		delete(v.groups, "token-a")
		v.err = domain.NewError(domain.Unavailable, "Postgres is away")
	})
	ended := a.StatusChanged(nats.RECONNECTING)
	w.sessions.Check()
	w.sessions.Check()
	if err := a.FlushTimeout(bound); err != nil || a.Reconnects != 0 {
		t.Errorf("ended: %v", err)
	}
	w.tokens.change(func(v *tokens) { v.err = nil })
	w.sessions.Check()
	awaitEnd(t, "the connection after the outage", ended)
}

// The server shows the group of a connection, and of its token no more than a fingerprint.
func TestUserOfConnection(t *testing.T) {
	w := newWorld(t, 0)
	monitor := w.connect(t, w.server.MonitorOptions()...)
	events, err := monitor.SubscribeSync("$SYS.ACCOUNT.BELFRY.CONNECT")
	if err == nil {
		err = monitor.Flush() // or the server may read another connection first
	}
	if err != nil {
		t.Fatal(err)
	}
	w.executor(t, "token-a", "a")
	digest := sha256.Sum256([]byte("token-a"))
	want := `"user": "a.` + hex.EncodeToString(digest[:8]) + `"`
	got := string(receive(t, events).Data)
	if !contains(got, want) || !contains(got, `"name": "a.i1"`) || contains(got, "token-a") {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMaxConnections(t *testing.T) {
	w := newWorld(t, 0)
	limits := domain.DefaultGroupLimits()
	limits.MaxConnections = 3
	w.tokens.change(func(v *tokens) { v.limits = map[string]domain.GroupLimits{"a": limits} })
	if !w.login(t, nats.Token("token-b")) { // the table is confirmed before the first answer or soon after
		t.Fatal("refused")
	}
	var open []*nats.Conn
	eventually(t, "the fourth connection is refused", func() bool {
		for len(open) < 3 {
			open = append(open, w.connect(t, nats.Token("token-a")))
		}
		if nc, err := nats.Connect(w.server.URL(), nats.Token("token-a"), nats.Timeout(bound)); err == nil {
			nc.Close() // the table was not confirmed yet
			return false
		}
		return true
	})
	if !w.login(t, nats.Token("token-b")) {
		t.Error("another group was refused")
	}
	if got := w.responder.Stats().Limited; got == 0 {
		t.Error("the refusal is not counted")
	}
	open[0].Close()
	eventually(t, "a free connection can be used", func() bool { return w.login(t, nats.Token("token-a")) })
}

func contains(s, part string) bool {
	return strings.Contains(strings.ReplaceAll(s, `":"`, `": "`), part)
}

// After too many instances of a group were found, only its instances that are alive may log in. The connections of the
// removed ones end. Other groups are not affected.
func TestClosedGroup(t *testing.T) {
	w := newWorldWith(t, func(c *natsauth.Config) {
		c.Alive = func(group, instance string) bool { return group == "a" && instance == "alive" }
	})
	as := func(group, instance string) bool {
		return w.login(t, nats.Token("token-"+group), nats.Name(natsauth.ClientName(group, instance)))
	}
	stays := w.executor(t, "token-a", "a", nats.Name("a.i1"))
	excess := w.executor(t, "token-a", "a", nats.Name("belfry executor a.i2"), nats.NoReconnect())
	namesake := w.executor(t, "token-b", "b", nats.Name("b.i2"))
	eventually(t, "the connections are known", func() bool { return w.sessions.Count("a") == 2 && w.sessions.Count("b") == 1 })
	ended := excess.StatusChanged(nats.CLOSED)
	if err := natsauth.AnnounceClosed(w.system, "a", []string{"i2"}); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, "the connection of the removed instance", ended)
	if as("a", "i2") || as("a", "new") || w.login(t, nats.Token("token-a")) {
		t.Error("a new client of the group was let in")
	}
	if !as("a", "alive") {
		t.Error("an instance that is alive was refused")
	}
	if !as("b", "new") {
		t.Error("an instance of another group was refused")
	}
	for _, c := range []*client{stays, namesake} {
		if err := c.FlushTimeout(bound); err != nil || c.Reconnects != 0 {
			t.Errorf("another connection ended: %v", err)
		}
	}
}
