package console

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// trustProxies sets the remote address of requests that come through a trusted proxy. It takes the last address in
// X-Forwarded-For that is not a trusted proxy's own, because the client can have written anything before that one. Without
// trusted proxies the header is ignored.
func trustProxies(proxies []netip.Prefix, next http.Handler) http.Handler {
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
				break // not an address, so this entry and all entries before it are unknown
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
