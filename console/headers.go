package console

import (
	"net"
	"net/http"
)

// harden puts on every answer, of the API and of the pages, what keeps browsers from guessing types, from framing, from
// telling other sites where somebody came from, and from sharing a process with them. What may be loaded is for each of
// the two to say. Where the console is reached by https, browsers are told to stay with that, save for this machine's own
// name, at which other programs speak too.
func harden(next http.Handler, behindTLS bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		if (r.TLS != nil || behindTLS) && hostname(r.Host) != "localhost" {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}
