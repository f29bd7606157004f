// Package reach decides which addresses of executors a gateway connects to, and makes the connections.
//
// Executors register their addresses themselves, so an address is data from the network. A client with a group's token could register
// the address of any server that the gateway can reach. Therefore the gateway connects only into the networks that an administrator has allowed for
// the group. The check applies to the IP address of each connection directly before it is made, after the name was resolved. A name that
// resolves to another address later cannot evade it.
//
// Some addresses are never reached, whatever is allowed: link-local and multicast ones, the metadata services of clouds, and the listeners of
// Belfry's own processes on this machine.
package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// ErrForbidden means that an address may not be reached. The text of errors that wrap it names the address and the remedy.
var ErrForbidden = errors.New("the address may not be reached")

// Dialer makes connections to the executors of one group. It is safe for concurrent use.
type Dialer struct {
	dialer   net.Dialer
	networks []netip.Prefix
	own      func() []netip.AddrPort
}

// New returns a Dialer for the allowed networks. own returns the addresses on which this process listens; nil means none. A port on
// an unspecified address is meant for all addresses of this machine. timeout bounds resolving and connecting.
func New(networks []netip.Prefix, own func() []netip.AddrPort, timeout time.Duration) *Dialer {
	d := &Dialer{networks: networks, own: own}
	d.dialer = net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second, Control: d.control}
	return d
}

// WithResolver sets the resolver of names, instead of the system's.
func (d *Dialer) WithResolver(r *net.Resolver) *Dialer {
	d.dialer.Resolver = r
	return d
}

// Dial resolves the name in address and connects to one of its IP addresses that may be reached. If there is none, the error wraps ErrForbidden.
func (d *Dialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return d.dialer.DialContext(ctx, network, address)
}

// control checks the address of each connection directly before it is made.
func (d *Dialer) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: it cannot be checked", ErrForbidden)
	}
	return d.Check(to)
}

// Check returns an error that wraps ErrForbidden if an address may not be reached.
func (d *Dialer) Check(to netip.AddrPort) error {
	a := plain(to.Addr())
	inner := embedded(a)
	if never(a) || never(inner) {
		return fmt.Errorf("%w: %s is link-local, multicast, unspecified or a cloud metadata service", ErrForbidden, to.Addr())
	}
	if !Contains(d.networks, a) || !Contains(d.networks, inner) && inner != a {
		return fmt.Errorf("%w: %s is in no network that is allowed for the group (belfry group xxl-token --allow)", ErrForbidden, to.Addr())
	}
	if d.own == nil {
		return nil
	}
	for _, l := range d.own() {
		if l.Port() == to.Port() && (plain(l.Addr()) == a || l.Addr().IsUnspecified() && local(a)) {
			return fmt.Errorf("%w: Belfry itself listens on %s", ErrForbidden, to)
		}
	}
	return nil
}

// local reports whether an address belongs to this machine. If the addresses are unknown, it does.
func local(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, i := range addresses {
		if p, err := netip.ParsePrefix(i.String()); err == nil && plain(p.Addr()) == a {
			return true
		}
	}
	return false
}

// Contains reports whether an address is in one of the networks. A network with loopback addresses must be named: 0.0.0.0/0 and ::/0
// do not contain them.
func Contains(networks []netip.Prefix, address netip.Addr) bool {
	a := plain(address)
	for _, n := range networks {
		if n.Contains(a) && (!a.IsLoopback() || n.Addr().IsLoopback()) {
			return true
		}
	}
	return false
}

// plain returns an address without a zone, and as IPv4 if it is one mapped to IPv6.
func plain(a netip.Addr) netip.Addr { return a.WithZone("").Unmap() }

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")   // its last four bytes are an IPv4 address
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48") // usually the same
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
	compatible = netip.MustParsePrefix("::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16") // the four bytes after the prefix are an IPv4 address
	metadataV6 = netip.MustParsePrefix("fd00:ec2::/32")
	metadata   = map[netip.Addr]bool{
		netip.MustParseAddr("fd20:ce::254"): true, netip.MustParseAddr("100.100.100.200"): true,
		netip.MustParseAddr("192.0.0.192"): true, netip.MustParseAddr("168.63.129.16"): true,
	}
)

// embedded returns the IPv4 address in an IPv6 address of a transition mechanism, or the address itself.
func embedded(a netip.Addr) netip.Addr {
	if !a.Is6() || a.IsLoopback() || a.IsUnspecified() {
		return a
	}
	bytes := a.As16()
	switch {
	case nat64.Contains(a), localNAT64.Contains(a), translated.Contains(a), compatible.Contains(a):
		return netip.AddrFrom4([4]byte(bytes[12:16]))
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(bytes[2:6]))
	}
	return a
}

// never reports whether an address is never reached, whatever is allowed.
func never(a netip.Addr) bool {
	return a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || metadata[a] || metadataV6.Contains(a)
}
