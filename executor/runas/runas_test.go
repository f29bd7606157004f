package runas_test

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/executor/runas"
)

func TestLookup(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() != 0 {
		if _, err := runas.Lookup("nobody"); err == nil || !strings.Contains(err.Error(), "under another account") {
			t.Errorf("without rights: %v", err)
		}
		return
	}
	named, err := runas.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if named.UID == 0 || named.GID == 0 || !slices.Contains(named.Groups, named.GID) {
		t.Errorf("the account is %+v", named)
	}
	for name, want := range map[string]string{"root": "is root", "0": "is root", "no-such-account": "no-such-account", "4000000000": "4000000000", "": "account"} {
		if a, err := runas.Lookup(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v", name, a, err)
		}
	}
}

func TestEnviron(t *testing.T) {
	for name, value := range map[string]string{"BELFRY_TOKEN": "x", "SECRET": "x", "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": "/root", "USER": "root"} {
		t.Setenv(name, value)
	}
	a := &runas.Account{Name: "worker", Home: t.TempDir()}
	env := a.Environ()
	for _, want := range []string{"LC_ALL=C.UTF-8", "TZ=UTC", "HOME=" + a.Home, "USER=worker", "LOGNAME=worker", "SHELL=/bin/sh"} {
		if !slices.Contains(env, want) {
			t.Errorf("there is no %s in %v", want, env)
		}
	}
	for _, entry := range env {
		if strings.HasPrefix(entry, "BELFRY_") || strings.HasPrefix(entry, "SECRET") || entry == "HOME=/root" || entry == "USER=root" {
			t.Errorf("the environment has %s", entry)
		}
	}
	if a.Home += "/missing"; a.Dir() != "/" {
		t.Errorf("without a home directory, programs start in %s", a.Dir())
	}
}
