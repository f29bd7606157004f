package ui_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/console/ui"
)

func ask(t *testing.T, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	ui.Handler().ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	scriptTag = regexp.MustCompile(`<script[^>]*src="(/assets/[^"]+\.js)"`)
	inline    = regexp.MustCompile(`<script(?:[^>]*[^>s])?>[^<]|<style| style=| on[a-z]+=`)
	nonce     = regexp.MustCompile(`'nonce-([^']+)'`)
)

func TestPage(t *testing.T) {
	var nonces []string
	for _, path := range []string{"/", "/login", "/jobs/7", "/runs/x?state=failed", "/no/such/page", "/index.html"} {
		a := ask(t, path)
		page, policy := text(t, a.Body), a.Header.Get("Content-Security-Policy")
		n := nonce.FindStringSubmatch(policy)
		if a.StatusCode != 200 || a.Header.Get("Content-Type") != "text/html; charset=utf-8" || a.Header.Get("Cache-Control") != "no-store" ||
			!strings.Contains(page, `<div id="root">`) || n == nil {
			t.Fatalf("%s: %d %v\n%s", path, a.StatusCode, a.Header, page)
		}
		nonces = append(nonces, n[1])
		if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "script-src 'self';") || !strings.Contains(policy, "default-src 'none'") ||
			!strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: the policy is %s", path, policy)
		}
		if found := inline.FindString(page); found != "" || !strings.Contains(page, `content="`+n[1]+`"`) || strings.Contains(page, "__BELFRY") {
			t.Errorf("%s: the page has %q inline, or lacks its nonce:\n%s", path, found, page)
		}
	}
	if nonces[0] == nonces[1] {
		t.Error("two pages got the same nonce")
	}
}

func TestFiles(t *testing.T) {
	script := scriptTag.FindStringSubmatch(text(t, ask(t, "/").Body))
	if script == nil {
		t.Fatal("the page has no script")
	}
	plain := ask(t, script[1])
	content, etag := text(t, plain.Body), plain.Header.Get("ETag")
	if plain.StatusCode != 200 || plain.Header.Get("Content-Type") != "text/javascript; charset=utf-8" || etag == "" ||
		plain.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" || plain.Header.Get("Vary") != "Accept-Encoding" ||
		plain.Header.Get("Content-Encoding") != "" {
		t.Errorf("%d %v", plain.StatusCode, plain.Header)
	}
	packed := ask(t, script[1], "Accept-Encoding", "br, gzip")
	unpacked, err := gzip.NewReader(packed.Body)
	if err != nil || packed.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("%v %v", packed.Header, err)
	}
	if text(t, unpacked) != content {
		t.Error("the compressed file has another content")
	}
	if a := ask(t, script[1], "If-None-Match", etag); a.StatusCode != 304 || text(t, a.Body) != "" {
		t.Errorf("the same again: %d", a.StatusCode)
	}
	if a := ask(t, "/bell.svg"); a.StatusCode != 200 || a.Header.Get("Content-Type") != "image/svg+xml" || a.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("the icon: %d %v", a.StatusCode, a.Header)
	}
	// A page of another version may request a script that no longer exists. It must not get the page instead.
	for _, path := range []string{"/assets/index-gone.js", "/assets/", "/assets/../assets/x.js"} {
		if a := ask(t, path); a.StatusCode != 404 {
			t.Errorf("%s: %d", path, a.StatusCode)
		}
	}
}
