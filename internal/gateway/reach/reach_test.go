package reach_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/internal/gateway/reach"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestCheck(t *testing.T) {
	everything := prefixes("0.0.0.0/0", "::/0")
	tests := []struct {
		address string
		allowed []netip.Prefix
		want    bool
	}{
		{"10.1.2.3:9999", nil, false},
		{"10.1.2.3:9999", prefixes("10.0.0.0/8"), true},
		{"11.1.2.3:9999", prefixes("10.0.0.0/8"), false},
		{"[::ffff:10.1.2.3]:9999", prefixes("10.0.0.0/8"), true},
		{"[fd00::1%eth0]:9999", prefixes("fd00::/8"), true},
		{"8.8.8.8:53", everything, true},
		{"[2001:db8::1]:9999", everything, true},
		{"127.0.0.1:9999", everything, false},
		{"127.0.0.1:9999", prefixes("127.0.0.0/8"), true},
		{"127.0.0.1:9999", prefixes("127.0.0.1/32"), true},
		{"[::1]:9999", everything, false},
		{"[::1]:9999", prefixes("::1/128"), true},
		{"[::ffff:127.0.0.1]:9999", everything, false},
		{"[64:ff9b::7f00:1]:9999", everything, false},
		{"[64:ff9b::808:808]:9999", everything, true},
		{"[64:ff9b::808:808]:9999", prefixes("64:ff9b::/96"), false},
		{"[2002:7f00:1::1]:9999", everything, false},
		{"0.0.0.0:9999", everything, false},
		{"[::]:9999", everything, false},
		{"169.254.169.254:80", prefixes("0.0.0.0/0", "169.254.0.0/16", "169.254.169.254/32"), false},
		{"[fe80::1]:80", prefixes("fe80::/10"), false},
		{"[::ffff:169.254.169.254]:80", everything, false},
		{"[64:ff9b::a9fe:a9fe]:80", everything, false},
		{"[64:ff9b:1::a9fe:a9fe]:80", everything, false},
		{"[2002:a9fe:a9fe::1]:80", everything, false},
		{"[::ffff:0:a9fe:a9fe]:80", everything, false},
		{"[fd00:ec2::254]:80", everything, false},
		{"100.100.100.200:80", everything, false},
		{"168.63.129.16:80", everything, false},
		{"224.0.0.1:80", everything, false},
		{"[ff02::1]:80", everything, false},
		{"10.1.2.3:4222", everything, true},
		{"10.1.2.4:4222", everything, true},
		{"10.1.2.3:8080", everything, false},
		{"[::ffff:10.1.2.3]:8080", everything, false},
		{"127.0.0.1:4222", prefixes("127.0.0.0/8"), false},
		{"127.0.0.2:4222", prefixes("127.0.0.0/8"), false},
		{"[::1]:4222", prefixes("::1/128"), false},
	}
	own := func() []netip.AddrPort {
		return []netip.AddrPort{netip.MustParseAddrPort("10.1.2.3:8080"), netip.MustParseAddrPort("[::]:4222")}
	}
	for _, tt := range tests {
		err := reach.New(tt.allowed, own, time.Minute).Check(netip.MustParseAddrPort(tt.address))
		if (err == nil) != tt.want || err != nil && !errors.Is(err, reach.ErrForbidden) {
			t.Errorf("%s, allowed %v: %v", tt.address, tt.allowed, err)
		}
	}
}

// listen accepts connections and counts them.
func listen(t *testing.T) (port uint16, accepted *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = new(atomic.Int32)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().(*net.TCPAddr).AddrPort().Port(), accepted
}

// A name that has an allowed address when it is registered, and another one later, is refused when it is dialled.
func TestRebinding(t *testing.T) {
	port, accepted := listen(t)
	names := newNames(t, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("169.254.169.254"))
	d := reach.New(prefixes("127.0.0.1/32", "169.254.0.0/16"), nil, time.Minute).WithResolver(names.resolver())
	dial := func() error {
		c, err := d.Dial(t.Context(), "tcp", fmt.Sprintf("rebind.test:%d", port))
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial(); err != nil {
		t.Errorf("an allowed address: %v", err)
	}
	for _, what := range []string{"another address", "a link-local address"} {
		if err := dial(); !errors.Is(err, reach.ErrForbidden) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := accepted.Load(); n > 1 {
		t.Errorf("%d connections arrived", n)
	}
}

// names is a DNS server that answers consecutive queries for IPv4 addresses with the addresses of a list, and others with none.
type names struct {
	conn      net.PacketConn
	addresses []netip.Addr
}

func newNames(t *testing.T, addresses ...netip.Addr) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn, addresses}
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.serve()
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return n
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

func (n *names) serve() {
	buf := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if size < 17 {
			continue
		}
		// A query: a header of 12 bytes, the labels of the name, a zero, the type, the class.
		end := 12
		for buf[end] != 0 {
			end += int(buf[end]) + 1
		}
		question := buf[12 : end+5]
		isA := binary.BigEndian.Uint16(buf[end+1:]) == 1
		reply := append([]byte{buf[0], buf[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
		if isA {
			reply[7] = 1
			reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
			reply = append(reply, n.addresses[0].AsSlice()...)
			n.addresses = n.addresses[min(1, len(n.addresses)-1):]
		}
		n.conn.WriteTo(reply, from)
	}
}
