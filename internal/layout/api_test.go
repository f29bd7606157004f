package layout

import (
	"bytes"
	"flag"
	"fmt"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const apiGolden = "testdata/sdk.txt"

// TestSDKAPI compares the exported API of the SDK's module with the golden file. If it changes on purpose, run
// go test ./internal/layout -run TestSDKAPI -update, and describe the change in CHANGELOG.md.
func TestSDKAPI(t *testing.T) {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps | packages.NeedTypes, Dir: root,
	}, "./executor/...")
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(loaded, func(a, b *packages.Package) int { return strings.Compare(a.PkgPath, b.PkgPath) })
	var got bytes.Buffer
	for _, p := range loaded {
		for _, e := range p.Errors {
			t.Error(e)
		}
		if !internalPath(p.PkgPath) {
			fmt.Fprintf(&got, "package %s\n\n%s\n", p.PkgPath, strings.Join(exported(p.Types), "\n"))
		}
	}
	if *update {
		if err := os.WriteFile(apiGolden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(apiGolden)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got.Bytes(), want) {
		return
	}
	now, before := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
	for _, line := range before {
		if !slices.Contains(now, line) {
			t.Errorf("gone:  %s", line)
		}
	}
	for _, line := range now {
		if !slices.Contains(before, line) {
			t.Errorf("added: %s", line)
		}
	}
	t.Errorf("the SDK's API is not the one in %s", apiGolden)
}

// exported returns a line for each name that users of p can write: constants with values, functions, types, their exported
// fields and methods.
func exported(p *types.Package) []string {
	var lines []string
	short := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	}
	for _, name := range p.Scope().Names() { // sorted
		object := p.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		named, ok := object.Type().(*types.Named)
		if _, isType := object.(*types.TypeName); !isType || !ok {
			line := types.ObjectString(object, short)
			if c, ok := object.(*types.Const); ok {
				line += " = " + c.Val().ExactString()
			}
			lines = append(lines, line)
			continue
		}
		lines = append(lines, typeLines(named, short)...)
	}
	return lines
}

func typeLines(named *types.Named, short types.Qualifier) []string {
	head := "type " + named.Obj().Name() + " "
	var lines []string
	switch u := named.Underlying().(type) {
	case *types.Struct:
		lines = append(lines, head+"struct")
		for i := range u.NumFields() {
			if f := u.Field(i); f.Exported() {
				line := head + "struct, " + f.Name() + " " + types.TypeString(f.Type(), short)
				if tag := u.Tag(i); tag != "" {
					line += " `" + tag + "`"
				}
				lines = append(lines, line)
			}
		}
	case *types.Interface:
		lines = append(lines, head+types.TypeString(u, short))
	default:
		lines = append(lines, head+types.TypeString(u, short))
	}
	set := types.NewMethodSet(types.NewPointer(named))
	if types.IsInterface(named) {
		return lines
	}
	for m := range set.Methods() {
		if m.Obj().Exported() && len(m.Index()) == 1 {
			lines = append(lines, types.ObjectString(m.Obj(), short))
		}
	}
	return lines
}

func TestSDKAPICanFail(t *testing.T) {
	imports := importMap{}
	p := imports.add(t, "a", `package a
const N = 1
type T struct { A int `+"`json:\"a\"`"+`; b int }
func (T) V() {}
func (*T) P(T) error { return nil }
func (T) hidden() {}
type I interface { M() }
func F(...T) {}
func hidden() {}
`)
	want := []string{
		"func F(...T)", "type I interface{M()}", "const N untyped int = 1", "type T struct", "type T struct, A int `json:\"a\"`",
		"func (*T).P(T) error", "func (T).V()",
	}
	if got := exported(p); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
