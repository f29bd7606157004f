package deploy

import (
	"bytes"
	"debug/elf"
	"fmt"
	"go/version"
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

// instruction is one instruction of a Dockerfile. Continuation lines are joined.
type instruction struct{ name, rest string }

func dockerfile(t testing.TB) []instruction {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var all []instruction
	joined := regexp.MustCompile(`\\\n\s*`).ReplaceAllString(string(text), "")
	for line := range strings.Lines(joined) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		all = append(all, instruction{name, strings.TrimSpace(rest)})
	}
	return all
}

// binary returns the program that the Dockerfile builds.
func binary(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("NOT COVERED: building the image's binary takes long")
	}
	built.once.Do(func() { built.path, built.err = build(dockerfile(t)) })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// build runs the Dockerfile's build command in a shell, with another output directory.
func build(instructions []instruction) (string, error) {
	var command string
	for _, i := range instructions {
		if i.name == "RUN" && strings.Contains(i.rest, "go build") {
			command = i.rest
		}
	}
	const out = "/out/root/"
	if strings.Count(command, out) != 1 {
		return "", fmt.Errorf("the Dockerfile has no build command that writes to %s once: %q", out, command)
	}
	dir, err := os.MkdirTemp("", "belfry-image-*")
	if err != nil {
		return "", err
	}
	built.dir = dir
	cmd := exec.Command("sh", "-c", strings.Replace(command, out, dir+"/", 1))
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "VERSION="+stamped)
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", command, err, said)
	}
	return filepath.Join(dir, "usr", "bin", "belfry"), nil
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
		t.Errorf("--version says %q, want the build argument %s", v, stamped)
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

func TestDockerfile(t *testing.T) {
	var last []instruction // of the last stage
	arguments, stages := map[string]bool{}, map[string]bool{}
	for _, i := range dockerfile(t) {
		switch i.name {
		case "FROM":
			image, name, _ := strings.Cut(i.rest, " AS ")
			if image != "scratch" && !pinned.MatchString(image) {
				t.Errorf("FROM %s is not pinned to a release", image)
			}
			if tag, ok := strings.CutPrefix(image, "golang:"); ok {
				checkGo(t, tag)
			}
			stages[name] = true
			last = nil
		case "ARG":
			name, _, _ := strings.Cut(i.rest, "=")
			arguments[name] = true
		}
		last = append(last, i)
		if i.name == "COPY" && strings.Contains(i.rest, "--from=") {
			from := regexp.MustCompile(`--from=(\S+)`).FindStringSubmatch(i.rest)[1]
			if !stages[from] {
				t.Errorf("%s: there is no stage %s", i.rest, from)
			}
		}
	}
	if !arguments["VERSION"] {
		t.Error("there is no build argument VERSION")
	}
	if last[0].rest != "scratch" {
		t.Errorf("the image starts from %s; it should contain only copied files", last[0].rest)
	}
	found := map[string]string{}
	for _, i := range last {
		if i.name == "RUN" || i.name == "ADD" {
			t.Errorf("the last stage has no shell and may not download files: %s %s", i.name, i.rest)
		}
		found[i.name] = i.rest
	}
	uid, gid, ok := strings.Cut(found["USER"], ":")
	for _, id := range []string{uid, gid} {
		if n, err := strconv.Atoi(id); err != nil || n == 0 || !ok {
			t.Errorf("USER %s: want numbers other than 0, because a cluster may refuse names that it cannot check", found["USER"])
		}
	}
	if found["ENTRYPOINT"] != `["/usr/bin/belfry"]` {
		t.Errorf("ENTRYPOINT is %s", found["ENTRYPOINT"])
	}
}

// checkGo compares the image's Go version with the version that go.mod requires.
func checkGo(t *testing.T, tag string) {
	t.Helper()
	release, _, _ := strings.Cut(tag, "-")
	if want := goMod(t).Go.Version; version.Compare("go"+release, "go"+want) < 0 {
		t.Errorf("the image builds with Go %s, go.mod requires %s", release, want)
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

// TestContext checks that the image's build context and the repository ignore secrets.
func TestContext(t *testing.T) {
	ignored, err := os.ReadFile("Dockerfile.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile("../.gitignore")
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"deploy/.env", "deploy/secrets"} {
		if !strings.Contains("\n"+string(ignored), "\n"+secret+"\n") {
			t.Errorf("Dockerfile.dockerignore does not ignore %s", secret)
		}
		if !strings.Contains(string(kept), "\n/"+secret) {
			t.Errorf(".gitignore does not ignore %s", secret)
		}
	}
}
