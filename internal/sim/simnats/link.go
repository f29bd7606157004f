package simnats

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

var errRefused = errors.New("simnats: connection refused")

// Link is the network between one process and the server. The server's mutex guards it.
type Link struct {
	s     *Server
	Name  string
	cut   bool
	held  bool // cut, but the link answers the client's pings, because a frozen process does not notice the cut
	dead  bool
	conns map[*conn]bool
}

// Link returns a link for a process.
func (s *Server) Link(name string) *Link {
	return &Link{s: s, Name: name, conns: make(map[*conn]bool)}
}

// Dial connects to the server and implements nats.CustomDialer. Neither Dial nor the handshake of a connection ever waits: nats.go
// holds a mutex during both, and a goroutine that waits for a mutex stops the time of a bubble.
func (l *Link) Dial(_, _ string) (net.Conn, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.dead || l.cut || !l.s.up {
		return nil, errRefused
	}
	return l.s.accept(l), nil
}

// Cut holds the bytes in both directions, or releases them.
func (l *Link) Cut(cut bool) { l.hold(cut, false) }

// Freeze is like Cut, but the link still answers the client's pings, because a frozen process does not notice the cut.
func (l *Link) Freeze(frozen bool) { l.hold(frozen, frozen) }

func (l *Link) hold(cut, frozen bool) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.held = frozen
	if l.cut == cut {
		return
	}
	l.cut = cut
	if cut {
		return
	}
	for c := range l.conns {
		c.up.arm()
		c.down.arm()
		if c.closed { // the client closed it while the link was cut
			c.drop()
		}
	}
}

// Kill ends every connection at once and refuses new ones, because the process died.
func (l *Link) Kill() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.dead = true
	for c := range l.conns {
		c.drop()
	}
}

// pipe carries bytes in one direction, in order, each chunk with a delay.
type pipe struct {
	link    *Link
	deliver func([]byte)
	queue   []chunk
	last    time.Time
	armed   bool
	broken  bool
}

type chunk struct {
	at   time.Time
	data []byte
}

func (p *pipe) send(data []byte) {
	if p.broken {
		return
	}
	at := time.Now().Add(p.link.s.faults.Delay(p.link.Name))
	if at.Before(p.last) {
		at = p.last
	}
	p.last = at
	p.queue = append(p.queue, chunk{at, data})
	p.arm()
}

// arm starts the timer that delivers the head of the queue.
func (p *pipe) arm() {
	if p.armed || p.link.cut || p.broken || len(p.queue) == 0 {
		return
	}
	p.armed = true
	time.AfterFunc(max(time.Until(p.queue[0].at), 0), func() {
		p.link.s.mu.Lock()
		defer p.link.s.mu.Unlock()
		p.armed = false
		now := time.Now()
		for len(p.queue) > 0 && !p.link.cut && !p.broken && !p.queue[0].at.After(now) {
			data := p.queue[0].data
			p.queue = p.queue[1:]
			p.deliver(data)
		}
		p.arm()
	})
}

// conn is one connection: the client's net.Conn and the server's state of it.
type conn struct {
	s        *Server
	link     *Link
	id       int
	up, down *pipe
	subs     map[string]*sub // by sid
	partial  []byte          // the client's bytes that are not a whole operation yet
	open     bool            // the handshake is over
	closed   bool            // the client has closed it
	gone     bool            // the server has dropped it
	arrived  []byte          // for the client to read
	notify   chan struct{}   // capacity 1: arrived or gone changed
	deadline time.Time       // of reads
}

func (s *Server) accept(l *Link) *conn {
	s.lastConn++
	c := &conn{s: s, link: l, id: s.lastConn, subs: make(map[string]*sub), notify: make(chan struct{}, 1)}
	c.up = &pipe{link: l, deliver: c.receive}
	c.down = &pipe{link: l, deliver: c.arrive}
	l.conns[c] = true
	s.conns[c] = true
	c.arrive([]byte(info(c.id)))
	return c
}

func (c *conn) arrive(data []byte) {
	c.arrived = append(c.arrived, data...)
	c.wake()
}

func (c *conn) wake() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// drop ends the connection on both sides. Bytes in transit are lost.
func (c *conn) drop() {
	if c.gone {
		return
	}
	c.gone = true
	c.up.broken, c.down.broken = true, true
	delete(c.link.conns, c)
	delete(c.s.conns, c)
	for sid := range c.subs {
		c.unsubscribe(sid)
	}
	c.wake()
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	for {
		c.s.mu.Lock()
		switch {
		case c.closed:
			c.s.mu.Unlock()
			return 0, net.ErrClosed
		case len(c.arrived) > 0:
			n := copy(b, c.arrived)
			c.arrived = c.arrived[n:]
			c.s.mu.Unlock()
			return n, nil
		case c.gone:
			c.s.mu.Unlock()
			return 0, io.EOF
		}
		deadline := c.deadline
		c.s.mu.Unlock()
		if deadline.IsZero() {
			<-c.notify
			continue
		}
		wait := time.NewTimer(time.Until(deadline))
		select {
		case <-c.notify:
			wait.Stop()
		case <-wait.C:
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// Write implements net.Conn. It never blocks, as if the kernel's buffers were unlimited.
func (c *conn) Write(b []byte) (int, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.closed || c.gone {
		return 0, net.ErrClosed
	}
	if c.link.held && string(b) == "PING\r\n" {
		c.arrive([]byte("PONG\r\n"))
		return len(b), nil
	}
	if !c.open {
		c.receive(b)
		return len(b), nil
	}
	c.up.send(append([]byte(nil), b...))
	return len(b), nil
}

// Close implements net.Conn. If the link is cut, the server does not notice it.
func (c *conn) Close() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if !c.link.cut {
		c.drop()
	}
	c.wake()
	return nil
}

// SetDeadline implements net.Conn. It sets the deadline of reads only, because writes do not block.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.deadline = t
	c.wake()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return address }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return address }

var address = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4222}
