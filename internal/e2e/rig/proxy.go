//go:build unix

package rig

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Proxy is a link that a test can break. It forwards TCP connections to a server.
type Proxy struct {
	network, target string
	ln              net.Listener
	running         sync.WaitGroup

	mu      sync.Mutex
	mode    linkMode              // guarded by mu
	latency time.Duration         // guarded by mu
	lost    int                   // guarded by mu; number of calls of Vanish
	changed chan struct{}         // guarded by mu; closed and replaced when mode or latency changes
	ends    map[net.Conn]struct{} // guarded by mu; both ends of each connection
	closed  bool                  // guarded by mu
}

type linkMode int

const (
	linkOpen  linkMode = iota
	linkCut            // existing and new connections are reset
	linkBlack          // connections stay open, but no data passes
)

// NewProxy listens on a free port of 127.0.0.1 and forwards connections to target: a host and port, or the path of a Unix socket. It
// ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{network: "tcp", target: target, ln: ln, changed: make(chan struct{}), ends: make(map[net.Conn]struct{})}
	if filepath.IsAbs(target) {
		p.network = "unix"
	}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the address of the proxy.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Cut resets all connections, and each new connection until Heal.
func (p *Proxy) Cut() {
	p.set(linkCut)
	p.Reset()
}

// Blackhole keeps connections open, accepts new ones, and passes no data until Heal. Then the data sent meanwhile arrives, as on a
// network that retransmits. If one side has closed a connection meanwhile, the other side learns it then.
func (p *Proxy) Blackhole() { p.set(linkBlack) }

// Heal passes data again. It does not change the latency.
func (p *Proxy) Heal() { p.set(linkOpen) }

// Vanish makes the existing connections dead, as if the server's host had lost power: data sent through them is lost, even after
// Heal, and neither side sees an end. New connections are black-holed until Heal.
func (p *Proxy) Vanish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = linkBlack
	p.lost++
	p.announce()
}

// Delay makes data arrive d later in each direction; 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
	p.announce()
}

// Reset resets the existing connections. New connections are not affected.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.ends {
		abort(c)
	}
}

func (p *Proxy) set(m linkMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	p.announce()
}

// announce wakes the goroutines that wait for a change. mu is held.
func (p *Proxy) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) state() (linkMode, time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.latency, p.changed
}

func (p *Proxy) close() {
	p.ln.Close()
	p.mu.Lock()
	p.closed, p.mode = true, linkCut
	p.announce()
	for c := range p.ends {
		abort(c)
	}
	p.mu.Unlock()
	p.running.Wait()
}

// abort closes a connection with a reset if possible, as a broken link does.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it may be closed already
	}
	c.Close()
}

func (p *Proxy) accept() {
	for {
		near, err := p.ln.Accept()
		if err != nil {
			return
		}
		if mode, _, _ := p.state(); mode == linkCut || !p.add(near) {
			abort(near)
			continue
		}
		p.running.Go(func() { p.serve(near) })
	}
}

// add registers one end of a connection for Reset and close. It returns false if the Proxy is closed.
func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.ends[c] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) remove(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ends, c)
}

func (p *Proxy) serve(near net.Conn) {
	defer p.remove(near)
	if !p.pass(time.Time{}) { // while the link is black-holed, a new connection does not reach the server
		abort(near)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	far, err := new(net.Dialer).DialContext(ctx, p.network, p.target)
	if err != nil {
		abort(near)
		return
	}
	if !p.add(far) {
		abort(far)
		abort(near)
		return
	}
	defer p.remove(far)
	before := p.vanished()
	var both sync.WaitGroup
	both.Go(func() { p.copy(far, near, before) })
	both.Go(func() { p.copy(near, far, before) })
	both.Wait()
}

// piece is the data of one read.
type piece struct {
	data []byte
	at   time.Time
}

// vanished returns the number of calls of Vanish.
func (p *Proxy) vanished() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// copy forwards data from src to dst until src ends, and then closes dst. before is the number of calls of Vanish when the
// connection was opened. After a further call, copy drops the data and does not close dst.
func (p *Proxy) copy(dst, src net.Conn, before int) {
	pieces := make(chan piece, 64) // data in transit; if it is full, the sender's buffers fill
	p.running.Go(func() {
		defer close(pieces)
		for {
			buf := make([]byte, 32<<10)
			n, err := src.Read(buf)
			if n > 0 {
				pieces <- piece{buf[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	})
	healthy := true
	for one := range pieces { // until pieces is closed, so that the reader does not block
		if healthy = healthy && p.pass(one.at); healthy {
			if p.vanished() != before {
				continue
			}
			_, err := dst.Write(one.data)
			healthy = err == nil
		}
		if !healthy {
			abort(src)
			abort(dst)
		}
	}
	p.pass(time.Now())
	if p.vanished() == before {
		dst.Close()
	}
}

// pass waits until data sent at the given instant may arrive. It returns false if the link is cut.
func (p *Proxy) pass(sent time.Time) bool {
	for {
		mode, latency, changed := p.state()
		wait := time.Until(sent.Add(latency))
		switch {
		case mode == linkCut:
			return false
		case mode == linkOpen && (sent.IsZero() || wait <= 0):
			return true
		case mode == linkOpen:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-changed:
				timer.Stop()
			}
		default:
			<-changed
		}
	}
}
