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

// Proxy is a link that can be broken: it passes TCP connections on to a server, until it is told otherwise.
type Proxy struct {
	network, target string
	ln              net.Listener
	running         sync.WaitGroup

	mu      sync.Mutex
	mode    linkMode              // guarded by mu
	latency time.Duration         // guarded by mu
	lost    int                   // guarded by mu; how often all connections have vanished
	changed chan struct{}         // guarded by mu; closed and made anew when mode or latency changes
	ends    map[net.Conn]struct{} // guarded by mu; both ends of each connection
	closed  bool                  // guarded by mu
}

type linkMode int

const (
	linkOpen  linkMode = iota
	linkCut            // connections are reset, new ones too
	linkBlack          // connections stay, and nothing comes through
)

// NewProxy listens on a free port of 127.0.0.1 and passes what comes on to target: a host and port, or the path of a
// Unix socket. It ends with the test.
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

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Cut resets all connections, and each new one at once, until Heal.
func (p *Proxy) Cut() {
	p.set(linkCut)
	p.Reset()
}

// Blackhole keeps connections, takes new ones, and passes nothing, until Heal. What was sent meanwhile arrives then, as
// it does on a network that retransmits; so does the end of a connection that one side gave up.
func (p *Proxy) Blackhole() { p.set(linkBlack) }

// Heal passes everything again. A latency stays.
func (p *Proxy) Heal() { p.set(linkOpen) }

// Vanish has nothing pass any more through the connections that there are, for ever: what was sent is lost, and neither
// side hears of an end. New ones are black-holed until Heal, as after a server's host has lost its power.
func (p *Proxy) Vanish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = linkBlack
	p.lost++
	p.announce()
}

// Delay has everything arrive d later, each way; 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
	p.announce()
}

// Reset ends the connections that there are now, and lets new ones come.
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

// announce is called with mu held.
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

// abort closes with a reset where that is possible, as a broken link does.
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

// add keeps a connection's end for cut and close; false when the Proxy is closed.
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
	if !p.pass(time.Time{}) { // one that comes while nothing passes has not reached the server
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

// piece is what arrived at once.
type piece struct {
	data []byte
	at   time.Time
}

// vanished returns how often all connections have vanished.
func (p *Proxy) vanished() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// copy passes on what comes from src until it ends, then closes dst; unless the connection has vanished since before.
func (p *Proxy) copy(dst, src net.Conn, before int) {
	pieces := make(chan piece, 64) // what is on its way; when it is full, the sender's own buffers fill
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
	for one := range pieces { // to the end, so that the reader never waits for ever
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

// pass waits until something sent at an instant may arrive; false when the link was cut.
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
