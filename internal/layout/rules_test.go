package layout

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rules apply to every Go file. Each returns the faults of one file.
var rules = map[string]func(sourceFile) []string{
	"package names": saysWhatItProvides,
	"init":          hasNoInit,
	"sleep":         doesNotSleep,
	"hurry":         doesNotHurry,
	"skip":          skipsAloud,
	"marks":         isFinished,
}

func TestRules(t *testing.T) {
	files := repository(t)
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, f := range files {
				for _, fault := range rule(f) {
					t.Error(fault)
				}
			}
		})
	}
}

// nameless lists package names that do not say what the package provides.
var nameless = []string{"base", "common", "helper", "helpers", "misc", "shared", "types", "util", "utils"}

func saysWhatItProvides(f sourceFile) []string {
	name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
	for _, n := range []string{name, path.Base(f.dir)} {
		if slices.Contains(nameless, n) {
			return []string{f.path + ": a package is named for what it provides, which " + n + " does not say"}
		}
	}
	return nil
}

// hasNoInit reports init functions, because code that runs on import cannot be configured, ordered or tested.
func hasNoInit(f sourceFile) []string {
	var faults []string
	for _, d := range f.syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			faults = append(faults, f.at(fn)+": func init does work that no caller asked for")
		}
	}
	return faults
}

// doesNotSleep reports tests that sleep outside a synctest bubble, because they are slow and still fail on a busy machine.
func doesNotSleep(f sourceFile) []string {
	imports := f.imports()
	if !f.test || imports["time"] == nil || imports["testing/synctest"] != nil {
		return nil
	}
	local := "time"
	if n := imports["time"].Name; n != nil {
		local = n.Name
	}
	var faults []string
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == local {
				faults = append(faults, f.at(s)+": a test sleeps; wait for a signal, or poll with a bound")
			}
		}
		return true
	})
	return faults
}

// hurried lists files that are exempt from doesNotHurry until they are rewritten.
var hurried = []string{"dispatcher/roster/roster_test.go"}

// doesNotHurry reports tests that fail after a short time, because they also fail on a busy machine. The promise tests instead
// compare times of the database with a bound that allows for the machine's stalls (docs/testing.md).
func doesNotHurry(f sourceFile) []string {
	imports := f.imports()
	if !f.test || imports["time"] == nil || imports["testing/synctest"] != nil || slices.Contains(hurried, f.path) {
		return nil
	}
	var faults []string
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CommClause: // case <-time.After(5 * time.Second): t.Fatal()
			if e, ok := n.Comm.(*ast.ExprStmt); ok && fails(n.Body) {
				if u, ok := e.X.(*ast.UnaryExpr); ok && isShort(argumentOf(u.X, "After")) {
					faults = append(faults, f.at(n)+": a test fails after less than a minute; wait for minutes, or until the test's own deadline")
				}
			}
		case *ast.IfStmt: // if time.Since(begin) > bound { t.Error() }
			if exceeds(n.Cond) && fails([]ast.Stmt{n.Body}) {
				faults = append(faults, f.at(n)+": a test fails because something took long; only promise tests may do that")
			}
		}
		return true
	})
	return faults
}

// fails reports whether statements end a test as failed.
func fails(body []ast.Stmt) (found bool) {
	for _, s := range body {
		ast.Inspect(s, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if s, ok := call.Fun.(*ast.SelectorExpr); ok {
					found = found || slices.Contains([]string{"Error", "Errorf", "Fatal", "Fatalf", "Fail", "FailNow"}, s.Sel.Name)
				}
			}
			return true
		})
	}
	return found
}

// argumentOf returns the argument of a call of the function in package time, or nil if e is no such call.
func argumentOf(e ast.Expr, function string) ast.Expr {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return nil
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != function {
		return nil
	}
	if x, ok := s.X.(*ast.Ident); !ok || x.Name != "time" {
		return nil
	}
	return call.Args[0]
}

// isShort reports whether e is a literal duration of less than a minute. Named constants are not checked.
func isShort(e ast.Expr) bool {
	units := map[string]float64{"Nanosecond": 1e-9, "Microsecond": 1e-6, "Millisecond": 1e-3, "Second": 1, "Minute": 60, "Hour": 3600}
	n, unit := 1.0, 0.0
	for _, part := range factors(e) {
		switch part := part.(type) {
		case *ast.BasicLit:
			v, err := strconv.ParseFloat(part.Value, 64)
			if err != nil {
				return false
			}
			n *= v
		case *ast.SelectorExpr:
			unit = units[part.Sel.Name]
		default:
			return false
		}
	}
	return unit > 0 && n*unit < 60
}

func factors(e ast.Expr) []ast.Expr {
	if b, ok := e.(*ast.BinaryExpr); ok && b.Op == token.MUL {
		return append(factors(b.X), factors(b.Y)...)
	}
	return []ast.Expr{e}
}

// exceeds reports whether a condition is true if time.Since exceeds something.
func exceeds(cond ast.Expr) (found bool) {
	ast.Inspect(cond, func(n ast.Node) bool {
		if b, ok := n.(*ast.BinaryExpr); ok {
			found = found || (b.Op == token.GTR || b.Op == token.GEQ) && argumentOf(b.X, "Since") != nil ||
				(b.Op == token.LSS || b.Op == token.LEQ) && argumentOf(b.Y, "Since") != nil
		}
		return true
	})
	return found
}

// skipWord begins the message of every skip, so that readers and CI find what was not tested.
const skipWord = "NOT COVERED: "

func skipsAloud(f sourceFile) []string {
	if f.imports()["testing"] == nil {
		return nil
	}
	var faults []string
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, s.Sel.Name) {
			return true
		}
		if s.Sel.Name == "SkipNow" || len(call.Args) == 0 || !beginsWith(call.Args[0], skipWord) {
			faults = append(faults, f.at(call)+`: a skip says what was not tested, beginning with "`+skipWord+`"`)
		}
		return true
	})
	return faults
}

// beginsWith reports whether e is a string literal, or a sum that starts with one, that begins with prefix.
func beginsWith(e ast.Expr, prefix string) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return e.Op == token.ADD && beginsWith(e.X, prefix)
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return err == nil && strings.HasPrefix(text, prefix)
	}
	return false
}

var mark = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)

func isFinished(f sourceFile) []string {
	var faults []string
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			if m := mark.FindString(c.Text); m != "" && !f.generated {
				faults = append(faults, f.at(c)+": "+m+" belongs into an issue")
			}
		}
	}
	return faults
}

func TestRulesCanFail(t *testing.T) {
	const inTest = "package a\nimport (\"testing\"; \"time\")\n"
	tests := []struct {
		rule, name, file, source string
		want                     string // "" for none
	}{
		{"package names", "good", "internal/store/a.go", "package store", ""},
		{"package names", "package", "internal/store/a.go", "package util", "util does not say"},
		{"package names", "test package", "internal/store/a_test.go", "package helpers_test", "helpers does not say"},
		{"package names", "directory", "internal/common/a.go", "package store", "common does not say"},
		{"init", "good", "a.go", "package a\nfunc start() {}\ntype t int\nfunc (t) init() {}", ""},
		{"init", "init", "a.go", "package a\nfunc init() { println() }", "a.go:2: func init"},
		{"sleep", "in code", "a.go", "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }", ""},
		{"sleep", "in a bubble", "a_test.go", "package a\nimport (\"time\"; \"testing/synctest\")\nfunc f() { synctest.Wait(); time.Sleep(1) }", ""},
		{"sleep", "another Sleep", "a_test.go", inTest + "func f(b bed) { b.Sleep(1) }", ""},
		{"sleep", "in a test", "a_test.go", inTest + "func TestA(t *testing.T) { time.Sleep(1) }", "a_test.go:3: a test sleeps"},
		{"sleep", "as a value", "a_test.go", inTest + "var pause = time.Sleep", "a test sleeps"},
		{"sleep", "under another name", "a_test.go", "package a\nimport clock \"time\"\nfunc f() { clock.Sleep(1) }", "a test sleeps"},
		{"hurry", "minutes", "a_test.go", inTest + "func f(t *testing.T) { select { case <-time.After(2 * time.Minute): t.Fatal() } }", ""},
		{"hurry", "a name", "a_test.go", inTest + "func f(t *testing.T) { select { case <-time.After(patience): t.Fatal() } }", ""},
		{"hurry", "a pause", "a_test.go", inTest + "func f(t *testing.T) { select { case <-time.After(time.Second): } }", ""},
		{"hurry", "in a bubble", "a_test.go", "package a\nimport (\"time\"; \"testing/synctest\")\nfunc f() { synctest.Wait(); select { case <-time.After(time.Second): t.Fatal() } }", ""},
		{"hurry", "at least", "a_test.go", inTest + "func f(t *testing.T) { if time.Since(begin) < time.Second { t.Error() } }", ""},
		{"hurry", "progress", "a_test.go", inTest + "func f(t *testing.T) { if time.Since(told) > time.Second { t.Log() } }", ""},
		{"hurry", "seconds", "a_test.go", inTest + "func f(t *testing.T) { select { case <-time.After(20 * time.Second): t.Fatal() } }", "a_test.go:3: a test fails after less than a minute"},
		{"hurry", "one second", "a_test.go", inTest + "func f(t *testing.T) { select { case <-time.After(time.Second): x.t.Errorf(\"x\") } }", "less than a minute"},
		{"hurry", "at most", "a_test.go", inTest + "func f(t *testing.T) { if err != nil || time.Since(begin) > most { t.Error() } }", "because something took long"},
		{"hurry", "at most, the other way round", "a_test.go", inTest + "func f(t *testing.T) { if most <= time.Since(begin) { t.Fatal() } }", "because something took long"},
		{"skip", "aloud", "a_test.go", inTest + "func TestA(t *testing.T) { t.Skip(\"NOT COVERED: x\") }", ""},
		{"skip", "aloud, a sum", "a_test.go", inTest + "func TestA(t *testing.T) { t.Skip(\"NOT COVERED: \" + x) }", ""},
		{"skip", "aloud, formatted", "a_test.go", inTest + "func TestA(t *testing.T) { t.Skipf(\"NOT COVERED: %d\", 1) }", ""},
		{"skip", "in silence", "a_test.go", inTest + "func TestA(t *testing.T) { t.Skip(\"short\") }", "a_test.go:3: a skip says"},
		{"skip", "without a word", "a_test.go", inTest + "func TestA(t *testing.T) { t.SkipNow() }", "a skip says"},
		{"skip", "in code for tests", "a.go", inTest + "func Need(tb testing.TB) { tb.Skip() }", "a skip says"},
		{"marks", "good", "a.go", "package a\n// Todos lists what is to be done.\nconst s = \"TO" + "DO\"", ""},
		{"marks", "generated", "a.go", "// Code generated by x. DO NOT EDIT.\n\npackage a\n// TO" + "DO: x", ""},
		{"marks", "line", "a.go", "package a\n// TO" + "DO: later", "a.go:2: TO" + "DO belongs"},
		{"marks", "block", "a.go", "package a\n/* so\nFIX" + "ME */", "FIX" + "ME belongs"},
	}
	tried := make(map[string]bool)
	for _, test := range tests {
		t.Run(test.rule+"/"+test.name, func(t *testing.T) {
			var faults []string
			for _, f := range fixture(t, test.file, test.source) {
				faults = append(faults, rules[test.rule](f)...)
			}
			expectFaults(t, faults, test.want)
		})
		tried[test.rule] = tried[test.rule] || test.want != ""
	}
	for name := range rules {
		if !tried[name] {
			t.Errorf("no fixture breaks the rule %q", name)
		}
	}
}
