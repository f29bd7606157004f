package embedpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the operating system account that Postgres runs as.
type account struct {
	mode accountMode
	name string // for messages; empty if Postgres runs as the caller
	uid  int
	gid  int
}

type accountMode string

const (
	asCaller    accountMode = "as the caller"
	inNamespace accountMode = "in a user namespace" // the caller appears there as uid and gid
	asOther     accountMode = "as another account"  // with this uid and gid
)

// chooseAccount decides which account Postgres runs as. owner is the owner of the existing cluster, or -1. A cluster
// that was given to another account stays with it.
func chooseAccount(owner int, noNamespaces bool) (account, error) {
	root := os.Geteuid() == 0
	if root && owner > 0 {
		return account{mode: asOther, name: "uid " + strconv.Itoa(owner), uid: owner, gid: groupOf(owner)}, nil
	}
	if !root {
		if _, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
			return account{mode: asCaller}, nil
		}
		// initdb looks up the name of its user. A container's user may have no name, but can appear as a user who has
		// one.
	}
	other, err := unprivilegedAccount()
	if err != nil {
		if root {
			return account{}, err
		}
		return account{mode: asCaller}, nil
	}
	other.mode = inNamespace
	if !noNamespaces && namespacesAllowed(other) {
		return other, nil
	}
	if !root {
		return account{mode: asCaller}, nil
	}
	other.mode = asOther
	return other, nil
}

func unprivilegedAccount() (account, error) {
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(found.Uid)
		gid, errGID := strconv.Atoi(found.Gid)
		if err := errors.Join(errUID, errGID); err != nil {
			return account{}, fmt.Errorf("read account %s: %w", name, err)
		}
		if uid != 0 {
			return account{name: name, uid: uid, gid: gid}, nil
		}
	}
	return account{}, errors.New("Postgres refuses to run as root, and this machine has neither an account \"postgres\" nor an account \"nobody\" for it")
}

// groupOf returns the primary group of uid, or uid itself if it has no entry.
func groupOf(uid int) int {
	if found, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		if gid, err := strconv.Atoi(found.Gid); err == nil {
			return gid
		}
	}
	return uid
}

// command prepares a Postgres program. The program gets deathSignal when this process dies, and no terminal signals.
// Its environment contains none of the caller's Postgres client settings.
func (a account) command(deathSignal syscall.Signal, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=" + filepath.Dir(path) + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.Dir = "/"
	a.apply(cmd, deathSignal)
	return cmd
}

// give makes the account the owner of a file that root created.
func (a account) give(path string) error {
	if a.mode != asOther {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// giveTree is give for a directory tree.
func (a account) giveTree(root string) error {
	return filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return a.give(path)
	})
}

// reaches reports whether the account may enter dir.
func (a account) reaches(dir string) bool {
	if a.mode != asOther {
		return true
	}
	// The child enters dir before it executes the program. So an error of the second step proves that the first
	// succeeded, without needing any program.
	cmd := a.command(syscall.SIGKILL, missingProgram)
	cmd.Dir = dir
	return errors.Is(cmd.Start(), fs.ErrNotExist)
}

// missingProgram does not exist, and no user can create a file in /proc.
const missingProgram = "/proc/belfry-does-not-exist"
