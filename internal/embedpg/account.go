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

// account says as whom Postgres runs.
type account struct {
	mode accountMode
	name string // for people; empty when Postgres runs as the caller
	uid  int
	gid  int
}

type accountMode string

const (
	asCaller    accountMode = "as the caller"
	inNamespace accountMode = "in a user namespace" // in which the caller appears as uid and gid
	asOther     accountMode = "as another account"  // which is uid and gid
)

// chooseAccount decides as whom to run. owner is the owner of the existing
// cluster, or -1: a cluster that once came to another account stays with it.
func chooseAccount(owner int, noNamespaces bool) (account, error) {
	root := os.Geteuid() == 0
	if root && owner > 0 {
		return account{mode: asOther, name: "uid " + strconv.Itoa(owner), uid: owner, gid: groupOf(owner)}, nil
	}
	if !root {
		if _, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
			return account{mode: asCaller}, nil
		}
		// initdb asks for the name of its user. A container's user may have
		// none, but can appear as one who has.
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
	return account{}, errors.New("Postgres refuses to run as root, and there is no account named postgres or nobody to run it as")
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

// command prepares a program of Postgres. It gets deathSignal when this process
// dies, no terminal signals, and an environment in which no setting of the
// caller's own Postgres clients can mislead it.
func (a account) command(deathSignal syscall.Signal, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=" + filepath.Dir(path) + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.Dir = "/"
	a.apply(cmd, deathSignal)
	return cmd
}

// give makes the account the owner of a file that root has made.
func (a account) give(path string) error {
	if a.mode != asOther {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// giveTree is give for a whole tree.
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
	// The child enters dir before it executes, so that an error of the second
	// step shows that the first went well, without needing any program.
	cmd := a.command(syscall.SIGKILL, missingProgram)
	cmd.Dir = dir
	return errors.Is(cmd.Start(), fs.ErrNotExist)
}

// missingProgram does not exist: neither can anyone make a file in /proc.
const missingProgram = "/proc/belfry-does-not-exist"
