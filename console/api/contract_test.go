package api_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestContractGolden(t *testing.T) {
	w := newWorld(t)
	got := w.must(200, "GET", "/openapi.json", "").body
	const file = "testdata/openapi.json"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the contract has changed; run the test with -update and read the difference in %s", file)
	}
	var doc struct {
		OpenAPI    string `json:"openapi"`
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal([]byte(got), &doc); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("the contract is not an OpenAPI 3.1 document: %q, %v", doc.OpenAPI, err)
	}
	for name := range doc.Components.Schemas {
		if strings.HasPrefix(name, "Error") {
			t.Errorf("schema %s is huma's own error model, which no answer has", name)
		}
	}
}

// The test walks the routes of the router, so it covers new ones too.
func TestEveryRouteNeedsCredentials(t *testing.T) {
	w := newWorld(t)
	open := map[string]bool{"GET /": true, "GET /healthz": true, "GET /readyz": true, "POST /api/v1/auth/login": true,
		"GET /api/v1/auth/methods": true, "GET /api/v1/auth/oidc/login": true, "GET /api/v1/auth/oidc/callback": true}
	routes := 0
	err := chi.Walk(w.api.Routes(), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routes++
		path := strings.NewReplacer("{id}", "1", "{name}", "default").Replace(route)
		for credentials, headers := range map[string][]string{
			"none":           nil,
			"a bad bearer":   {"Authorization", "Bearer bft_" + strings.Repeat("A", 43)},
			"a bad cookie":   {"Cookie", "belfry_session=bfs_" + strings.Repeat("A", 43)},
			"basic":          {"Authorization", "Basic YWRtaW46YWRtaW4="},
			"a group's":      {"Authorization", "Bearer bfg_" + strings.Repeat("A", 43)},
			"NUL in a token": {"Authorization", "Bearer bft_\x00"},
		} {
			a := w.do("", method, path, "", headers...)
			if open[method+" "+route] {
				if a.status == http.StatusUnauthorized {
					t.Errorf("%s %s with %s: 401, but the path is open", method, route, credentials)
				}
				continue
			}
			if a.status != http.StatusUnauthorized || a.header.Get("Content-Type") != "application/problem+json" ||
				a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s with %s: %d %v, want a 401 problem", method, route, credentials, a.status, a.header)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if routes < 35 {
		t.Errorf("only %d routes were walked", routes)
	}
	if a := w.do("", "GET", "/api/v1/no/such/path", ""); a.status != http.StatusUnauthorized {
		t.Errorf("an unknown path without credentials: %d, want 401", a.status)
	}
}

// The contract is also served below the prefix of the operations.
func TestContractBelowThePrefix(t *testing.T) {
	w := newWorld(t)
	for path, as := range map[string]string{"/api/v1/openapi.json": "/openapi.json", "/api/v1/docs": "/docs"} {
		if below, beside := w.must(200, "GET", path, ""), w.must(200, "GET", as, ""); below.body != beside.body {
			t.Errorf("%s and %s differ", path, as)
		}
		if a := w.do("", "GET", path, ""); a.status != http.StatusUnauthorized {
			t.Errorf("%s without credentials: %d, want 401", path, a.status)
		}
	}
}

func TestDocsLoadNothing(t *testing.T) {
	w := newWorld(t)
	a := w.must(200, "GET", "/docs", "")
	for _, bad := range []string{"<script", "http://", "https://", "style="} {
		if strings.Contains(a.body, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if !strings.Contains(a.body, "/api/v1/jobs/{id}/trigger") {
		t.Error("the page does not list the operations")
	}
	if csp := a.header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.Contains(csp, "default-src 'none'") {
		t.Errorf("the policy is %q", csp)
	}
	w.must(200, "GET", "/docs/style.css", "")
}
