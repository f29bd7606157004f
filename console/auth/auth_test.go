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
	if n, wait := tries(l, 100, "192.0.2.1", "admin"); n != 10 || wait <= 0 || wait > 10*time.Second {
		t.Errorf("%d attempts for one user pass, then the wait is %v", n, wait)
	}
	if n, _ := tries(l, 100, "192.0.2.2", "admin"); n != 10 {
		t.Errorf("%d attempts pass from another address, although it made none", n)
	}
	if n, _ := tries(l, 100, "192.0.2.3", "ann"); n != 10 {
		t.Errorf("%d attempts pass for another user", n)
	}
	// Refused attempts do not extend the wait: an attempt passes after the wait that the limiter returned.
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

// No client can lock a user out: not one that tries all day, and not many at once.
func TestNobodyIsLockedOut(t *testing.T) {
	now := time.Now()
	l := auth.NewLimiter()
	guesses := 0
	for i := range 100_000 {
		now = now.Add(100 * time.Millisecond)
		if l.Try("192.0.2.1", "ann", now) == 0 {
			guesses++
		}
		if i%10_000 == 0 {
			if wait := l.Try("198.51.100.7", "ann", now); wait > 0 {
				t.Fatalf("after %d guesses of a client, another one waits for %v", guesses, wait)
			}
		}
	}
	if guesses > 10+10_000/10 {
		t.Errorf("%d guesses pass in 10,000 s", guesses)
	}
	many := func() (passed int) {
		for i := range 1000 {
			for range 5 {
				if l.Try(fmt.Sprintf("203.0.%d.%d", i/250, i%250), "ann", now) == 0 {
					passed++
				}
			}
		}
		return passed
	}
	// At most the user's burst of 50 guesses and the reserve of 3 guesses per network pass. After that, all guesses are refused.
	if n := many() + many(); n > 50+1000*3 {
		t.Errorf("%d of 10,000 guesses pass", n)
	}
	if n := many(); n != 0 {
		t.Errorf("%d of 5000 more guesses pass", n)
	}
	if wait := l.Try("198.51.100.8", "ann", now); wait > 0 {
		t.Errorf("while a thousand networks guess, the user waits for %v", wait)
	}
	if wait := l.Try("203.0.0.1", "ann", now); wait <= 0 || wait > 2*time.Second {
		t.Errorf("one of these networks waits for %v", wait)
	}
	// A site with many IPv6 networks has only one reserve.
	passed := 0
	for i := range 1000 {
		if l.Try(fmt.Sprintf("2001:db8:1:%x::1", i), "ann", now) == 0 {
			passed++
		}
	}
	if passed != 3 {
		t.Errorf("%d guesses pass from the networks of one site", passed)
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
