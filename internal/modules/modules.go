// Package modules builds the files of the repository's modules, the root, the SDK and the SDK's module for OpenTelemetry, from the working
// tree in the form of a module proxy. Its tests check the modules as their users get them. Command release writes the versions of a release.
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

// The paths of the modules, and the directories of those below the root.
const (
	Root    = "github.com/belfryhq/belfry"
	SDK     = Root + "/executor"
	SDKDir  = "executor"
	OTel    = SDK + "/otel"
	OTelDir = "executor/otel"
)

// local lists directories of a working tree that do not belong to the repository.
var local = []string{"node_modules", "belfry-data", "bin", "rapid"}

// Zip writes the zip file of the module whose go.mod is in dir, in the form that a proxy serves. It omits directories that begin
// with a dot, which no package needs.
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
		_, err = os.Stat(filepath.Join(path, "go.mod")) // if it exists, path is another module
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

// file implements zip.File. path is the file on disk, and name is its name in the zip file.
type file struct{ path, name string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.path) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.path) }
