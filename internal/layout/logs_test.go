package layout

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// logKeys are the keys of log records. A new key is added here on purpose: the same thing has the same key everywhere.
var logKeys = strings.Fields(`
	job_id job run_id attempt attempts instance group version err
	action after actor alert_id application bulk_id bytes channel clients commit count dir account events expires_at file first kind key lag last level line major max_bytes method mode n object
	outcome panic path pid pids reason remote results role runs script server sha256 signal stack step subject text took trace_id unreachable url within
`)

// A logCall is a call that writes a log record, outside tests.
type logCall struct {
	at      string
	level   string // Debug, Info, Warn, Error
	message string
	keys    []string
	fault   string // the call cannot be read
}

var logMethod = regexp.MustCompile(`^(Debug|Info|Warn|Error)(Context)?$`)

// logCalls returns every call of a logger of the process. The log of a run, run.Log(), belongs to its handler and is left out.
// A function that takes the message of a warning names that parameter "failure"; its callers are read in its place.
func logCalls(files []sourceFile) []logCall {
	helpers := failureHelpers(files)
	var calls []logCall
	for _, f := range files {
		if f.test || f.generated {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if level, first, ok := loggerCall(call); ok {
				if c, ok := readLogCall(f, call, level, first); ok {
					calls = append(calls, c)
				}
				return true
			}
			if at, ok := helpers[f.dir+"."+calledName(call)]; ok && at < len(call.Args) {
				if c, ok := readLogCall(f, call, "Warn", at); ok {
					c.keys = nil // what follows the message are the helper's own parameters
					calls = append(calls, c)
				}
			}
			return true
		})
	}
	return calls
}

// loggerCall reports the level of a call of a logger and the index of its message.
func loggerCall(call *ast.CallExpr) (level string, message int, ok bool) {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", 0, false
	}
	var receiver string
	switch x := fun.X.(type) {
	case *ast.Ident:
		receiver = x.Name
	case *ast.SelectorExpr:
		receiver = x.Sel.Name
	}
	m := logMethod.FindStringSubmatch(fun.Sel.Name)
	if m == nil || !slices.Contains([]string{"log", "Log", "logger", "slog"}, receiver) {
		return "", 0, false
	}
	if m[2] != "" {
		message = 1
	}
	return m[1], message, message < len(call.Args)
}

// failureHelpers returns the functions and methods with a parameter "failure string", and its index, by directory and name.
func failureHelpers(files []sourceFile) map[string]int {
	found := map[string]int{}
	for _, f := range files {
		if f.test || f.generated {
			continue
		}
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			index := 0
			for _, field := range fn.Type.Params.List {
				for _, name := range field.Names {
					if name.Name == "failure" {
						found[f.dir+"."+fn.Name.Name] = index
					}
					index++
				}
			}
		}
	}
	return found
}

func calledName(call *ast.CallExpr) string {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	}
	return ""
}

// readLogCall reads the message and the keys. It returns false for a helper's own call, whose message is its parameter.
func readLogCall(f sourceFile, call *ast.CallExpr, level string, first int) (logCall, bool) {
	c := logCall{at: f.at(call), level: level}
	if id, ok := call.Args[first].(*ast.Ident); ok && id.Name == "failure" {
		return c, false
	}
	text, ok := constantText(call.Args[first])
	if !ok {
		c.fault = `the message is not a constant; a helper takes it as a parameter "failure"`
		return c, true
	}
	c.message = text
	for i, rest := first+1, call.Args; i < len(rest); i++ {
		if attr, ok := rest[i].(*ast.CallExpr); ok && len(attr.Args) > 0 { // slog.String("key", …)
			if key, ok := constantText(attr.Args[0]); ok {
				c.keys = append(c.keys, key)
			}
			continue
		}
		if key, ok := constantText(rest[i]); ok {
			c.keys = append(c.keys, key)
			i++ // its value
		}
	}
	return c, true
}

// constantText returns the text of string literals, also of several joined by +.
func constantText(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, ok := constantText(e.X)
		right, also := constantText(e.Y)
		return left + right, ok && also && e.Op == token.ADD
	case *ast.ParenExpr:
		return constantText(e.X)
	}
	return "", false
}

var (
	gerund      = regexp.MustCompile(`^[a-z]+ing\b`)
	properNouns = regexp.MustCompile(`^(Postgres|NATS|JetStream|River)\b`)
)

// logFault returns what is wrong with a log call, "" if nothing is.
func logFault(c logCall) string {
	if c.fault != "" {
		return c.fault
	}
	switch first := c.message[:min(1, len(c.message))]; {
	case strings.TrimSpace(c.message) == "":
		return "the message is empty"
	case strings.HasSuffix(c.message, "."):
		return "the message ends with a period"
	case first != strings.ToLower(first) && !properNouns.MatchString(c.message):
		return "the message begins with a capital letter"
	}
	for _, key := range c.keys {
		if !slices.Contains(logKeys, key) {
			return fmt.Sprintf("the key %q is not in logKeys; an error's key is err", key)
		}
	}
	switch {
	case c.level != "Warn" && c.level != "Error":
		return ""
	case gerund.MatchString(c.message):
		return "the message names an activity; state what failed"
	case strings.Contains(c.message, ";"):
		return "the message has a semicolon; write: failure, consequence"
	case !strings.Contains(c.message, ", "):
		return "the message has no consequence; write: failure, consequence"
	}
	return ""
}

// TestLogs reads all log messages. Messages are constants. A warning or an error states what failed first and, after a comma,
// what happens next. Keys are from one list.
func TestLogs(t *testing.T) {
	calls := logCalls(repository(t))
	levels, used := map[string]int{}, map[string]bool{}
	for _, c := range calls {
		levels[c.level]++
		for _, key := range c.keys {
			used[key] = true
		}
		if fault := logFault(c); fault != "" {
			t.Errorf("%s: %s %q: %s", c.at, c.level, c.message, fault)
		}
	}
	if levels["Warn"] < 50 || levels["Error"] < 10 || levels["Info"] < 15 {
		t.Errorf("too few log calls were found: %v", levels)
	}
	for _, key := range logKeys {
		if !used[key] {
			t.Errorf("no log call has the key %s: remove it from logKeys", key)
		}
	}
	if t.Failed() {
		t.Logf("keys in use: %s", strings.Join(slices.Sorted(maps.Keys(used)), " "))
	}
}

func TestLogsCanFail(t *testing.T) {
	for _, test := range []struct{ source, want string }{
		{`log.Warn("cannot settle results, retrying", "err", err)`, ""},
		{`x.cfg.Log.ErrorContext(ctx, "a result is malformed, "+"it is now a dead letter", "run_id", id)`, ""},
		{`log.Info("connected to NATS", "instance", name)`, ""},
		{`run.Log().Warn("anything; a handler may write.")`, ""},
		{`http.Error(w, "busy", 503)`, ""},
		{`warn("cannot settle results, retrying", err)`, ""},
		{`warn("settling results", err)`, "names an activity"},
		{`log.Warn("settling results, retrying")`, "names an activity"},
		{`log.Warn("results cannot be settled; retrying")`, "semicolon"},
		{`log.Error("results cannot be settled")`, "no consequence"},
		{`log.Warn("cannot settle results, retrying", "error", err)`, `the key "error"`},
		{`log.Warn("cannot settle results, retrying", slog.Any("error", err))`, `the key "error"`},
		{`log.Info("Connected.")`, "period"},
		{`log.Info("Connected")`, "capital letter"},
		{`log.Info(fmt.Sprint("connected to ", server))`, "not a constant"},
	} {
		source := "package a\nfunc warn(failure string, err error) { log.Warn(failure, \"err\", err) }\nfunc f() { " + test.source + " }\n"
		files, err := readTree(fstest.MapFS{"a/a.go": {Data: []byte(source)}})
		if err != nil {
			t.Fatal(err)
		}
		var faults []string
		for _, c := range logCalls(files) {
			if fault := logFault(c); fault != "" {
				faults = append(faults, fault)
			}
		}
		if got := strings.Join(faults, "; "); (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.source, got, test.want)
		}
	}
}
