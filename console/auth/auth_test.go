package auth_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/belfryhq/belfry/console/auth"
)

func TestLimiter(t *testing.T) {
	now := time.Now()
	tries := func(l *auth.Limiter, n int, remote, user string) (passed int, wait time.Duration) {
		for range n {
			if d := l.Try(remote, user, now); d > 0 {
				wait = d
			} else {
				passed++
			}
		}
		return passed, wait
	}
	l := auth.NewLimiter()
	if n, wait := tries(l, 100, "192.0.2.1", "admin"); n != 10 || wait <= 0 || wait > 5*time.Second {
		t.Errorf("%d attempts for one user pass, then the wait is %v", n, wait)
	}
	if n, _ := tries(l, 100, "192.0.2.2", "admin"); n != 0 {
		t.Errorf("%d more attempts pass from another address", n)
	}
	if n, _ := tries(l, 100, "192.0.2.3", "ann"); n != 10 {
		t.Errorf("%d attempts pass for another user", n)
	}
	// Refused attempts do not count: an attempt passes after the wait that the limiter returned.
	if _, wait := tries(l, 1, "192.0.2.1", "admin"); l.Try("192.0.2.1", "admin", now.Add(wait)) != 0 {
		t.Error("an attempt after the returned wait is refused")
	}

	passed := 0
	for i := range 100 {
		n, _ := tries(l, 1, fmt.Sprintf("2001:db8::%x", i), fmt.Sprintf("user%d", i))
		passed += n
	}
	if passed != 20 {
		t.Errorf("%d attempts for many users pass from one IPv6 network", passed)
	}
	if n, _ := tries(l, 1, "2001:db8:0:1::1", "other"); n != 1 {
		t.Error("another network is refused")
	}
}

func TestRemote(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.1:1234": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::1", "odd": "odd"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = address
		r.Header.Set("X-Forwarded-For", "203.0.113.9")
		if got := auth.Remote(r); got != want {
			t.Errorf("the address of %s is %s", address, got)
		}
	}
}

func TestSessionCookie(t *testing.T) {
	c := auth.SessionCookie("token", time.Now().Add(time.Hour), true)
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" {
		t.Errorf("the cookie is %s", c.String())
	}
	if c := auth.SessionCookie("", time.Unix(1, 0), false); c.MaxAge != -1 || c.Secure {
		t.Errorf("the cookie that ends a session is %s", c.String())
	}
}
