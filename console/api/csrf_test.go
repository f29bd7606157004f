package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
)

// Requests that a page of another site makes a browser send are refused on every route. The browser adds these headers by
// itself. It would also add the cookie if the cookie were not SameSite=Strict.
func TestOtherSitesChangeNothing(t *testing.T) {
	w := newWorld(t)
	w.user("ann", "viewer", "")
	attacks := map[string][]string{
		"a form of another site":             {"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example", "Content-Type", "application/x-www-form-urlencoded"},
		"a fetch of another site":            {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Origin", "https://evil.example", "Content-Type", "text/plain"},
		"a page on a neighbouring subdomain": {"Sec-Fetch-Site", "same-site", "Origin", "https://blog.example.com"},
		"a frame with an opaque origin":      {"Sec-Fetch-Site", "cross-site", "Origin", "null"},
		"an older browser":                   {"Origin", "https://evil.example"},
		"an older browser's sandboxed frame": {"Origin", "null"},
		"another port":                       {"Origin", "http://example.com:8081"},
		"a host with the same prefix":        {"Origin", "http://example.com.evil.example"},
	}
	before := w.must(200, "GET", "/api/v1/audit", "").body
	unsafe := 0
	err := chi.Walk(w.api.Routes(), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, method) {
			return nil
		}
		unsafe++
		path := strings.NewReplacer("{id}", "1", "{name}", "default", "{username}", "ann").Replace(route)
		for what, headers := range attacks {
			a := w.do("", method, path, `{}`, append([]string{"Cookie", "belfry_session=" + w.admin}, headers...)...)
			if a.status != http.StatusForbidden || !strings.Contains(a.body, "another site") || a.header.Get("Set-Cookie") != "" {
				t.Errorf("%s %s by %s: %d %s", method, route, what, a.status, a.body)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if unsafe < 20 {
		t.Errorf("only %d unsafe routes were walked", unsafe)
	}
	if after := w.must(200, "GET", "/api/v1/audit", "").body; after != before {
		t.Errorf("the audit log has new changes: %s", after)
	}
	// Another site cannot log a user in under another name, even without those headers, because a form is not JSON.
	form := `{"username":"admin","password":"` + adminPassword + `","x":"=` + `"}`
	for _, contentType := range []string{"application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"} {
		if a := w.do("", "POST", "/api/v1/auth/login", form, "Content-Type", contentType); a.status != http.StatusUnsupportedMediaType || a.header.Get("Set-Cookie") != "" {
			t.Errorf("a log-in by a form of type %s: %d %v", contentType, a.status, a.header)
		}
	}
}

// Requests of the console's own pages and of programs are not refused.
func TestOwnPagesAndProgramsPass(t *testing.T) {
	w := newWorld(t)
	for who, headers := range map[string][]string{
		"the console":                                  {"Sec-Fetch-Site", "same-origin", "Origin", "http://example.com"},
		"the console, in an older browser":             {"Origin", "http://example.com"},
		"the console behind a proxy that speaks TLS":   {"Sec-Fetch-Site", "same-origin", "Origin", "https://belfry.example"},
		"a program that keeps cookies, without Origin": nil,
	} {
		a := w.do("", "POST", "/api/v1/auth/logout-everywhere", "", append([]string{"Cookie", "belfry_session=" + w.session("admin", adminPassword)}, headers...)...)
		if a.status != http.StatusNoContent {
			t.Errorf("%s: %d %s", who, a.status, a.body)
		}
	}
	// Links from other sites work, because a GET changes nothing.
	if a := w.do("", "GET", "/api/v1/auth/me", "", "Cookie", "belfry_session="+w.session("admin", adminPassword), "Sec-Fetch-Site", "cross-site"); a.status != http.StatusOK {
		t.Errorf("a link from another site: %d", a.status)
	}
}
