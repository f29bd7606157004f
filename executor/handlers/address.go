package handlers

import (
	"fmt"
	"net/netip"
	"syscall"
)

// forbiddenError means that the handler http does not connect to an address.
type forbiddenError struct {
	address netip.Addr
	why     string
}

func (e *forbiddenError) Error() string { return fmt.Sprintf("the address %s %s", e.address, e.why) }

// control checks the address of each connection directly before it is made, after the host name was resolved. A name
// that resolves to another address each time, or a redirect, cannot evade it.
func (o HTTPOptions) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return &forbiddenError{why: "cannot be checked"}
	}
	return o.check(to.Addr())
}

// check returns an error if the handler must not connect to an address.
func (o HTTPOptions) check(to netip.Addr) error {
	a := version4(to.WithZone(""))
	switch {
	case neverReached(a), localNAT64.Contains(a) && neverReached(last4(a)):
		return &forbiddenError{to, "is link-local, multicast or a cloud metadata service, which http never reaches"}
	case !o.DenyPrivate && len(o.Allow) == 0, !isPrivate(a):
		return nil
	}
	for _, p := range o.Allow {
		if p.Contains(a) {
			return nil
		}
	}
	return &forbiddenError{to, "is private, and this executor denies it"}
}

// neverReached reports whether http never connects to an address, whatever the options allow.
func neverReached(a netip.Addr) bool {
	return a.IsLinkLocalUnicast() || a.IsMulticast() || isMetadata(a)
}

// localNAT64 is the prefix of NAT64 as the local network defines it. The IPv4 address is usually in the last 32 bits.
var localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")

// last4 returns the IPv4 address in the last 32 bits of an IPv6 address.
func last4(a netip.Addr) netip.Addr {
	bytes := a.As16()
	return netip.AddrFrom4([4]byte(bytes[12:16]))
}

// version4 returns the IPv4 address that an IPv6 address maps to, or the address itself.
func version4(a netip.Addr) netip.Addr {
	bytes := a.As16()
	switch {
	case !a.Is6(), a == netip.IPv6Unspecified(), a == netip.IPv6Loopback():
		return a
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a), // NAT64
		netip.MustParsePrefix("::ffff:0:0:0/96").Contains(a), // IPv4-translated
		netip.MustParsePrefix("::/96").Contains(a):           // IPv4-compatible, deprecated
		return last4(a)
	case netip.MustParsePrefix("2002::/16").Contains(a): // 6to4
		return netip.AddrFrom4([4]byte(bytes[2:6]))
	}
	return a.Unmap()
}

// isMetadata reports whether an address belongs to a metadata service outside the link-local range.
func isMetadata(a netip.Addr) bool {
	if netip.MustParsePrefix("fd00:ec2::/32").Contains(a) { // AWS: metadata at ::254, credentials of EKS pods at ::23
		return true
	}
	switch a.String() {
	case "fd20:ce::254", // Google Cloud
		"100.100.100.200", // Alibaba Cloud
		"192.0.0.192",     // Oracle Cloud
		"168.63.129.16":   // Azure
		return true
	}
	return false
}

// isPrivate reports whether an address belongs to this machine or to a private network.
func isPrivate(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLoopback() || a.IsUnspecified() || // the system connects an unspecified address to itself
		netip.MustParsePrefix("100.64.0.0/10").Contains(a) || // carrier-grade NAT
		localNAT64.Contains(a)
}
