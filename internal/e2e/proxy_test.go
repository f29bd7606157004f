//go:build unix

package e2e

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// proxy is a link that can be broken: it passes TCP connections on to a server, until it is told otherwise.
type proxy struct {
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

// newProxy listens on a free port of 127.0.0.1 and passes what comes on to target: a host and port, or the path of a
// Unix socket. It ends with the test.
func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{network: "tcp", target: target, ln: ln, changed: make(chan struct{}), ends: make(map[net.Conn]struct{})}
	if filepath.IsAbs(target) {
		p.network = "unix"
	}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// addr is where the proxy listens.
func (p *proxy) addr() string { return p.ln.Addr().String() }

// cut resets all connections, and each new one at once, until heal.
func (p *proxy) cut() {
	p.set(linkCut)
	p.reset()
}

// blackhole keeps connections, takes new ones, and passes nothing, until heal. What was sent meanwhile arrives then, as
// it does on a network that retransmits; so does the end of a connection that one side gave up.
func (p *proxy) blackhole() { p.set(linkBlack) }

// heal passes everything again. A latency stays.
func (p *proxy) heal() { p.set(linkOpen) }

// vanish has nothing pass any more through the connections that there are, for ever: what was sent is lost, and neither
// side hears of an end. New ones are black-holed until heal, as after a server's host has lost its power.
func (p *proxy) vanish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = linkBlack
	p.lost++
	p.announce()
}

// delay has everything arrive d later, each way; 0 ends it.
func (p *proxy) delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
	p.announce()
}

// reset ends the connections that there are now, and lets new ones come.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.ends {
		abort(c)
	}
}

func (p *proxy) set(m linkMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	p.announce()
}

// announce is called with mu held.
func (p *proxy) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *proxy) state() (linkMode, time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.latency, p.changed
}

func (p *proxy) close() {
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

func (p *proxy) accept() {
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

// add keeps a connection's end for cut and close; false when the proxy is closed.
func (p *proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.ends[c] = struct{}{}
	}
	return !p.closed
}

func (p *proxy) remove(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ends, c)
}

func (p *proxy) serve(near net.Conn) {
	defer p.remove(near)
	if !p.pass(time.Time{}) { // one that comes while nothing passes has not reached the server
		abort(near)
		return
	}
	far, err := net.Dial(p.network, p.target)
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
func (p *proxy) vanished() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// copy passes on what comes from src until it ends, then closes dst; unless the connection has vanished since before.
func (p *proxy) copy(dst, src net.Conn, before int) {
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
func (p *proxy) pass(sent time.Time) bool {
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

func TestProxy(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	p := newProxy(t, ln.Addr().String())
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", p.addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	say := func(c net.Conn, text string) {
		t.Helper()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(c net.Conn, text string) {
		t.Helper()
		got := make([]byte, len(text))
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, []byte(text)) {
			t.Fatalf("got %q (%v), want %q", got, err, text)
		}
	}
	const glance = 100 * time.Millisecond // too short for nothing to be taken for something
	silent := func(c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(glance))
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Fatal("something came through")
		} else if e, ok := err.(net.Error); !ok || !e.Timeout() {
			t.Fatalf("the connection ended: %v", err)
		}
	}
	ended := func(c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(patience))
		_, err := c.Read(make([]byte, 1))
		if e, ok := err.(net.Error); err == nil || ok && e.Timeout() {
			t.Fatalf("the connection lives: %v", err)
		}
	}

	one := dial()
	say(one, "a")
	hears(one, "a")
	p.blackhole()
	two := dial()
	say(one, "b")
	say(two, "c")
	silent(one)
	silent(two)
	p.heal()
	hears(one, "b")
	hears(two, "c")
	p.delay(glance)
	sent := time.Now()
	say(one, "d")
	hears(one, "d")
	if passed := time.Since(sent); passed < 2*glance {
		t.Errorf("an answer came after %v, with a latency of %v each way", passed, glance)
	}
	p.delay(0)
	p.cut()
	ended(one)
	ended(two)
	if c, err := net.Dial("tcp", p.addr()); err == nil { // the reset may come before the dial is done
		ended(c)
		c.Close()
	}
	p.heal()
	three := dial()
	say(three, "e")
	hears(three, "e")
	p.vanish()
	four := dial()
	say(three, "f")
	say(four, "g")
	silent(four)
	p.heal()
	hears(four, "g")
	silent(three)
	say(three, "h")
	silent(three)
}
