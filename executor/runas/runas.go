// Package runas finds the account under which an executor that runs as root starts commands and scripts, so that they
// have none of root's rights. It works on Unix.
package runas

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// Account is an account of this machine. Create one with Lookup.
type Account struct {
	Name   string
	Home   string // its home directory, which may not exist
	UID    int
	GID    int
	Groups []int // supplementary groups
}

// Lookup finds an account by its name or number. It returns an error if there is none, if it is root, or if this
// process cannot start programs under other accounts because it does not run as root.
func Lookup(name string) (*Account, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	u, err := user.Lookup(name)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		if _, number := strconv.Atoi(name); number == nil {
			u, err = user.LookupId(name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("find the account: %w", err)
	}
	a := &Account{Name: u.Username, Home: u.HomeDir}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("find the groups of the account %s: %w", name, err)
	}
	ids, err := numbers(append([]string{u.Uid, u.Gid}, groups...))
	if err != nil {
		return nil, fmt.Errorf("the account %s: %w", name, err)
	}
	a.UID, a.GID, a.Groups = ids[0], ids[1], ids[2:]
	if a.UID == 0 {
		return nil, fmt.Errorf("the account %s is root", name)
	}
	return a, nil
}

func numbers(texts []string) (out []int, err error) {
	for _, text := range texts {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, err
		}
		out = append(out, int(n))
	}
	return out, nil
}

// kept are the variables of this process that programs of an account get. All others may contain secrets of root.
var kept = []string{"PATH", "LANG", "LANGUAGE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// Environ returns the environment of programs that run under the account: PATH, the locale, the time zone and the
// locations of certificates from this process, and the account's HOME, USER, LOGNAME and SHELL.
func (a *Account) Environ() []string {
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains(kept, name) || strings.HasPrefix(name, "LC_") {
			env = append(env, entry)
		}
	}
	return append(env, "HOME="+a.Dir(), "USER="+a.Name, "LOGNAME="+a.Name, "SHELL=/bin/sh")
}

// Dir returns the account's home directory, or / if it does not exist.
func (a *Account) Dir() string {
	if info, err := os.Stat(a.Home); err != nil || !info.IsDir() {
		return "/"
	}
	return a.Home
}

// Own makes the account the owner of files that this process has created and that no other account can access yet.
func (a *Account) Own(paths ...string) error {
	for _, path := range paths {
		if err := os.Lchown(path, a.UID, a.GID); err != nil {
			return fmt.Errorf("give a file to the account %s: %w", a.Name, err)
		}
	}
	return nil
}
