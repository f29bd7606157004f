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

// workshop is the directory of a Runner. It is locked, so that the next Runner can tell which directories were left behind
// by processes that died, and removes them.
type workshop struct {
	path string
	lock io.Closer
}

// openTries is how often a workshop is opened anew when another process's sweep was in the way.
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
	path, err := os.MkdirTemp(parent, workshopPrefix) // for this user alone
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

// sweep removes what processes that died have left. One that was just made and is not locked yet has no lock file.
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
			_ = remove(path) // whatever cannot be removed is somebody else's, and stays
			lock.Close()
		}
	}
}

// remove removes a directory, also where a script has taken away its own rights, as for a cache of Go modules.
func remove(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	if root, openErr := os.OpenRoot(dir); openErr == nil { // no link of the script's leads out of it
		_ = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
			if e != nil && e.IsDir() && err == nil {
				_ = root.Chmod(path, 0o700) // what cannot be changed is seen by RemoveAll
			}
			return nil
		})
		_ = root.Close()
	}
	return os.RemoveAll(dir)
}
