package account_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/bearer"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t *testing.T) (account.Stores, *pgxpool.Pool) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return account.New(s.Pool()), s.Pool()
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func TestEnsureAdmin(t *testing.T) {
	s, _ := open(t)
	if _, _, err := s.Users.EnsureAdmin(t.Context(), "too short"); domain.CodeOf(err) != domain.Invalid {
		t.Errorf("a weak password: %v", err)
	}
	// Several processes may start at once. One of them creates the admin, and its password is valid.
	var wg sync.WaitGroup
	var mu sync.Mutex
	var passwords []string
	for range 4 {
		wg.Go(func() {
			created, generated, err := s.Users.EnsureAdmin(t.Context(), "")
			if err != nil {
				t.Error(err)
			}
			if created != (generated != "") {
				t.Errorf("created is %v, the password %q", created, generated)
			}
			if created {
				mu.Lock()
				defer mu.Unlock()
				passwords = append(passwords, generated)
			}
		})
	}
	wg.Wait()
	if len(passwords) != 1 {
		t.Fatalf("%d processes created the admin", len(passwords))
	}
	ticket, err := s.Sessions.LogIn(t.Context(), "admin", passwords[0], account.Origin{Remote: "127.0.0.1"})
	if err != nil || time.Until(ticket.ExpiresAt) < 6*24*time.Hour {
		t.Fatalf("log in: until %v, %v", ticket.ExpiresAt, err)
	}
	p, err := s.Authenticate(t.Context(), ticket.Token)
	if err != nil || p.Role != account.Admin || p.User != "admin" || p.Only() != nil || !p.Sees("any") {
		t.Errorf("the principal is %+v, %v", p, err)
	}
	if created, _, err := s.Users.EnsureAdmin(t.Context(), "another password"); created || err != nil {
		t.Errorf("the second call: %v, %v", created, err)
	}
	for name, password := range map[string]string{"admin": "another password", "nobody": passwords[0]} {
		if _, err := s.Sessions.LogIn(t.Context(), name, password, account.Origin{}); !errors.Is(err, account.ErrCredentials) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckPassword(t *testing.T) {
	for _, bad := range []string{"short", strings.Repeat("long ", 60), "1234567890", "Password123", "password123!", "qwertyuiop", "!!Manchester99", "aaaaaaaaaaaa", "1212121212",
		"ann-ann-ann", "annannann1", "ANN2026!!!", "nna-nna-nna", "not\xff utf-8 text"} {
		if err := account.CheckPassword("password", "ann", bad); domain.CodeOf(err) != domain.Invalid || err == nil {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range []string{"correct horse", "a-good-password", "long enough", "annoying battery", "ann's own horse", "7hk29f8aLq", "密码很长很长很长很好", "password of mine", "manchester was rainy"} {
		if err := account.CheckPassword("password", "ann", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	if err := account.CheckPassword("password", "", "correct horse"); err != nil {
		t.Errorf("without a name: %v", err)
	}
}

func TestPasswordHashIsRenewed(t *testing.T) {
	s, pool := open(t)
	if _, _, err := s.Users.EnsureAdmin(t.Context(), "correct horse"); err != nil {
		t.Fatal(err)
	}
	// An argon2id hash of "correct horse" with one pass over 8 KiB, as an earlier version might have stored it.
	const weak = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHRzb21lc2FsdA$"
	exec(t, pool, `UPDATE users SET password_hash = $1`, weak+account.WeakKey())
	if _, err := s.Sessions.LogIn(t.Context(), "admin", "correct horse", account.Origin{}); err != nil {
		t.Fatal(err)
	}
	var hash string
	if err := pool.QueryRow(t.Context(), `SELECT password_hash FROM users`).Scan(&hash); err != nil || strings.HasPrefix(hash, weak[:20]) {
		t.Errorf("the hash is %s (%v)", hash, err)
	}
	if _, err := s.Sessions.LogIn(t.Context(), "admin", "correct horse", account.Origin{}); err != nil {
		t.Errorf("with the new hash: %v", err)
	}
	for _, damaged := range []string{"x", "$argon2id$v=19$m=8,t=0,p=1$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA", "$argon2i$v=19$m=8,t=1,p=1$c29tZXNhbHQ$c29tZXNhbHQ",
		"$argon2id$v=19$m=99999999,t=1,p=1$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA", weak} {
		exec(t, pool, `UPDATE users SET password_hash = $1`, damaged)
		if _, err := s.Sessions.LogIn(t.Context(), "admin", "correct horse", account.Origin{}); domain.CodeOf(err) != domain.Internal || errors.Is(err, account.ErrCredentials) {
			t.Errorf("with the damaged hash %q: %v", damaged, err)
		}
	}
}

// A token never has more rights than its owner has at that moment.
func TestTokenRights(t *testing.T) {
	s, pool := open(t)
	if _, err := s.Users.CreateUser(t.Context(), account.NewUser{Name: "ann", Password: "long enough", Role: account.Operator, Groups: []string{"a", "b"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Users.CreateUser(t.Context(), account.NewUser{Name: "ann", Password: "long enough", Role: account.Viewer, Groups: nil}); domain.CodeOf(err) != domain.Conflict {
		t.Errorf("a second ann: %v", err)
	}
	session, err := s.Sessions.LogIn(t.Context(), "ann", "long enough", account.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := s.Authenticate(t.Context(), session.Token)
	if err != nil {
		t.Fatal(err)
	}
	_, secret, err := s.Tokens.CreateToken(t.Context(), owner, "all", account.Admin, []string{"b", "c"}, account.ScopeAll, nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, role account.Role, groups string) {
		t.Helper()
		p, err := s.Authenticate(t.Context(), secret)
		if err != nil || p.Role != role || strings.Join(p.Groups, " ") != groups {
			t.Errorf("%s: %s of %v (%v), want %s of %s", what, p.Role, p.Groups, err, role, groups)
		}
	}
	check("an admin's token with groups", account.Operator, "b")
	exec(t, pool, `UPDATE api_tokens SET groups = '{}'`)
	check("an admin's token of an operator", account.Operator, "a b")
	exec(t, pool, `UPDATE api_tokens SET role = 'operator', groups = '{b,c}'`)
	check("common groups", account.Operator, "b")
	exec(t, pool, `UPDATE users SET role = 'viewer', groups = '{c}'`)
	check("after the owner became viewer", account.Viewer, "c")
	exec(t, pool, `UPDATE users SET role = 'admin'`)
	check("after the owner became admin", account.Operator, "b c")
	exec(t, pool, `UPDATE api_tokens SET role = 'admin'`)
	check("an admin's token with groups, of an admin", account.Operator, "b c")
	if list, err := s.Tokens.Tokens(t.Context(), 0, 0, 10); err != nil || list[0].Role != account.Operator {
		t.Errorf("the list says %+v, %v", list, err)
	}
	exec(t, pool, `UPDATE api_tokens SET scope = 'events'`)
	if _, _, err := s.Tokens.SenderOfToken(t.Context(), secret); !errors.Is(err, account.ErrCredentials) {
		t.Errorf("a token with groups may send events for all groups: %v", err)
	}
	exec(t, pool, `UPDATE api_tokens SET groups = '{}'`)
	if _, _, err := s.Tokens.SenderOfToken(t.Context(), secret); err != nil {
		t.Errorf("without groups: %v", err)
	}
	exec(t, pool, `DELETE FROM users`)
	for _, token := range []string{secret, session.Token} {
		if _, err := s.Authenticate(t.Context(), token); !errors.Is(err, account.ErrCredentials) {
			t.Errorf("without its owner: %v", err)
		}
	}
}

func TestTokensOfOtherKinds(t *testing.T) {
	s, _ := open(t)
	ofGroup, _ := bearer.New(bearer.Group)
	for _, token := range []string{"", ofGroup, "bft_", "bft_" + ofGroup[4:], "bfs_" + ofGroup[4:], "bfs_" + strings.Repeat("\x00", 43)} {
		if _, err := s.Authenticate(t.Context(), token); !errors.Is(err, account.ErrCredentials) {
			t.Errorf("%q: %v", token, err)
		}
	}
}

func TestSweep(t *testing.T) {
	s, pool := open(t)
	if _, _, err := s.Users.EnsureAdmin(t.Context(), "long enough"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Sessions.LogIn(t.Context(), "admin", "long enough", account.Origin{}); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, pool, `UPDATE sessions SET expires_at = now() WHERE ctid = (SELECT min(ctid) FROM sessions)`)
	if n, err := s.Sessions.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("Sweep deleted %d rows, want 1 (%v)", n, err)
	}
}

func TestPostgresAway(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s := account.New(pool)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	token := "bfs_" + strings.Repeat("A", 43)
	if _, err := s.Authenticate(ctx, token); domain.CodeOf(err) != domain.Unavailable {
		t.Errorf("authenticate: %v", err)
	}
	if _, err := s.Sessions.LogIn(ctx, "admin", "x", account.Origin{}); domain.CodeOf(err) != domain.Unavailable {
		t.Errorf("log in: %v", err)
	}
}

// While Postgres is read-only, tokens and sessions are still recognized, although their use cannot be recorded.
func TestReadOnlyPostgres(t *testing.T) {
	s, pool := open(t)
	if _, _, err := s.Users.EnsureAdmin(t.Context(), "correct horse"); err != nil {
		t.Fatal(err)
	}
	session, err := s.Sessions.LogIn(t.Context(), "admin", "correct horse", account.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := s.Authenticate(t.Context(), session.Token)
	if err != nil {
		t.Fatal(err)
	}
	_, token, err := s.Tokens.CreateToken(t.Context(), owner, "prometheus", account.Viewer, nil, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE sessions SET last_used_at = now() - interval '1 hour'`)
	config := pool.Config()
	config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	standby, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Close()
	for what, secret := range map[string]string{"session": session.Token, "token": token} {
		if p, err := account.New(standby).Authenticate(t.Context(), secret); err != nil || p.User != "admin" {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
}

// A token may send events over NATS as long as it is of scope events and has the rights of an admin.
func TestSenders(t *testing.T) {
	s, pool := open(t)
	if _, _, err := s.Users.EnsureAdmin(t.Context(), "correct horse"); err != nil {
		t.Fatal(err)
	}
	session, err := s.Sessions.LogIn(t.Context(), "admin", "correct horse", account.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := s.Authenticate(t.Context(), session.Token)
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string, role account.Role, scope account.Scope, expiresAt *time.Time) (account.Token, string) {
		t.Helper()
		made, secret, err := s.Tokens.CreateToken(t.Context(), owner, name, role, nil, scope, expiresAt)
		if err != nil {
			t.Fatal(err)
		}
		return made, secret
	}
	soon := time.Now().Add(time.Hour)
	sender, secret := create("sender", account.Admin, account.ScopeEvents, nil)
	expiring, expiringSecret := create("expiring", account.Admin, account.ScopeEvents, &soon)
	other, otherSecret := create("other", account.Admin, account.ScopeAll, nil)
	weak, weakSecret := create("weak", account.Viewer, account.ScopeEvents, nil)
	ids := []int64{sender.ID, expiring.ID, other.ID, weak.ID, 12345}
	want := func(what string, live ...int64) {
		t.Helper()
		got, err := s.Tokens.LiveSenders(t.Context(), ids)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, live) {
			t.Errorf("%s: %v may send events, want %v (%v)", what, got, live, err)
		}
		for id, secret := range map[int64]string{sender.ID: secret, expiring.ID: expiringSecret, other.ID: otherSecret, weak.ID: weakSecret} {
			found, _, err := s.Tokens.SenderOfToken(t.Context(), secret)
			if slices.Contains(live, id) {
				if err != nil || found != id {
					t.Errorf("%s: token %d is %d, %v", what, id, found, err)
				}
			} else if !errors.Is(err, account.ErrCredentials) || domain.CodeOf(err) != domain.Forbidden {
				t.Errorf("%s: token %d: %v", what, id, err)
			}
		}
	}
	want("at first", sender.ID, expiring.ID)
	if _, left, err := s.Tokens.SenderOfToken(t.Context(), expiringSecret); err != nil || left <= 0 || left > time.Hour {
		t.Errorf("the token is valid for %v, %v", left, err)
	}
	if _, left, err := s.Tokens.SenderOfToken(t.Context(), secret); err != nil || left != 0 {
		t.Errorf("a token without an expiry is valid for %v, %v", left, err)
	}
	exec(t, pool, `UPDATE api_tokens SET expires_at = now() - interval '1 second' WHERE id = $1`, expiring.ID)
	want("after an expiry", sender.ID)
	exec(t, pool, `UPDATE users SET disabled = true`)
	want("while the user is disabled")
	exec(t, pool, `UPDATE users SET disabled = false, role = 'operator'`)
	want("after the user's role has changed")
	exec(t, pool, `UPDATE users SET role = 'admin'`)
	want("with the old role", sender.ID)
	exec(t, pool, `UPDATE api_tokens SET groups = '{default}' WHERE id = $1`, sender.ID)
	want("with groups, which only tokens of earlier versions have")
	exec(t, pool, `UPDATE api_tokens SET groups = '{}' WHERE id = $1`, sender.ID)
	if _, err := s.Tokens.DeleteToken(t.Context(), 0, sender.ID); err != nil {
		t.Fatal(err)
	}
	want("after a deletion")
}
