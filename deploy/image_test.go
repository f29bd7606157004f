package deploy

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/belfryhq/belfry/internal/pgtest"
)

const stamped = "v0.0.1-test"

// built is the image's binary, built once for all tests.
var built struct {
	once sync.Once
	path string
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	if conf := os.Getenv(envNATSConf); conf != "" {
		os.Exit(natsServer(conf))
	}
	pgtest.Main(cleaning{m})
}

// cleaning removes the binary after the tests.
type cleaning struct{ m *testing.M }

func (c cleaning) Run() int {
	defer func() {
		if built.dir != "" {
			os.RemoveAll(built.dir)
		}
	}()
	return c.m.Run()
}

// instruction is one instruction of the Containerfile. Continuation lines are joined.
type instruction struct{ name, rest string }

// stages returns the instructions of each stage of the Containerfile by the stage's name. Those before the first stage have the name "".
func stages(t testing.TB) map[string][]instruction {
	t.Helper()
	text, err := os.ReadFile("Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	all, stage := make(map[string][]instruction), ""
	joined := regexp.MustCompile(`\\\n\s*`).ReplaceAllString(string(text), "")
	for line := range strings.Lines(joined) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		if name == "FROM" {
			_, stage, _ = strings.Cut(rest, " AS ")
		}
		all[stage] = append(all[stage], instruction{name, strings.TrimSpace(rest)})
	}
	return all
}

// binary returns the program that the images contain.
func binary(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("NOT COVERED: building the image's binary takes long")
	}
	built.once.Do(func() { built.path, built.err = build() })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// build runs the script that builds the program of a release.
func build() (string, error) {
	dir, err := os.MkdirTemp("", "belfry-image-*")
	if err != nil {
		return "", err
	}
	built.dir = dir
	path := filepath.Join(dir, "belfry")
	if said, err := exec.Command("../.ci/release/binary", stamped, path).CombinedOutput(); err != nil {
		return "", fmt.Errorf(".ci/release/binary: %w\n%s", err, said)
	}
	return path, nil
}

func TestImageBinary(t *testing.T) {
	path := binary(t)
	if runtime.GOOS == "linux" {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("the binary has a segment %s; an image without a dynamic linker cannot run it", p.Type)
			}
		}
		if libraries, _ := f.ImportedLibraries(); len(libraries) > 0 {
			t.Errorf("the binary needs the libraries %q", libraries)
		}
		if f.Section(".debug_info") != nil {
			t.Error("the binary contains debug information")
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the image's binary has %.1f MB", float64(info.Size())/1e6)
	if info.Size() > 80e6 {
		t.Error("that is more than 80 MB")
	}
	// As in the image, the binary gets no environment variables.
	said := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(path, args...)
		cmd.Env, cmd.Dir = []string{}, t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if help := said("--help"); !strings.Contains(help, "scheduler") {
		t.Errorf("--help says:\n%s", help)
	}
	if v := said("--version"); v != "belfry "+stamped+"\n" {
		t.Errorf("--version says %q, want %s", v, stamped)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if root, err := filepath.Abs(".."); err != nil || bytes.Contains(text, []byte(root+"/main.go")) {
		t.Errorf("the binary contains the path of its build directory (%v)", err)
	}
}

// pinned matches an image with an exact release, at least X.Y.
var pinned = regexp.MustCompile(`^[a-z0-9./-]+:v?\d+\.\d+(\.\d+)?(-[a-z0-9.]+)?(@sha256:[0-9a-f]{64})?$`)

// TestContainerfile checks the rules for all images. `.ci/long images` builds and runs them.
func TestContainerfile(t *testing.T) {
	all := stages(t)
	for _, i := range all[""] {
		if base, ok := strings.CutPrefix(i.rest, "BASE="); i.name != "ARG" || !ok || !regexp.MustCompile(`^docker\.io/library/debian:\d+-slim$`).MatchString(base) {
			t.Errorf("%s %s: want a release of Debian", i.name, i.rest)
		}
	}
	for _, stage := range []string{"server", "agent", "demo"} {
		found := map[string]string{}
		for _, i := range all[stage] {
			if stage == "server" && (i.name == "RUN" || i.name == "ADD") {
				t.Errorf("server has no shell and may not download files: %s %s", i.name, i.rest)
			}
			found[i.name] = i.rest
		}
		if from := found["FROM"]; (stage == "server") != (from == "scratch AS server") {
			t.Errorf("%s starts from %s; only the server contains nothing but copied files", stage, from)
		}
		uid, gid, ok := strings.Cut(found["USER"], ":")
		for _, id := range []string{uid, gid} {
			if n, err := strconv.Atoi(id); err != nil || n == 0 || !ok {
				t.Errorf("%s: USER %s: want numbers other than 0, because a cluster may refuse names that it cannot check", stage, found["USER"])
			}
		}
		if !strings.HasSuffix(found["HEALTHCHECK"], `CMD ["/usr/bin/belfry", "health"]`) {
			t.Errorf("%s: HEALTHCHECK %s", stage, found["HEALTHCHECK"])
		}
		if !strings.HasSuffix(found["ENTRYPOINT"], `"/usr/bin/belfry"]`) {
			t.Errorf("%s: ENTRYPOINT %s", stage, found["ENTRYPOINT"])
		}
	}
}

func goMod(t testing.TB) *modfile.File {
	t.Helper()
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	f, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestIgnoredSecrets checks that the repository ignores secrets.
func TestIgnoredSecrets(t *testing.T) {
	kept, err := os.ReadFile("../.gitignore")
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"deploy/.env", "deploy/secrets"} {
		if !strings.Contains(string(kept), "\n/"+secret) {
			t.Errorf(".gitignore does not ignore %s", secret)
		}
	}
}
