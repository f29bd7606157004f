package embedpg

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// maxSocketPath is the longest path of a socket's address: 107 bytes on Linux, 103 on macOS and the BSDs.
const maxSocketPath = 103

const socketName = ".s.PGSQL." + port

// socketDir is the private directory of the socket.
type socketDir struct {
	path   string
	memory string // the file that stores a path outside the cluster; otherwise empty
}

// openSocketDir creates the directory: in the cluster or, if that path is too long for a socket, under a short random
// name. That name is stored, so that a start after a crash reuses the directory instead of leaving it behind.
func (c *cluster) openSocketDir() (socketDir, error) {
	beside := filepath.Join(c.base, "run")
	if fitsSocket(beside) {
		if err := os.Mkdir(beside, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return socketDir{}, fmt.Errorf("create the socket's directory: %w", err)
		}
		return c.own(socketDir{path: beside})
	}
	dir := socketDir{memory: filepath.Join(c.base, "socket_dir")}
	if content, err := os.ReadFile(dir.memory); err == nil {
		dir.path = strings.TrimSpace(string(content))
		if c.isPrivate(dir.path) {
			return c.own(dir)
		}
	}
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		path, err := os.MkdirTemp(parent, "belfry-")
		if err != nil {
			return socketDir{}, fmt.Errorf("create the socket's directory: %w", err)
		}
		if !fitsSocket(path) {
			if err := os.Remove(path); err != nil {
				return socketDir{}, fmt.Errorf("remove a directory too long for a socket: %w", err)
			}
			continue
		}
		dir.path = path
		if err := os.WriteFile(dir.memory, []byte(path+"\n"), 0o600); err != nil {
			return socketDir{}, fmt.Errorf("store the path of the socket's directory: %w", err)
		}
		return c.own(dir)
	}
	return socketDir{}, fmt.Errorf("no directory for the socket is short enough: a socket's path has at most %d bytes", maxSocketPath)
}

func fitsSocket(dir string) bool {
	return len(filepath.Join(dir, socketName)) <= maxSocketPath
}

// own gives a directory to the account alone, and removes the files that a killed Postgres left in it: its lock names a
// process id that may belong to another process by now.
func (c *cluster) own(dir socketDir) (socketDir, error) {
	if err := c.account.give(dir.path); err != nil {
		return socketDir{}, fmt.Errorf("change the owner of the socket's directory to %s: %w", c.account.name, err)
	}
	if !c.isPrivate(dir.path) {
		return socketDir{}, fmt.Errorf("%s must be a directory of mode 0700 that belongs to the account of Postgres", dir.path)
	}
	if err := dir.clear(); err != nil {
		return socketDir{}, fmt.Errorf("clear the socket's directory: %w", err)
	}
	return dir, nil
}

// isPrivate detects a directory that another user has created in place of this one, for example after the temporary
// directory was emptied.
func (c *cluster) isPrivate(path string) bool {
	want := os.Geteuid()
	if c.account.mode == asOther {
		want = c.account.uid
	}
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return false
	}
	owner, err := ownerOf(info)
	return err == nil && owner == want
}

// clear removes only the files that Postgres creates there.
func (d socketDir) clear() error {
	socket := filepath.Join(d.path, socketName)
	for _, path := range []string{socket, socket + ".lock"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// remove deletes a directory outside the cluster after Postgres has ended.
func (d socketDir) remove(log *slog.Logger) {
	if d.memory == "" {
		return
	}
	if err := errors.Join(d.clear(), os.Remove(d.path), os.Remove(d.memory)); err != nil {
		log.Warn("cannot remove the socket's directory, it remains", "path", d.path, "err", err)
	}
}
