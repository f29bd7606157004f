package natsauth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/belfryhq/belfry/internal/domain"
)

type verifierFunc func(token string) (string, error)

func (f verifierFunc) GroupOfToken(_ context.Context, token string) (string, time.Duration, error) {
	group, err := f(token)
	return group, 0, err
}

func newResponder(t testing.TB, verify verifierFunc) *Responder {
	t.Helper()
	issuer, err := NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{Verifier: verify, Issuer: issuer, CacheSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// request returns the message that a server sends for a log-in, after change has edited its claims.
func request(t testing.TB, change func(*jwt.AuthorizationRequestClaims)) []byte {
	t.Helper()
	server, err := nkeys.CreateServer()
	if err != nil {
		t.Fatal(err)
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	userKey, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	claims := jwt.NewAuthorizationRequestClaims("subject")
	claims.Audience = authAudience
	claims.UserNkey = userKey
	claims.Server.ID = "SERVER"
	claims.Expires = time.Now().Add(time.Minute).Unix()
	claims.ConnectOptions.Token = "token"
	claims.ConnectOptions.Name = "a.i1"
	if change != nil {
		change(claims)
	}
	data, err := claims.Encode(server)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(data)
}

func TestAnswer(t *testing.T) {
	r := newResponder(t, func(token string) (string, error) {
		switch token {
		case "token":
			return "a", nil
		case "wild":
			return "a.>", nil
		}
		return "", domain.NewError(domain.Forbidden, "no token "+token)
	})
	tests := []struct {
		name   string
		change func(*jwt.AuthorizationRequestClaims)
		want   string // the error in the answer to the server
	}{
		{"valid", nil, ""},
		{"no token", func(c *jwt.AuthorizationRequestClaims) { c.ConnectOptions.Token = "" }, "no group token"},
		{"password instead", func(c *jwt.AuthorizationRequestClaims) {
			c.ConnectOptions.Token, c.ConnectOptions.Password = "", "token"
		}, "no group token"},
		{"long token", func(c *jwt.AuthorizationRequestClaims) { c.ConnectOptions.Token = strings.Repeat("x", 257) }, "no group token"},
		{"wrong token", func(c *jwt.AuthorizationRequestClaims) { c.ConnectOptions.Token = "secret" }, "token refused"},
		{"a group with wildcards", func(c *jwt.AuthorizationRequestClaims) { c.ConnectOptions.Token = "wild" }, `"a.>" is not a group name`},
		{"an instance with a wildcard", func(c *jwt.AuthorizationRequestClaims) { c.ConnectOptions.Name = "a.*" },
			"the client name is not <group>.<instance> with a valid instance name"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			now := time.Now()
			data, err := r.answer(context.Background(), request(t, test.change), now)
			if err != nil {
				t.Fatal(err)
			}
			response, err := jwt.DecodeAuthorizationResponseClaims(string(data))
			if err != nil {
				t.Fatal(err)
			}
			if response.Error != test.want || (response.Jwt == "") != (test.want != "") || response.Audience != "SERVER" {
				t.Fatalf("got %+v", response)
			}
			if test.want != "" {
				return
			}
			user, err := jwt.DecodeUserClaims(response.Jwt)
			if err != nil {
				t.Fatal(err)
			}
			life := time.Unix(user.Expires, 0).Sub(now)
			if user.Name != hashOf("token").user("a") || user.Audience != DefaultAccount || life > DefaultLifetime || life < DefaultLifetime*9/10-time.Second {
				t.Errorf("got %+v for %s", user, life)
			}
		})
	}
}

// A malformed request gets no answer. It is counted and has no other effect.
func TestAnswerMalformed(t *testing.T) {
	r := newResponder(t, func(string) (string, error) { return "a", nil })
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	account, err := NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	userKey, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	other, err := jwt.NewUserClaims(userKey).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	valid := string(request(t, nil))
	for name, data := range map[string]string{
		"empty":           "",
		"zeroes":          strings.Repeat("\x00", 100),
		"dots":            "...",
		"not base64":      "a.b.c",
		"too large":       strings.Repeat("a", maxRequestBytes+1),
		"cut":             valid[:len(valid)-5],
		"another jwt":     other,
		"wrong signature": valid[:strings.LastIndexByte(valid, '.')+1] + strings.Repeat("A", 86),
		"another service": string(request(t, func(c *jwt.AuthorizationRequestClaims) { c.Audience = "other" })),
		"no server":       string(request(t, func(c *jwt.AuthorizationRequestClaims) { c.Server.ID = "" })),
		"no user":         string(request(t, func(c *jwt.AuthorizationRequestClaims) { c.UserNkey = "x" })),
		"expired":         string(request(t, func(c *jwt.AuthorizationRequestClaims) { c.Expires = 1 })),
	} {
		if answer, err := r.answer(context.Background(), []byte(data), time.Now()); err == nil {
			t.Errorf("%s: answered %s", name, answer)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	r := newResponder(f, func(string) (string, error) { return "a", nil })
	f.Add(request(f, nil))
	f.Add([]byte("eyJ.eyJ.x"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = r.answer(context.Background(), data, time.Now()) // must not panic
	})
}

// FuzzLogin checks the permissions in the answers to log-ins with any client name, host and token of group a.
func FuzzLogin(f *testing.F) {
	r := newResponder(f, func(string) (string, error) { return "a", nil })
	for _, name := range append(badInstances, "i1", "", "a.i1", "b.i1") {
		f.Add(name, "token", "127.0.0.1")
		f.Add("a."+name, "token", "host "+name)
		f.Add(formerClient+"a."+name, "EVENTS_1", "")
	}
	f.Fuzz(func(t *testing.T, name, token, host string) {
		req := jwt.NewAuthorizationRequestClaims("subject")
		req.UserNkey, req.Server.ID, req.ClientInformation.Host = fuzzedUser, "SERVER", host
		req.ConnectOptions.Token, req.ConnectOptions.Name = token, name
		r.gates, _ = newGates(nil) // the rates of log-ins are not part of this test
		data, err := r.decide(context.Background(), req, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		response, err := jwt.DecodeAuthorizationResponseClaims(string(data))
		if err != nil {
			t.Fatal(err)
		}
		if response.Error != "" {
			return
		}
		user, err := jwt.DecodeUserClaims(response.Jwt)
		if err != nil {
			t.Fatal(err)
		}
		instance, ok := strings.CutPrefix(strings.TrimPrefix(name, formerClient), "a.")
		want, _ := ObserverPermissions("a")
		if ok {
			if want, err = Permissions("a", instance); err != nil {
				t.Fatalf("%q was accepted: %v", name, err)
			}
		}
		if !slices.Equal(user.Sub.Allow, want.Sub.Allow) || !slices.Equal(user.Pub.Allow, want.Pub.Allow) || !slices.Equal(user.Pub.Deny, want.Pub.Deny) {
			t.Errorf("%q may %v, want %v", name, user.Permissions, want)
		}
		checkPermissions(t, "a", instance)
	})
}

var fuzzedUser = func() string {
	key, err := nkeys.CreateUser()
	if err != nil {
		panic(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		panic(err)
	}
	return public
}()

// The client name selects the instance that the permissions are for. A client without the name of an executor of the
// token's group may only observe runs.
func TestClientNameSelectsPermissions(t *testing.T) {
	r := newResponder(t, func(string) (string, error) { return "a", nil })
	executor := func(instance string) jwt.Permissions {
		p, err := Permissions("a", instance)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	observer, err := ObserverPermissions("a")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]jwt.Permissions{
		"a.i1": executor("i1"), "a.i2": executor("i2"), "belfry executor a.i2": executor("i2"),
		"": observer, "dashboard": observer, "b.i1": observer, "belfry executor b.i1": observer,
	} {
		data, err := r.answer(t.Context(), request(t, func(c *jwt.AuthorizationRequestClaims) { c.ConnectOptions.Name = name }), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		response, err := jwt.DecodeAuthorizationResponseClaims(string(data))
		if err != nil {
			t.Fatal(err)
		}
		user, err := jwt.DecodeUserClaims(response.Jwt)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(user.Sub.Allow, want.Sub.Allow) || !slices.Equal(user.Pub.Allow, want.Pub.Allow) || !slices.Equal(user.Pub.Deny, want.Pub.Deny) {
			t.Errorf("%q may %v, want %v", name, user.Permissions, want)
		}
	}
}

func TestMemoryOfTokens(t *testing.T) {
	var err error
	r := newResponder(t, func(token string) (string, error) {
		if err != nil {
			return "", err
		}
		group, _, _ := strings.Cut(token, ":")
		return group, nil
	})
	away := domain.NewError(domain.Unavailable, "Postgres is away")
	ask := func(token string) string {
		t.Helper()
		data, e := r.answer(context.Background(), request(t, func(c *jwt.AuthorizationRequestClaims) { c.ConnectOptions.Token = token }), time.Now())
		if e != nil {
			t.Fatal(e)
		}
		response, e := jwt.DecodeAuthorizationResponseClaims(string(data))
		if e != nil {
			t.Fatal(e)
		}
		return response.Error
	}
	expect := func(token, want string) {
		t.Helper()
		if got := ask(token); got != want {
			t.Errorf("%s: got %q, want %q", token, got, want)
		}
	}
	const unknown = "tokens cannot be verified at the moment"

	expect("a:1", "")
	err = away
	expect("a:1", "")
	expect("a:2", unknown)
	err = fmt.Errorf("query: %w", context.DeadlineExceeded)
	expect("a:1", "")

	// An internal error neither causes the use of the cache nor removes the token from it.
	err = errors.New("broken")
	expect("a:1", "token refused")
	err = away
	expect("a:1", "")

	// A new token of the group removes the old one from the cache.
	err = nil
	expect("a:2", "")
	err = away
	expect("a:1", unknown)
	expect("a:2", "")

	// A refusal by the Verifier removes the token too, and so does Recheck without an answer.
	err = domain.NewError(domain.Forbidden, "no such token")
	expect("a:2", "token refused")
	err = away
	expect("a:2", unknown)
	err = nil
	expect("a:3", "")
	r.Recheck("a")
	err = away
	expect("a:3", unknown)

	// The cache is bounded: it removes the token that was used least recently.
	err = nil
	for _, token := range []string{"a:1", "b:1", "c:1", "d:1", "e:1"} {
		expect(token, "")
	}
	err = away
	expect("a:1", unknown)
	expect("e:1", "")

	want := Stats{Allowed: 8, FromCache: 5, Refused: 2, Unavailable: 5}
	if got := r.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNewNamesAllFaults(t *testing.T) {
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(Config{Issuer: user, Lifetime: time.Second, CacheSize: -1})
	var e *domain.Error
	if !errors.As(err, &e) || e.Code != domain.Invalid || len(e.Fields) != 4 {
		t.Errorf("got %v", err)
	}
	if _, err := ParseIssuer("SUAXXXSECRET"); err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("got %v", err)
	}
	issuer, err := NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := issuer.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseIssuer(string(seed) + "\n"); err != nil {
		t.Error(err)
	}
}
