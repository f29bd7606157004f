package protocol

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Address is the URL of an executor, in one spelling for each address: lower case, without default port and trailing slash. The zero Address is none.
type Address struct{ url string }

// maxAddress is the maximum length of an address, in bytes. XXL-JOB's own column has 255 characters.
const maxAddress = 255

// ParseAddress reads the address that an executor registers, such as http://10.0.0.5:9999/ or 10.0.0.5:9999. It resolves no names. The
// error says what is wrong.
func ParseAddress(s string) (Address, error) {
	s = strings.TrimSpace(s)
	if len(s) > maxAddress {
		return Address{}, fmt.Errorf("the address has more than %d characters", maxAddress)
	}
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil {
		return Address{}, errors.New("the address is not a URL") // the error of the parser repeats the whole address
	}
	u.Scheme = strings.ToLower(u.Scheme)
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return Address{}, errors.New("the address must begin with http:// or https://")
	case u.User != nil:
		return Address{}, errors.New("the address must not contain a user name or a password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "":
		return Address{}, errors.New("the address must not contain ? or #")
	}
	host, err := hostOf(u)
	if err != nil {
		return Address{}, err
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	if strings.Contains(path, "//") || strings.Contains(path, "/.") {
		return Address{}, errors.New("the path of the address must not contain empty parts or dots at the start of a part")
	}
	return Address{u.Scheme + "://" + host + path}, nil
}

// hostOf returns the host of u in one spelling, with its port unless that is the default of the scheme.
func hostOf(u *url.URL) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	ip, err := netip.ParseAddr(name)
	switch {
	case err == nil && ip.Zone() != "":
		return "", errors.New("the address must not contain an IPv6 zone")
	case err == nil:
		if name = ip.Unmap().String(); strings.Contains(name, ":") {
			name = "[" + name + "]"
		}
	case !isHostName(name):
		return "", errors.New("the host of the address must be an IP address or a host name")
	}
	port := u.Port()
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return "", errors.New("the port of the address is missing")
		}
		return name, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", errors.New("the port of the address must be between 1 and 65535")
	}
	if u.Scheme == "http" && n == 80 || u.Scheme == "https" && n == 443 {
		return name, nil
	}
	return name + ":" + strconv.FormatUint(n, 10), nil
}

// isHostName reports whether name can only be a host name. Names whose last part is a number are excluded, because some resolvers read
// them as IPv4 addresses.
func isHostName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	parts := strings.Split(name, ".")
	for _, p := range parts {
		if p == "" || len(p) > 63 || strings.Trim(p, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	last := parts[len(parts)-1]
	_, err := strconv.ParseUint(last, 10, 64)
	return err != nil && !strings.HasPrefix(last, "0x")
}

// String returns the URL without a trailing slash.
func (a Address) String() string { return a.url }

// IP returns the IP address and the port, if the host is an IP address and not a name.
func (a Address) IP() (netip.AddrPort, bool) {
	scheme, rest, _ := strings.Cut(a.url, "://")
	host, _, _ := strings.Cut(rest, "/")
	if ap, err := netip.ParseAddrPort(host); err == nil {
		return ap, true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	port := uint16(80)
	if scheme == "https" {
		port = 443
	}
	return netip.AddrPortFrom(ip, port), err == nil
}

// Instance returns the instance name of the address: 10-0-0-5-9999 for http://10.0.0.5:9999. Any other form gets a digest at its end, so that
// different addresses have different names. Instance names contain no dots.
func (a Address) Instance() string {
	host, plain := strings.CutPrefix(a.url, "http://")
	if ap, err := netip.ParseAddrPort(host); plain && err == nil && ap.Addr().Is4() {
		return strings.NewReplacer(".", "-", ":", "-").Replace(host)
	}
	sum := sha256.Sum256([]byte(a.url))
	_, host, _ = strings.Cut(a.url, "://")
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, host)
	return strings.TrimLeft(cut(name, 100), "-") + "-" + hex.EncodeToString(sum[:6])
}
