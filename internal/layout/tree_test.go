package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"
)

// module is the path of the module whose tree is read.
const module = "github.com/belfryhq/belfry"

// sourceFile is one parsed Go file.
type sourceFile struct {
	path      string // below the module's root, with slashes
	dir       string // "." for the root
	test      bool
	generated bool
	syntax    *ast.File
	positions *token.FileSet
}

// at returns the position of n for messages.
func (f sourceFile) at(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.positions.Position(n.Pos()).Line)
}

// imports returns the imported paths with the specs that import them.
func (f sourceFile) imports() map[string]*ast.ImportSpec {
	found := make(map[string]*ast.ImportSpec, len(f.syntax.Imports))
	for _, spec := range f.syntax.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			found[p] = spec
		}
	}
	return found
}

// readTree parses every Go file below root that the go command would read, whatever its build constraints.
func readTree(root fs.FS) ([]sourceFile, error) {
	var files []sourceFile
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() {
			if name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules" || base == "belfry-data") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		positions := token.NewFileSet()
		syntax, err := parser.ParseFile(positions, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, sourceFile{
			path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			generated: ast.IsGenerated(syntax), syntax: syntax, positions: positions,
		})
		return nil
	})
	return files, err
}

// repository reads the source tree of this repository.
func repository(t *testing.T) []sourceFile {
	t.Helper()
	files, err := readTree(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("found only %d Go files; the test reads the wrong directory", len(files))
	}
	return files
}
