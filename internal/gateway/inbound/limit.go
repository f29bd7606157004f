package inbound

import (
	"net"
	"net/netip"
	"sync"
)

// The limits of connections. A source is one IP address; executors behind a NAT share it.
const (
	maxConns       = 4096
	maxSourceConns = 512
)

// Limit returns a listener that closes connections beyond the limits at once.
func Limit(l net.Listener) net.Listener {
	return &limited{Listener: l, most: maxConns, mostOfSource: maxSourceConns, sources: make(map[netip.Addr]int)}
}

type limited struct {
	net.Listener
	most, mostOfSource int

	mu      sync.Mutex
	all     int
	sources map[netip.Addr]int // how many connections each source has; no zeros
}

// Accept returns the next connection within the limits.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		var source netip.Addr
		if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			source = a.AddrPort().Addr().Unmap()
		}
		if l.add(source) {
			return &counted{Conn: c, release: sync.OnceFunc(func() { l.remove(source) })}, nil
		}
		c.Close()
	}
}

func (l *limited) add(source netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.most || l.sources[source] >= l.mostOfSource {
		return false
	}
	l.all++
	l.sources[source]++
	return true
}

func (l *limited) remove(source netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.sources[source]--; l.sources[source] == 0 {
		delete(l.sources, source)
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	release func()
}

// Close closes the connection.
func (c *counted) Close() error {
	c.release()
	return c.Conn.Close()
}
