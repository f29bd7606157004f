package layout

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestPublicSurface checks that users of the SDK can name every type in its exported API.
func TestPublicSurface(t *testing.T) {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps | packages.NeedTypes, Dir: "../..",
	}, "./executor/...")
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) < 3 {
		t.Fatalf("found %d packages below executor, want at least 3", len(loaded))
	}
	for _, p := range loaded {
		for _, e := range p.Errors {
			t.Error(e)
		}
		for _, fault := range checkSurface(p.Types) {
			t.Error(fault)
		}
	}
}

// checkSurface returns each internal type that a user of p can reach through exported names.
func checkSurface(p *types.Package) []string {
	s := surface{pkg: p, seen: make(map[types.Type]bool)}
	for _, name := range p.Scope().Names() {
		if object := p.Scope().Lookup(name); object.Exported() {
			s.walk(object.Type(), p.Name()+"."+name)
		}
	}
	slices.Sort(s.faults)
	return s.faults
}

type surface struct {
	pkg    *types.Package
	seen   map[types.Type]bool
	faults []string
}

func internalPath(p string) bool {
	return slices.Contains(strings.Split(p, "/"), "internal")
}

// walk follows a type through everything that users can reach: exported fields and methods, elements, parameters, results. It
// stops at types of other packages, which are checked separately. where is the path for the fault's message.
func (s *surface) walk(t types.Type, where string) {
	if t == nil || s.seen[t] {
		return
	}
	s.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		s.walkNamed(t.Obj(), where, func() { s.walk(types.Unalias(t), where) })
	case *types.Named:
		s.walkNamed(t.Obj(), where, func() {
			s.walk(t.Underlying(), where)
			for m := range t.Methods() {
				if m.Exported() {
					s.walk(m.Type(), where+"."+m.Name())
				}
			}
		})
		for arg := range t.TypeArgs().Types() {
			s.walk(arg, where)
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() { // the methods of an embedded field are promoted even if its name is unexported
				s.walk(f.Type(), where+"."+f.Name())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				s.walk(m.Type(), where+"."+m.Name())
			}
		}
	case *types.Signature:
		s.walk(t.Params(), where)
		s.walk(t.Results(), where)
		for p := range t.TypeParams().TypeParams() {
			s.walk(p.Constraint(), where)
		}
	case *types.Tuple:
		for v := range t.Variables() {
			s.walk(v.Type(), where)
		}
	case *types.Union:
		for term := range t.Terms() {
			s.walk(term.Type(), where)
		}
	case *types.Map:
		s.walk(t.Key(), where)
		s.walk(t.Elem(), where)
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		s.walk(t.Elem(), where)
	}
}

func (s *surface) walkNamed(name *types.TypeName, where string, inside func()) {
	switch {
	case name.Pkg() == nil: // predeclared
	case name.Pkg() == s.pkg:
		inside()
	case strings.HasPrefix(name.Pkg().Path(), module+"/") && internalPath(name.Pkg().Path()):
		s.faults = append(s.faults, fmt.Sprintf("%s names the internal type %s.%s", where, name.Pkg().Path(), name.Name()))
	}
}

func TestPublicSurfaceCanFail(t *testing.T) {
	tests := []struct {
		name, source string
		want         string // "" for none
	}{
		{"unexported", "type keeper struct{ m wire.M }; var k keeper; func f(wire.M) {}; type Open struct { m wire.M }", ""},
		{"constant", "const N = wire.N", ""},
		{"unexported method", "type Open struct{}; func (Open) f() wire.M { panic(0) }", ""},
		{"recursive", "type Node struct{ Next *Node }", ""},
		{"parameter", "func Send(m *wire.M) {}", "executor.Send names the internal type " + module + "/internal/wire.M"},
		{"result", "func All() []map[string]wire.M { return nil }", "executor.All"},
		{"field", "type Box struct { M chan wire.M }", "executor.Box.M"},
		{"embedded field", "type Box struct { wire.M }", "executor.Box.M"},
		{"method", "type Box struct{}; func (*Box) M() wire.M { panic(0) }", "executor.Box.M"},
		{"interface", "type Box interface { M(...wire.M) }", "executor.Box.M"},
		{"variable", "var M wire.M", "executor.M"},
		{"alias", "type M = wire.M", "executor.M"},
		{"callback", "type F func(func(wire.M))", "executor.F"},
		{"behind an unexported type", "type box struct { M wire.M }; func Make() box { panic(0) }", "executor.Make.M"},
		{"type argument", "type G[T any] struct{}; func Make() (g G[wire.M]) { return }", "executor.Make"},
		{"constraint", "func Make[T interface{ ~int; M() wire.M }]() {}", "executor.Make.M"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			imports := importMap{}
			imports.add(t, module+"/internal/wire", "package wire; type M struct{ X int }; const N = 1")
			p := imports.add(t, module+"/executor", `package executor; import "`+module+`/internal/wire"; var _ wire.M; `+test.source)
			expectFaults(t, checkSurface(p), test.want)
		})
	}
}

// importMap imports packages that have been type-checked already.
type importMap map[string]*types.Package

func (m importMap) Import(path string) (*types.Package, error) {
	if p, ok := m[path]; ok {
		return p, nil
	}
	return importer.Default().Import(path)
}

func (m importMap) add(t *testing.T, path, source string) *types.Package {
	t.Helper()
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, "a.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := (&types.Config{Importer: m}).Check(path, positions, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m[path] = p
	return p
}
