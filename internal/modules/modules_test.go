package modules

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

const root = "../.."

// version returns the version under which the tests serve all modules: that of the SDK in go.mod.
func version(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range f.Require {
		if r.Mod.Path == SDK {
			return r.Mod.Version
		}
	}
	t.Fatalf("go.mod does not require %s", SDK)
	return ""
}

// goCommand runs the go command outside of the workspace. The command gets the modules of this repository from the working tree,
// and other modules from the module cache of this machine or, if they are not there, from GOPROXY.
type goCommand struct {
	t   *testing.T
	env []string
}

func newGoCommand(t *testing.T) *goCommand {
	t.Helper()
	if testing.Short() {
		t.Skip("NOT COVERED: what users get of both modules, which needs a separate module cache")
	}
	proxy := t.TempDir()
	serve(t, proxy, root, module.Version{Path: Root, Version: version(t)})
	serve(t, proxy, filepath.Join(root, SDKDir), module.Version{Path: SDK, Version: version(t)})
	serve(t, proxy, filepath.Join(root, OTelDir), module.Version{Path: OTel, Version: version(t)})
	g := &goCommand{t: t}
	here := strings.Fields(g.run(".", "env", "GOMODCACHE", "GOPROXY"))
	cache := t.TempDir() // the machine's cache must not get modules that are not published
	// Trimmed paths let the build cache serve packages of other module caches.
	g.env = []string{
		"GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-mod=mod -modcacherw -buildvcs=false -trimpath", "GOMODCACHE=" + cache, "GOBIN=" + t.TempDir(), "GONOSUMDB=" + Root,
		"GOPROXY=" + strings.Join([]string{fileURL(proxy), fileURL(filepath.Join(here[0], "cache", "download")), here[1]}, ","),
	}
	return g
}

// serve writes a module into a directory that the go command can use as a proxy.
func serve(t *testing.T, proxy, dir string, m module.Version) {
	t.Helper()
	var zipped bytes.Buffer
	if err := Zip(&zipped, dir, m); err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(proxy, m.Path, "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"list": []byte(m.Version + "\n"), m.Version + ".mod": gomod, m.Version + ".zip": zipped.Bytes(),
		m.Version + ".info": fmt.Appendf(nil, `{"Version": %q}`, m.Version),
	} {
		if err := os.WriteFile(filepath.Join(at, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func fileURL(dir string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()
}

// run runs the command and returns its output.
func (g *goCommand) run(dir string, args ...string) string {
	g.t.Helper()
	cmd := exec.CommandContext(g.t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), g.env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		g.t.Fatalf("go %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.Bytes())
	}
	return string(out)
}

// program is a user's program. Its test is the one that docs/getting-started.md shows.
var program = map[string]string{
	"go.mod": "module example.com/invoices\n\ngo 1.25.0\n",
	"main.go": `package main

import (
	"context"
	"log"

	"github.com/belfryhq/belfry/executor"
)

func main() {
	e, err := executor.New(executor.Config{NATSURL: "nats://127.0.0.1:4222", Group: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	e.HandleFunc("invoices", invoices)
	log.Fatal(e.Run(context.Background()))
}

func invoices(_ context.Context, run executor.Run) error { return run.SetOutput(run.Param()) }
`,
	"main_test.go": `package main

import (
	"testing"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/executortest"
)

func TestInvoices(t *testing.T) {
	if res := executortest.RunFunc(t.Context(), invoices, executor.RunInfo{Param: "2026-02"}); res.Output != "2026-02" {
		t.Errorf("got %+v", res)
	}
}
`,
}

// long skips the test unless BELFRY_TEST_LONG is set.
func long(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("BELFRY_TEST_LONG") == "" {
		t.Skipf("NOT COVERED: %s; `.ci/long modules` runs it", what)
	}
}

// TestUserOfTheSDK checks the build list of a program that uses the SDK: the program gets few modules, and needs no newer Go version
// than the SDK. Its subtest builds and tests the program.
func TestUserOfTheSDK(t *testing.T) {
	g := newGoCommand(t)
	dir := t.TempDir()
	for name, text := range program {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	g.run(dir, "mod", "tidy")
	t.Run("builds", func(t *testing.T) {
		long(t, "build and test of a program that uses the SDK")
		in := *g
		in.t = t
		in.run(dir, "test", "./...")
	})
	modules := strings.Split(strings.TrimSpace(g.run(dir, "list", "-m", "all")), "\n")
	t.Logf("%d modules:\n%s", len(modules), strings.Join(modules, "\n"))
	if len(modules) > 15 {
		t.Errorf("the build list of a program that uses the SDK has %d modules, want at most 15", len(modules))
	}
	seen := false
	for _, m := range modules {
		path, _, _ := strings.Cut(m, " ")
		seen = seen || path == SDK
		for _, servers := range []string{"pgx", "river", "nats-server", "huma", "cel-go"} {
			if strings.Contains(path, servers) {
				t.Errorf("the build list has %s", m)
			}
		}
		if path == Root {
			t.Errorf("the build list has the root module")
		}
	}
	if !seen {
		t.Error("the build list does not have the SDK")
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.Go.Version != "1.25.0" || f.Toolchain != nil {
		t.Errorf("the program's Go version was changed:\n%s", text)
	}
	for _, r := range f.Require {
		if !r.Indirect && r.Mod.Path != SDK {
			t.Errorf("the program requires %s:\n%s", r.Mod, text)
		}
	}
}

// TestUserOfOpenTelemetry builds a program that uses the SDK's module for OpenTelemetry. The program needs no newer Go version than the module.
func TestUserOfOpenTelemetry(t *testing.T) {
	long(t, "build of a program that uses executor/otel")
	g := newGoCommand(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": program["go.mod"],
		"main.go": strings.NewReplacer(`Group: "billing"`, `Group: "billing", Around: belfryotel.Around()`,
			`"github.com/belfryhq/belfry/executor"`, `"github.com/belfryhq/belfry/executor"`+"\n\tbelfryotel "+`"github.com/belfryhq/belfry/executor/otel"`).Replace(program["main.go"]),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	g.run(dir, "mod", "tidy")
	g.run(dir, "build", "-o", os.DevNull, ".")
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if f, err := modfile.Parse("go.mod", text, nil); err != nil || f.Go.Version != "1.25.0" {
		t.Errorf("the program's Go version was changed (%v):\n%s", err, text)
	}
}

// TestInstall installs belfry as users do, without a clone.
func TestInstall(t *testing.T) {
	long(t, "go install of the root module")
	g := newGoCommand(t)
	g.run(t.TempDir(), "install", Root+"@"+version(t))
	for _, e := range g.env {
		if dir, ok := strings.CutPrefix(e, "GOBIN="); ok {
			out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "belfry"), "--version").CombinedOutput()
			if want := "belfry " + version(t) + "\n"; err != nil || string(out) != want {
				t.Errorf("belfry --version prints %q (%v), want %q", out, err, want)
			}
		}
	}
}
