package protocol

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
)

// errSealed means that a connection writes no more.
var errSealed = errors.New("the call has ended before its request was written")

// conn is a connection that knows whether a part of the present request was written. HTTP/1.1 has one request at a time on a connection.
type conn struct {
	net.Conn
	mu      sync.Mutex
	begun   bool        // a byte of the present request was, or is being, written
	sealed  bool        // nothing is written any more
	may     func() bool // nil, or asked directly before the first byte
	present bool        // there is a present request; before it, TLS writes its handshake
}

// Write refuses the first byte of a request if its check does.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	if c.present && !c.begun && !c.sealed && c.may != nil && !c.may() {
		c.sealed = true
	}
	if c.sealed {
		c.mu.Unlock()
		return 0, errSealed
	}
	c.begun = true
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// begin starts a request.
func (c *conn) begin(may func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.present, c.begun, c.may = true, false, may
}

// seal ends all writing, and reports whether the present request was begun. After seal has returned false, no byte of it is ever written.
func (c *conn) seal() (begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
	return c.begun
}

// attempt follows the connection of one call.
type attempt struct {
	may  func() bool
	mu   sync.Mutex
	conn *conn // the last one that the call got; nil: none
}

// traced returns a context with which an HTTP transport tells the attempt its connection.
func (a *attempt) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		c := info.Conn
		if t, ok := c.(*tls.Conn); ok {
			c = t.NetConn()
		}
		own, _ := c.(*conn) // the dialer makes no others
		own.begin(a.may)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.conn = own
	}})
}

// sent ends a call that failed, and reports whether a part of its request may have been written.
func (a *attempt) sent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conn != nil && a.conn.seal()
}
