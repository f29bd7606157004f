package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

const root = "../.."

// pages returns the documentation pages by their path below the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", "docs/zh/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			found[strings.TrimPrefix(filepath.ToSlash(name), root+"/")] = string(text)
		}
	}
	if found["README.md"] == "" || found["docs/wire.md"] == "" {
		t.Fatalf("pages are missing; found %d", len(found))
	}
	return found
}

// wireExample is a JSON block of docs/wire.md that names its message, and its variant if there are several.
var wireExample = regexp.MustCompile("(?s)<!-- wire: (\\w+)(?: (\\w+))? -->\n```json\n(.*?)\n```")

// wireMessages lists the messages that docs/wire.md shows.
var wireMessages = map[string]func() any{
	"Heartbeat":    func() any { return new(wire.Heartbeat) },
	"Offers":       func() any { return new(wire.Offers) },
	"Answer":       func() any { return new(wire.Answer) },
	"Goodbye":      func() any { return new(wire.Goodbye) },
	"Results":      func() any { return new(wire.Results) },
	"Logs":         func() any { return new(wire.Logs) },
	"Control":      func() any { return new(wire.Control) },
	"ControlReply": func() any { return new(wire.ControlReply) },
	"RunChanges":   func() any { return new(wire.RunChanges) },
	"DeadLetter":   func() any { return new(wire.DeadLetter) },
}

// wireVariants lists the variants of messages that docs/wire.md shows. OpSettled has no reply.
var wireVariants = map[string][]string{
	"Heartbeat":    {"", "unfit", "lacks"},
	"Goodbye":      {"body"},
	"Offers":       {"", "script"},
	"Answer":       {"", "scripts"},
	"Control":      {wire.OpPing, wire.OpStatus, wire.OpKill, wire.OpDrain, wire.OpSettled, wire.OpScript},
	"ControlReply": {wire.OpPing, wire.OpStatus, wire.OpKill, wire.OpDrain, wire.OpScript},
}

// TestWirePage checks that docs/wire.md has valid examples of each message, control operation, verdict and field, because authors
// of executors copy them.
func TestWirePage(t *testing.T) {
	page := pages(t)["docs/wire.md"]
	var shown []string
	fields := make(map[string]bool)
	for _, m := range wireExample.FindAllStringSubmatch(page, -1) {
		name, variant, example := m[1], m[2], m[3]
		shown = append(shown, name+" "+variant)
		if err := checkWireExample(name, example); err != nil {
			t.Errorf("%s %s: %v", name, variant, err)
			continue
		}
		if name == "Control" && !strings.Contains(example, `"op": "`+variant+`"`) {
			t.Errorf("the example of Control %s is another operation: %s", variant, example)
		}
		var value any
		if err := json.Unmarshal([]byte(example), &value); err != nil {
			t.Fatal(err)
		}
		shownFields(reflect.TypeOf(wireMessages[name]()), value, fields)
	}
	want := make(map[string]bool)
	for name, blank := range wireMessages {
		variants := wireVariants[name]
		if variants == nil {
			variants = []string{""}
		}
		for _, variant := range variants {
			if !slices.Contains(shown, name+" "+variant) {
				t.Errorf("docs/wire.md has no example of %s %s", name, variant)
			}
		}
		allFields(reflect.TypeOf(blank()), want)
	}
	for field := range want {
		if !fields[field] {
			t.Errorf("no example on docs/wire.md shows %s", field)
		}
	}
	for _, verdict := range []string{wire.Accepted, wire.Refused, wire.Ended} {
		if !strings.Contains(page, `"verdict": "`+verdict+`"`) {
			t.Errorf("no example on docs/wire.md shows the verdict %s", verdict)
		}
	}
	if !strings.Contains(page, "<!-- wire: Goodbye -->\n```\nKV-Operation: DEL\n") {
		t.Error("docs/wire.md does not show the headers of a goodbye")
	}
}

// wireStruct returns the struct type below pointers and slices, or nil if there is none.
func wireStruct(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[wire.Time]() {
		return nil
	}
	return t
}

// fieldName returns a field's JSON name and its name for error messages.
func fieldName(t reflect.Type, f reflect.StructField) (inJSON, forPeople string) {
	inJSON, _, _ = strings.Cut(f.Tag.Get("json"), ",")
	return inJSON, t.Name() + "." + inJSON
}

// allFields adds every field of a message.
func allFields(t reflect.Type, to map[string]bool) {
	if t = wireStruct(t); t == nil {
		return
	}
	for f := range t.Fields() {
		_, name := fieldName(t, f)
		to[name] = true
		allFields(f.Type, to)
	}
}

// shownFields adds the fields that an example has.
func shownFields(t reflect.Type, value any, to map[string]bool) {
	if t = wireStruct(t); t == nil {
		return
	}
	if list, ok := value.([]any); ok {
		for _, v := range list {
			shownFields(t, v, to)
		}
		return
	}
	object, _ := value.(map[string]any)
	for f := range t.Fields() {
		inJSON, name := fieldName(t, f)
		if v, ok := object[inJSON]; ok {
			to[name] = true
			shownFields(f.Type, v, to)
		}
	}
}

// checkWireExample decodes an example strictly: it may not contain fields that the message does not have.
func checkWireExample(name, example string) error {
	blank, ok := wireMessages[name]
	if !ok {
		return errors.New("there is no such message")
	}
	dec := json.NewDecoder(strings.NewReader(example))
	dec.DisallowUnknownFields()
	if err := dec.Decode(blank()); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("something follows the message")
	}
	var head struct{ V int }
	if err := json.Unmarshal([]byte(example), &head); err != nil {
		return err
	}
	if head.V != wire.Version {
		return fmt.Errorf("it says version %d", head.V)
	}
	return nil
}

func TestWirePageCanFail(t *testing.T) {
	for _, test := range []struct {
		name, example string
		ok            bool
	}{
		{"Control", `{"v": 1, "op": "ping"}`, true},
		{"Control", `{"v": 2, "op": "ping"}`, false},
		{"Control", `{"v": 1, "operation": "ping"}`, false},
		{"Control", `{"v": 1} {}`, false},
		{"Other", `{"v": 1}`, false},
	} {
		if err := checkWireExample(test.name, test.example); (err == nil) != test.ok {
			t.Errorf("%s %s: got %v", test.name, test.example, err)
		}
	}
}

var jsonBlock = regexp.MustCompile("(?s)```json\n(.*?)\n *```")

// TestJobExamples checks that the jobs on the page about routes are valid.
func TestJobExamples(t *testing.T) {
	blocks := jsonBlock.FindAllStringSubmatch(pages(t)["docs/routes.md"], -1)
	if len(blocks) == 0 {
		t.Fatal("there is no example")
	}
	for _, m := range blocks {
		spec := domain.DefaultJobSpec()
		dec := json.NewDecoder(strings.NewReader(m[1]))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&spec); err != nil {
			t.Errorf("%s: %v", m[1], err)
			continue
		}
		if err := spec.Validate(); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)\n```")

// sdkSnippet is the program that the web console shows.
var sdkSnippet = regexp.MustCompile("(?s)const sdkSnippet = `(.*?)`")

// TestGoSnippets checks that the Go code on the pages and in the web console compiles.
func TestGoSnippets(t *testing.T) {
	imports := importMap{}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps | packages.NeedTypes, Dir: root,
	}, "./executor/...", "./executor/otel", "std")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range loaded {
		imports[p.PkgPath] = p.Types
	}
	snippets := 0
	for page, text := range pages(t) {
		for _, m := range goBlock.FindAllStringSubmatch(text, -1) {
			snippets++
			if err := checkSnippet(imports, m[1]); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	console, err := os.ReadFile(filepath.Join(root, "console/ui/src/parts/snippets.ts"))
	if err != nil {
		t.Fatal(err)
	}
	shown := sdkSnippet.FindSubmatch(console)
	if shown == nil {
		t.Fatal("the web console has no program that uses the SDK")
	}
	if err := checkSnippet(imports, string(shown[1])); err != nil {
		t.Errorf("web console: %v", err)
	}
	if snippets < 2 {
		t.Errorf("found %d snippets, want at least 2", snippets)
	}
	if err := checkSnippet(imports, "package a\nimport \"time\"\nvar d time.Duration = \"x\""); err == nil {
		t.Error("a snippet that does not compile was accepted")
	}
}

func checkSnippet(imports types.Importer, source string) error {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, "snippet.go", source, 0)
	if err != nil {
		return err
	}
	_, err = (&types.Config{Importer: imports}).Check("snippet", positions, []*ast.File{file}, nil)
	return err
}

var (
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	scheme = regexp.MustCompile(`^[a-z]+:`)
)

func TestLinks(t *testing.T) {
	for page, text := range pages(t) {
		for _, target := range brokenLinks(os.DirFS(root), page, text) {
			t.Errorf("%s: the link to %s is broken", page, target)
		}
	}
	if broken := brokenLinks(os.DirFS(root), "docs/a.md", "[a](../README.md#x) [b](nowhere.md) [c](https://belfry.example)"); len(broken) != 1 {
		t.Errorf("got %q, want the one to nowhere.md", broken)
	}
}

// brokenLinks returns the relative links of a page whose files do not exist.
func brokenLinks(tree fs.FS, page, text string) []string {
	var broken []string
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		name, _, _ := strings.Cut(m[1], "#")
		if name == "" || scheme.MatchString(name) {
			continue
		}
		if _, err := fs.Stat(tree, filepath.ToSlash(filepath.Join(filepath.Dir(page), name))); err != nil {
			broken = append(broken, m[1])
		}
	}
	return broken
}

// TestMetricsPage checks that docs/operations.md describes every metric of the roles.
func TestMetricsPage(t *testing.T) {
	page := pages(t)["docs/operations.md"]
	names := make(map[string]bool)
	for _, f := range repository(t) {
		first, _, _ := strings.Cut(f.dir, "/")
		if f.test || (first != "scheduler" && first != "dispatcher" && first != "console" && f.dir != "internal/app") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && metricName.MatchString(lit.Value) {
				names[strings.Trim(lit.Value, `"`)] = true
			}
			return true
		})
	}
	if len(names) < 10 {
		t.Fatalf("only %d metrics were found", len(names))
	}
	for name := range names {
		if !strings.Contains(page, "`"+name+"`") && !strings.Contains(page, "`"+name+"{") {
			t.Errorf("docs/operations.md does not describe %s", name)
		}
	}
}

// metricName matches a string literal with the name of a metric, whose last word is a unit or the counted thing.
var metricName = regexp.MustCompile(`^"belfry(_[a-z]+)+_(total|seconds|bytes|size|lag|runs|streams|ratio|info|up)"$`)

// TestReadmeCommand checks that README.md has a test command between the marks from which .ci/run reads it.
func TestReadmeCommand(t *testing.T) {
	marked := regexp.MustCompile("(?s)<!-- ci:test -->\n```sh\ngo test [^\n]+\n```\n<!-- /ci:test -->")
	if !marked.MatchString(pages(t)["README.md"]) {
		t.Error("README.md has no test command between its ci:test marks")
	}
}
