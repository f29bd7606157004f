package cli

import (
	"os"
	"testing"
)

// TestUsers creates users and acts as one of them: it changes an initial password, and ends log-ins.
func TestUsers(t *testing.T) {
	newRealConsole(t)
	const given, chosen = "given-by-an-admin", "chosen-by-oneself"
	saved, err := loadLogin()
	if err != nil {
		t.Fatal(err)
	}
	ok := func(stdin string, args ...string) result { return belfry(t, stdin, args...) }
	ok(given+"\n", "user", "create", "ann", "--role", "viewer", "-g", "default", "--password-stdin", "--must-change-password", "-o", "json").
		want(t, ExitDone, `"must_change_password": true`, `"kind": "local"`)
	ok(given+"\n", "user", "create", "bob", "--role", "viewer", "-g", "default", "--password-stdin", "-o", "json").
		want(t, ExitDone, `"must_change_password": false`)
	ok(given+"\n", "user", "set", "bob", "--password-stdin", "--must-change-password", "-o", "json").want(t, ExitDone, `"must_change_password": true`)
	ok("", "user", "set", "bob", "--no-must-change-password", "-o", "json").want(t, ExitDone, `"must_change_password": false`)
	ok("", "user", "logout", "ann", "bob").want(t, ExitDone, "ann logged out", "bob logged out")

	ok(given+"\n", "login", "--server", saved.Server, "-u", "ann", "--password-stdin").want(t, ExitDone)
	if r := ok("", "job", "list"); r.code != ExitFailed {
		t.Errorf("before the password is changed: %d %s", r.code, r.stdout)
	}
	if r := ok("wrong\n"+chosen+"\n", "password", "--password-stdin"); r.code != ExitFailed {
		t.Errorf("a wrong password: %d", r.code)
	}
	ok(given+"\n"+chosen+"\n", "password", "--password-stdin").want(t, ExitDone)
	ok("", "job", "list").want(t, ExitDone)

	before, err := loadLogin()
	if err != nil {
		t.Fatal(err)
	}
	ok("", "logout", "--everywhere").want(t, ExitDone)
	path, err := loginPath()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the log-in is still kept: %v", err)
	}
	if r := ok("", "job", "list", "--server", before.Server, "--token", before.Token); r.code != ExitFailed {
		t.Errorf("the token outlives the log-out: %s", r.stdout)
	}
	for _, args := range []string{"logout", "password"} {
		if r := ok("a\nb\n", args); r.code == ExitDone {
			t.Errorf("%s without a log-in: %s", args, r.stdout)
		}
	}
}
