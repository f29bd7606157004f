package console

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/belfryhq/belfry/console/auth"
)

func TestTrustProxies(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, c := range map[string]struct {
		proxies   []netip.Prefix
		from      string
		forwarded []string
		want      string
	}{
		"no proxies":                      {nil, "10.0.0.1:4711", []string{"203.0.113.7"}, "10.0.0.1"},
		"not from a proxy":                {proxies, "192.0.2.1:4711", []string{"203.0.113.7"}, "192.0.2.1"},
		"from a proxy":                    {proxies, "10.0.0.1:4711", []string{"203.0.113.7"}, "203.0.113.7"},
		"from a proxy, IPv4 in IPv6":      {proxies, "[::ffff:10.0.0.1]:4711", []string{"203.0.113.7"}, "203.0.113.7"},
		"through two proxies":             {proxies, "10.0.0.1:4711", []string{"203.0.113.7, fd00::2"}, "203.0.113.7"},
		"in two headers":                  {proxies, "10.0.0.1:4711", []string{"198.51.100.1", "203.0.113.7"}, "203.0.113.7"},
		"forged by the client":            {proxies, "10.0.0.1:4711", []string{"10.9.9.9, 198.51.100.1, 203.0.113.7"}, "203.0.113.7"},
		"with a port":                     {proxies, "10.0.0.1:4711", []string{"203.0.113.7:5555"}, "203.0.113.7"},
		"IPv6 with a port":                {proxies, "10.0.0.1:4711", []string{"[2001:db8::1]:5555"}, "2001:db8::1"},
		"without the header":              {proxies, "10.0.0.1:4711", nil, "10.0.0.1"},
		"malformed entry from the client": {proxies, "10.0.0.1:4711", []string{"unknown, 203.0.113.7"}, "203.0.113.7"},
		"malformed entry from a proxy":    {proxies, "10.0.0.1:4711", []string{"203.0.113.7, unknown"}, "10.0.0.1"},
		"a proxy's own request":           {proxies, "10.0.0.1:4711", []string{"10.0.0.2"}, "10.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			h := trustProxies(c.proxies, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = auth.Remote(r) }))
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = c.from
			for _, f := range c.forwarded {
				r.Header.Add("X-Forwarded-For", f)
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
			if got != c.want {
				t.Errorf("the client is %s, want %s", got, c.want)
			}
		})
	}
}
