// Package modules makes the repository's two modules, the root and the SDK, as a module proxy serves them, from the working tree.
// Its tests check what users of the modules get. Command release writes the versions of a release.
package modules

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// The modules' paths, and the SDK's directory.
const (
	Root   = "github.com/belfryhq/belfry"
	SDK    = Root + "/executor"
	SDKDir = "executor"
)

// local are directories of a working tree that are not in the repository.
var local = []string{"node_modules", "belfry-data", "bin", "rapid"}

// Zip writes the module whose go.mod is in dir as a zip file, as a proxy serves it. The root's own zip may lack files of
// directories that begin with a dot, which no package needs.
func Zip(w io.Writer, dir string, m module.Version) error {
	var files []zip.File
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			name, err := filepath.Rel(dir, path)
			if err == nil && entry.Type().IsRegular() {
				files = append(files, file{path, filepath.ToSlash(name)})
			}
			return err
		}
		if path == dir {
			return nil
		}
		_, err = os.Stat(filepath.Join(path, "go.mod")) // of another module
		if err == nil || strings.HasPrefix(entry.Name(), ".") || slices.Contains(local, entry.Name()) {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return err
	}
	return zip.Create(w, m, files)
}

// file is a zip.File.
type file struct{ path, name string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.path) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.path) }
