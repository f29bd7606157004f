package scripts

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	workshopPrefix = "belfry-scripts-"
	workshopLock   = "lock"
)

// workshop is the directory of a Runner. It is locked as long as the Runner's process runs. The next Runner removes the
// directories that are not locked, because their processes have died.
type workshop struct {
	path string
	lock io.Closer
}

// openTries is the number of attempts to create a workshop. An attempt fails if another process's sweep removes the new
// directory.
const openTries = 3

func openWorkshop(parent string) (w *workshop, err error) {
	sweep(parent)
	for range openTries {
		if w, err = newWorkshop(parent); err == nil {
			return w, nil
		}
	}
	return nil, err
}

func newWorkshop(parent string) (*workshop, error) {
	path, err := os.MkdirTemp(parent, workshopPrefix) // created with permissions for this user only
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(path, workshopLock))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &workshop{path, lock}, nil
}

func (w *workshop) close() error { return errors.Join(remove(w.path), w.lock.Close()) }

// sweep removes the directories of dead processes. It skips a directory without a lock file, because a process may have
// just created it.
func sweep(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), workshopPrefix) {
			continue
		}
		path := filepath.Join(parent, e.Name())
		if _, err := os.Lstat(filepath.Join(path, workshopLock)); err != nil {
			continue
		}
		if lock, err := lockFile(filepath.Join(path, workshopLock)); err == nil {
			_ = remove(path) // a directory that cannot be removed belongs to another user and stays
			lock.Close()
		}
	}
}

// remove removes a directory. If a script removed its own permissions there, for example in a cache of Go modules,
// remove restores them first.
func remove(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	if root, openErr := os.OpenRoot(dir); openErr == nil { // os.Root does not follow the script's links out of the directory
		_ = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
			if e != nil && e.IsDir() && err == nil {
				_ = root.Chmod(path, 0o700) // RemoveAll reports the directories that could not be changed
			}
			return nil
		})
		_ = root.Close()
	}
	return os.RemoveAll(dir)
}
