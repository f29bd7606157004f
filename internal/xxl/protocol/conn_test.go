package protocol

import (
	"errors"
	"io"
	"net"
	"testing"
)

// After seal, a connection writes nothing.
func TestSeal(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	c := &conn{Conn: near}
	write := func(want error) {
		t.Helper()
		if n, err := c.Write([]byte("x")); !errors.Is(err, want) || (n == 1) != (want == nil) {
			t.Errorf("%d bytes, %v, want %v", n, err, want)
		}
	}
	write(nil) // a handshake
	allowed, asked := true, 0
	may := func() bool { asked++; return allowed }
	c.begin(may)
	write(nil)
	allowed = false
	write(nil) // only the first byte is checked
	if asked != 1 {
		t.Errorf("checked %d times", asked)
	}
	c.begin(may)
	write(errSealed)
	allowed = true
	write(errSealed)
	if c.seal() {
		t.Error("a refused request counts as begun")
	}

	c = &conn{Conn: near}
	c.begin(nil)
	if c.seal() {
		t.Error("an idle connection counts as begun")
	}
	write(errSealed)

	c = &conn{Conn: near}
	c.begin(nil)
	write(nil)
	if !c.seal() {
		t.Error("a written request does not count as begun")
	}
	write(errSealed)
}
