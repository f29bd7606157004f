package console

import (
	"net"
	"net/http"
)

// harden adds security headers to every answer of the API and of the web console. They keep browsers from guessing content
// types, from showing the console in frames, from sending its addresses to other sites as referrers, and from sharing a
// process with other sites. The API and the web console set their own content security policies.
//
// If the console is reached by https, harden tells browsers to use only https. It does not do so for localhost, because
// other programs may serve plain http under that name.
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
