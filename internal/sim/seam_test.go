package sim

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// seamMarker begins the comment that names a seam. The comment is on a separate line, above the code of the seam.
const seamMarker = "//sim:seam "

// original stands for the code of the seam in the replacement of a bug.
const original = "$"

// seam is a named place in the source, at which a bug can be planted.
type seam struct {
	name string
	file string // absolute
	node ast.Node
	text []byte // of the file
	base int    // the file's position in the set of files
}

// findSeams returns all seams of the module and of the executor's module, by name.
func findSeams(dir string) (map[string]seam, error) {
	all := make(map[string]seam)
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != dir && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		found, err := seamsOf(file, text)
		for _, s := range found {
			if other, twice := all[s.name]; twice {
				err = errors.Join(err, fmt.Errorf("the seam %s occurs twice: in %s and in %s", s.name, other.file, s.file))
			}
			all[s.name] = s
		}
		return err
	})
	return all, err
}

func seamsOf(file string, text []byte) ([]seam, error) {
	if !bytes.Contains(text, []byte(seamMarker)) {
		return nil, nil
	}
	files := token.NewFileSet()
	syntax, err := parser.ParseFile(files, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var seams []seam
	for _, group := range syntax.Comments {
		for _, c := range group.List {
			name, marks := strings.CutPrefix(c.Text, seamMarker)
			if !marks {
				continue
			}
			position := files.Position(c.Pos())
			if len(bytes.TrimSpace(text[position.Offset-position.Column+1:position.Offset])) > 0 {
				return nil, fmt.Errorf("%s: the marker of the seam %s is not on a separate line", position, name)
			}
			node := statementAt(files, syntax, position.Line+1)
			if node == nil {
				return nil, fmt.Errorf("%s: no statement begins below the marker of the seam %s", position, name)
			}
			seams = append(seams, seam{name: name, file: file, node: node, text: text, base: files.File(syntax.FileStart).Base()})
		}
	}
	return seams, nil
}

// statementAt returns the outermost statement that begins on a line, or nil.
func statementAt(files *token.FileSet, syntax *ast.File, line int) (found ast.Stmt) {
	ast.Inspect(syntax, func(n ast.Node) bool {
		if s, ok := n.(ast.Stmt); ok && found == nil && files.Position(s.Pos()).Line == line {
			found = s
		}
		return found == nil
	})
	return found
}

// change is a replacement of the bytes from one offset of a file to another one.
type change struct {
	from, to int
	with     string
}

// planting says how a bug changes its seam.
type planting func(seam) (change, error)

// statement replaces the statement of a seam.
func statement(with string) planting {
	return func(s seam) (change, error) { return s.replace(s.node, with, "%s"), nil }
}

// expression replaces the expression of a seam: the condition of an if, for or case, the result of a return, or the right
// side of an assignment.
func expression(with string) planting {
	return func(s seam) (change, error) {
		var list []ast.Expr
		switch n := s.node.(type) {
		case *ast.IfStmt:
			list = []ast.Expr{n.Cond}
		case *ast.ForStmt:
			list = []ast.Expr{n.Cond}
		case *ast.CaseClause:
			list = n.List
		case *ast.ReturnStmt:
			list = n.Results
		case *ast.AssignStmt:
			list = n.Rhs
		}
		if len(list) != 1 || list[0] == nil {
			return change{}, fmt.Errorf("the statement at the seam %s does not have exactly one expression", s.name)
		}
		return s.replace(list[0], with, "(%s)"), nil
	}
}

// replace replaces a node. The original, which the replacement may contain, has the given format.
func (s seam) replace(n ast.Node, with, format string) change {
	from, to := int(n.Pos())-s.base, int(n.End())-s.base
	return change{from, to, strings.ReplaceAll(with, original, fmt.Sprintf(format, s.text[from:to]))}
}

// plantAll returns the text of each file that the bugs change, by the file's path.
func plantAll(bugs []bug, seams map[string]seam) (map[string][]byte, error) {
	changes := make(map[string][]change)
	texts := make(map[string][]byte)
	for _, b := range bugs {
		s, known := seams[b.seam]
		if !known {
			return nil, fmt.Errorf("no code has the marker %s%s, which the bug %q needs", seamMarker, b.seam, b.name)
		}
		c, err := b.change(s)
		if err != nil {
			return nil, err
		}
		changes[s.file] = append(changes[s.file], c)
		texts[s.file] = s.text
	}
	for file, list := range changes {
		slices.SortFunc(list, func(a, b change) int { return b.from - a.from }) // from the end, so that offsets stay valid
		for _, c := range list {
			if c.with == string(texts[file][c.from:c.to]) {
				return nil, fmt.Errorf("a bug does not change %s", file)
			}
			texts[file] = slices.Concat(texts[file][:c.from], []byte(c.with), texts[file][c.to:])
		}
		if _, err := parser.ParseFile(token.NewFileSet(), file, texts[file], parser.SkipObjectResolution); err != nil {
			return nil, fmt.Errorf("with the bug, a file has a syntax error: %w", err)
		}
	}
	return texts, nil
}

// Every planted bug has its seam, every seam has its bug, and all bugs can be planted.
func TestSeams(t *testing.T) {
	seams := moduleSeams(t)
	if _, err := plantAll(bugs, seams); err != nil {
		t.Error(err)
	}
	used := make(map[string]string)
	for _, b := range bugs {
		if other, twice := used[b.seam]; twice {
			t.Errorf("the bugs %q and %q have the same seam %s", b.name, other, b.seam)
		}
		used[b.seam] = b.name
	}
	for name, s := range seams {
		if used[name] == "" {
			t.Errorf("%s: no planted bug uses the seam %s", s.file, name)
		}
	}
}

// moduleSeams returns the seams of the repository.
func moduleSeams(t *testing.T) map[string]seam {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	seams, err := findSeams(dir)
	if err != nil {
		t.Fatal(err)
	}
	return seams
}

func TestSeamsCanFail(t *testing.T) {
	const source = `package a

func f(b bool) int {
	//sim:seam one
	if b {
		return 1
	}
	//sim:seam two
	return 2
}
`
	for _, test := range []struct {
		name, from, to string // how the source differs
		bug            bug
		want, err      string
	}{
		{name: "statement", bug: bug{seam: "one", change: statement("")}, want: "\t//sim:seam one\n\t\n\t//sim:seam two"},
		{name: "around", bug: bug{seam: "two", change: statement("b = true\n$")}, want: "b = true\nreturn 2"},
		{name: "condition", bug: bug{seam: "one", change: expression("!$")}, want: "if !(b) {"},
		{name: "result", bug: bug{seam: "two", change: expression("$ + 1")}, want: "return (2) + 1"},
		{name: "other words", from: "if b {", to: "if !b && b {", bug: bug{seam: "one", change: expression("$ && b")}, want: "if (!b && b) && b {"},
		{name: "no marker", from: "//sim:seam two", bug: bug{seam: "two", change: statement("")}, err: "no code has the marker"},
		{name: "a marker above nothing", from: "return 2", bug: bug{seam: "two", change: statement("")}, err: "no statement begins below"},
		{name: "a marker above a comment", from: "if b {", to: "// why\nif b {", bug: bug{seam: "one", change: statement("")}, err: "no statement begins below"},
		{name: "a marker behind code", from: "b {", to: "b { //sim:seam three", bug: bug{seam: "three", change: statement("")}, err: "a separate line"},
		{name: "no expression", from: "return 2", to: "panic(2)", bug: bug{seam: "two", change: expression("3")}, err: "exactly one expression"},
		{name: "no change", bug: bug{seam: "two", change: statement("$")}, err: "does not change"},
		{name: "a syntax error", bug: bug{seam: "two", change: statement("return return")}, err: "syntax error"},
		{name: "a name twice", from: "two", to: "one", bug: bug{seam: "one", change: statement("")}, err: "occurs twice"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "a.go")
			if err := os.WriteFile(file, []byte(strings.Replace(source, test.from, test.to, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			seams, err := findSeams(dir)
			var texts map[string][]byte
			if err == nil {
				texts, err = plantAll([]bug{test.bug}, seams)
			}
			switch {
			case test.err == "" && err != nil:
				t.Fatal(err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Fatalf("error %v, want one that contains %q", err, test.err)
			case !strings.Contains(string(texts[file]), test.want):
				t.Errorf("got\n%s\nwant a part\n%s", texts[file], test.want)
			}
		})
	}
}
