package dispatcher

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store"
)

// link connects a client to NATS until it is silenced. A silenced client cannot know yet that the server has dropped
// it.
type link struct {
	mu     sync.Mutex
	silent chan struct{} // closed by end; nil while the link works; guarded by mu
	conns  []net.Conn    // the silenced connections and the newest one; guarded by mu
}

func (l *link) Dial(network, addr string) (net.Conn, error) {
	c, err := net.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return linked{c, l}, nil
}

func (l *link) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = make(chan struct{})
}

// end makes the client read the end of its connection, even if no data arrives. The next connection works.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.silent)
	l.silent = nil
	for _, c := range l.conns {
		_ = c.Close() // the client may have closed it
	}
	l.conns = nil
}

func (l *link) silenced() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

type linked struct {
	net.Conn

	link *link
}

func (c linked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if silent := c.link.silenced(); silent != nil {
		<-silent
		c.Close()
		return 0, io.EOF
	}
	return n, err
}

func (c linked) Write(b []byte) (int, error) {
	if c.link.silenced() != nil {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// wasFrozen simulates that this process was frozen until now, for so long that NATS has dropped its connection.
func (w *world) wasFrozen(l *link) {
	l.silence()
	w.peers.Suspect()
}

// After a freeze, the dispatcher binds no runs until NATS answers. Otherwise the offers would be lost, and the runs would
// start only after the judge has asked about them.
func TestThawed(t *testing.T) {
	l := &link{}
	w := newWorld(t, option{link: l})
	a := w.join("a", auto)
	job := w.job("j")
	w.wasFrozen(l)
	var ids []domain.RunID
	w.holds(time.Second, "nothing is bound", func() bool { // longer than the delay until the first check after the freeze
		ids = append(ids, w.trigger(job))
		return w.count(`SELECT count(*) FROM runs_live WHERE instance IS NOT NULL`) == 0
	})
	if r := w.becomes(ids[0], "queued"); r.Waiting != explain.Of(explain.NATSUnavailable).English() {
		t.Errorf("run %+v", r)
	}
	l.end()
	for _, id := range ids {
		w.becomes(id, "succeeded")
		if offers := a.offersOf(id); len(offers) != 1 || offers[0].Bind != 1 {
			t.Errorf("offers %+v", offers)
		}
	}
}

// freezing is a store that simulates a freeze at the end of its next Admit.
type freezing struct {
	*store.Store
	frozen func()
}

func (s *freezing) wrap(all *stores) {
	s.Store = all.pg
	all.Fire = s
}

func (s *freezing) Admit(ctx context.Context, in []engine.Admission) (engine.Admitted, error) {
	out, err := s.Store.Admit(ctx, in)
	s.frozen()
	return out, err
}

// A process freezes directly after it has bound a run. After the freeze, it unbinds the run, because no instance has
// received it.
func TestThawedWithOffersInHand(t *testing.T) {
	l, s := &link{}, &freezing{}
	var w *world
	s.frozen = sync.OnceFunc(func() { w.wasFrozen(l) })
	w = newWorld(t, option{link: l, wrap: s.wrap})
	a := w.join("a", auto)
	id := w.trigger(w.job("j"))
	w.eventually("it is taken back", func() bool {
		r := w.run(id)
		return r.Waiting == explain.Of(explain.NATSUnavailable).English() && r.Instance == ""
	})
	if offers := a.offersOf(id); len(offers) != 0 {
		t.Errorf("offers %+v", offers)
	}
	l.end()
	w.becomes(id, "succeeded")
	if offers := a.offersOf(id); len(offers) != 1 {
		t.Errorf("offers %+v", offers)
	}
	startedOnce(t, a)
}
