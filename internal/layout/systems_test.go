package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestOtherSystems checks the types of the program and of the SDK for each other system of a release, because the other tests run on one system only.
// It reads all sources without compiling them. `.ci/release/release` builds the programs.
func TestOtherSystems(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, system := range []string{"linux/arm64", "darwin/arm64", "windows/amd64"} {
		t.Run(system, func(t *testing.T) {
			goos, goarch, _ := strings.Cut(system, "/")
			loaded, err := packages.Load(&packages.Config{
				Mode: packages.LoadAllSyntax,
				Dir:  root,
				Env:  append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
				ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
					file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
					if file != nil && !strings.HasPrefix(name, root+string(filepath.Separator)) {
						withoutBodies(file)
					}
					return file, err
				},
			}, ".", "./executor/...", "./executor/otel/...")
			if err != nil {
				t.Fatal(err)
			}
			checked := 0
			packages.Visit(loaded, nil, func(p *packages.Package) {
				if !strings.HasPrefix(p.PkgPath, "github.com/belfryhq/belfry") {
					return
				}
				checked++
				for _, e := range p.Errors {
					t.Errorf("%s: %v", system, e)
				}
			})
			if checked < 50 {
				t.Errorf("only %d packages were checked", checked)
			}
		})
	}
}

// withoutBodies removes the bodies of functions, which other packages do not need.
func withoutBodies(file *ast.File) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}
