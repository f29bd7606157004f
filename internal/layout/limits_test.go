package layout

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The limits of hand-written code outside tests.
const (
	maxMethods   = 40  // methods of one type
	maxInterface = 10  // methods of one interface, with those of embedded interfaces
	maxExported  = 100 // types and functions that one package exports
)

// manyMethods are directories in which a type may have more than maxMethods methods.
var manyMethods = []string{
	"internal/store",        // one method for each transaction
	"internal/sim/memstore", // the test double of the store
	"internal/client",       // one method for each operation of the API
}

// TestLimits checks the sizes of types, interfaces and packages, because one that keeps growing has more than one purpose.
func TestLimits(t *testing.T) {
	over := overLimits(repository(t))
	for _, name := range slices.Sorted(maps.Keys(over)) {
		t.Error(over[name])
	}
}

// overLimits returns a message for each type, interface and package over its limit. The keys are paths such as
// console/api.API and console/api.
func overLimits(files []sourceFile) map[string]string {
	s := sizes{methods: map[string]int{}, exported: map[string]int{}, interfaces: map[string]*declared{}}
	for _, f := range files {
		if !f.test && !f.generated {
			s.count(f)
		}
	}
	over := map[string]string{}
	for name, n := range s.methods {
		dir := strings.TrimSuffix(name, path.Ext(name))
		if n > maxMethods && !slices.Contains(manyMethods, dir) {
			over[name] = fmt.Sprintf("%s has %d methods; at most %d are allowed", name, n, maxMethods)
		}
	}
	for name := range s.interfaces {
		if n := len(s.methodSet(name, nil)); n > maxInterface {
			over[name] = fmt.Sprintf("the interface %s has %d methods; at most %d are allowed", name, n, maxInterface)
		}
	}
	for dir, n := range s.exported {
		if n > maxExported {
			over[dir] = fmt.Sprintf("package %s exports %d types and functions; at most %d are allowed", dir, n, maxExported)
		}
	}
	return over
}

// sizes contains counts by names such as console/api.API.
type sizes struct {
	methods    map[string]int
	exported   map[string]int // by directory
	interfaces map[string]*declared
}

// declared is an interface with the file that resolves its embedded names.
type declared struct {
	file   sourceFile
	syntax *ast.InterfaceType
}

func (s *sizes) count(f sourceFile) {
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			switch {
			case d.Recv != nil:
				s.methods[f.dir+"."+receiver(d.Recv.List[0].Type)]++
			case d.Name.IsExported():
				s.exported[f.dir]++
			}
		case *ast.GenDecl:
			if d.Tok == token.TYPE {
				for _, spec := range d.Specs {
					s.countType(f, spec.(*ast.TypeSpec))
				}
			}
		}
	}
}

func (s *sizes) countType(f sourceFile, spec *ast.TypeSpec) {
	if spec.Name.IsExported() {
		s.exported[f.dir]++
	}
	if i, ok := spec.Type.(*ast.InterfaceType); ok {
		s.interfaces[f.dir+"."+spec.Name.Name] = &declared{f, i}
	}
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// methodSet returns the names of an interface's methods, with those of embedded interfaces of this module. An interface of
// another module counts as one method.
func (s *sizes) methodSet(name string, set map[string]bool) map[string]bool {
	if set == nil {
		set = map[string]bool{}
	}
	i := s.interfaces[name]
	if i == nil {
		set[name] = true
		return set
	}
	for _, m := range i.syntax.Methods.List {
		for _, n := range m.Names {
			set[n.Name] = true
		}
		switch e := m.Type.(type) {
		case *ast.Ident:
			s.methodSet(i.file.dir+"."+e.Name, set)
		case *ast.SelectorExpr:
			if pkg, ok := e.X.(*ast.Ident); ok {
				s.methodSet(i.file.importedDir(pkg.Name)+"."+e.Sel.Name, set)
			}
		}
	}
	return set
}

// importedDir returns the directory of an imported package of this module, or the path of another one.
func (f sourceFile) importedDir(local string) string {
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		if spec.Name != nil && spec.Name.Name == local || spec.Name == nil && path.Base(p) == local {
			return strings.TrimPrefix(p, module+"/")
		}
	}
	return local
}

func TestLimitsCanFail(t *testing.T) {
	methods := func(n int) string {
		source := "package a\ntype T struct{}\n"
		for i := range n {
			source += fmt.Sprintf("func (*T) m%d() {}\n", i)
		}
		return source
	}
	functions := func(n int) string {
		source := "package a\n"
		for i := range n {
			source += fmt.Sprintf("func F%d() {}\n", i)
		}
		return source
	}
	small := "type s interface { a(); b(); c(); d(); e(); f() }\n"
	for _, test := range []struct{ name, file, source, want string }{
		{"methods", "x/a.go", methods(maxMethods), ""},
		{"too many methods", "x/a.go", methods(maxMethods + 1), "x.T has 41 methods"},
		{"the store", "internal/store/a.go", methods(maxMethods + 1), ""},
		{"a test", "x/a_test.go", methods(maxMethods + 1), ""},
		{"functions", "x/a.go", functions(maxExported), ""},
		{"too many functions", "x/a.go", functions(maxExported + 1), "package x exports 101"},
		{"interface", "x/a.go", "package a\n" + small + "type w interface { s; g(); h(); i(); j() }", ""},
		{"large interface", "x/a.go", "package a\n" + small + "type w interface { s; g(); h(); i(); j(); k() }", "the interface x.w has 11 methods"},
		{"the same methods", "x/a.go", "package a\n" + small + "type w interface { s; a(); b(); c(); d(); e() }", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			over := overLimits(fixture(t, test.file, test.source))
			expectFaults(t, slices.Collect(maps.Values(over)), test.want)
		})
	}
}
