package console

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// believe lets requests that come through a trusted proxy have the address of the client that it names: the last address
// of X-Forwarded-For that is not itself a trusted proxy's. What stands before it anybody may have written. Without
// proxies no header is believed.
func believe(proxies []netip.Prefix, next http.Handler) http.Handler {
	if len(proxies) == 0 {
		return next
	}
	trusted := func(a netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, ok := peer(r.RemoteAddr)
		if !ok || !trusted(from) {
			next.ServeHTTP(w, r)
			return
		}
		hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for _, hop := range slices.Backward(hops) {
			a, ok := peer(strings.TrimSpace(hop))
			if !ok {
				break // the proxy before wrote what is no address; what stands beyond it is not known
			}
			if from = a; !trusted(a) {
				break
			}
		}
		r2 := r.WithContext(r.Context())
		r2.RemoteAddr = netip.AddrPortFrom(from, 0).String()
		next.ServeHTTP(w, r2)
	})
}

// peer reads an address, with or without a port.
func peer(s string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return a.Unmap().WithZone(""), err == nil
}
