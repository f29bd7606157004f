package dispatcher

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/dispatcher/waiting"
	"github.com/belfryhq/belfry/internal/domain"
)

// link connects a client to NATS until it is silenced: then the client cannot know yet that the server has given it up.
type link struct {
	mu     sync.Mutex
	silent chan struct{} // closed by end; nil while all comes through; guarded by mu
	conns  []net.Conn    // the silenced ones, and the newest; guarded by mu
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

// end has the client read that its connection is closed, also if nothing came on it meanwhile. The next one is sound.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.silent)
	l.silent = nil
	for _, c := range l.conns {
		_ = c.Close() // perhaps the client has closed it
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

// thaws makes this process one that was stopped until now, for so long that NATS has given it up.
func (w *world) thaws(l *link) {
	l.silence()
	w.Suspect()
}

// Who thaws gives no run away until NATS has answered: the offers would be lost, and the runs late by what it takes to ask
// about them.
func TestThawed(t *testing.T) {
	l := &link{}
	w := newWorld(t, option{link: l})
	a := w.join("a", auto)
	job := w.job("j")
	w.thaws(l)
	var ids []domain.RunID
	w.holds(time.Second, "nothing is bound", func() bool { // longer than the first look after the freeze takes to come
		ids = append(ids, w.trigger(job))
		return w.count(`SELECT count(*) FROM runs_live WHERE instance IS NOT NULL`) == 0
	})
	if r := w.becomes(ids[0], "queued"); r.Waiting != waiting.NATSAway {
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

// thawing is a store whose next Admit ends with a freeze.
type thawing struct {
	Store

	frozen func()
}

func (s *thawing) Admit(ctx context.Context, in []domain.Admission) (domain.Admitted, error) {
	out, err := s.Store.Admit(ctx, in)
	s.frozen()
	return out, err
}

// A process freezes when it has just bound a run. It takes the run back as it thaws: nobody has heard of it.
func TestThawedWithOffersInHand(t *testing.T) {
	l, s := &link{}, &thawing{}
	var w *world
	s.frozen = sync.OnceFunc(func() { w.thaws(l) })
	w = newWorld(t, option{link: l, wrap: func(real Store) Store { s.Store = real; return s }})
	a := w.join("a", auto)
	id := w.trigger(w.job("j"))
	w.eventually("it is taken back", func() bool { r := w.run(id); return r.Waiting == waiting.NATSAway && r.Instance == "" })
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
