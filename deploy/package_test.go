package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// packaging has the keys of package/nfpm.yaml.
type packaging struct {
	Name, Arch, Platform, Version, Section, Priority, Maintainer, Vendor, Homepage, License, Description string
	Contents                                                                                             []packagedFile
	Overrides                                                                                            map[string]struct {
		Depends, Recommends []string
		Scripts             struct{ Postinstall, Preremove, Postremove string }
	}
}

type packagedFile struct {
	Src, Dst, Type, Packager string
	Expand                   bool
	FileInfo                 struct{ Mode uint32 } `yaml:"file_info"`
}

// TestPackage checks the configuration of the packages without nfpm. `.ci/long packages` builds and installs one.
func TestPackage(t *testing.T) {
	var p packaging
	strictYAML(t, "package/nfpm.yaml", &p)
	built, err := os.ReadFile("../.ci/release/packages")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("package/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\$\{([A-Z]+)\}`).FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(string(built), " "+m[1]+"=") {
			t.Errorf(".ci/release/packages does not set %s", m[1])
		}
	}
	installs := make(map[string]packagedFile)
	for _, f := range p.Contents {
		for _, path := range packagedPaths(t, f) {
			if _, twice := installs[path+" "+f.Packager]; twice || !filepath.IsAbs(path) {
				t.Errorf("%s is not absolute, or is in the package twice", path)
			}
			installs[path+" "+f.Packager] = f
		}
		if f.FileInfo.Mode == 0 || f.FileInfo.Mode&0o022 != 0 || strings.HasPrefix(f.Dst, "/usr/bin/") != (f.FileInfo.Mode == 0o755 && f.Type == "") {
			t.Errorf("%s has the mode %o", f.Dst, f.FileInfo.Mode)
		}
	}
	if installs[installed+" "].Src == "" {
		t.Errorf("the package has no %s, which the units start", installed)
	}
	for name, text := range unitFiles(t) {
		if installs["/usr/lib/systemd/system/"+name+" "].Src == "" {
			t.Errorf("the package has no %s", name)
		}
		for _, file := range unitSettings(text)["EnvironmentFile"] {
			if strings.Contains(file, "%i") {
				continue // the administrator creates it
			}
			if f := installs[strings.TrimPrefix(file, "-")+" "]; f.Type != "config|noreplace" || f.FileInfo.Mode != 0o600 {
				t.Errorf("%s: the package has %s as %+v; it is for secrets, and updates keep it", name, file, f)
			}
		}
	}
	for _, kind := range []string{"deb", "rpm"} {
		o := p.Overrides[kind]
		if !slices.Contains(o.Depends, "ca-certificates") || len(o.Recommends) == 0 {
			t.Errorf("%s depends on %q and recommends %q", kind, o.Depends, o.Recommends)
		}
		for _, script := range []string{o.Scripts.Postinstall, o.Scripts.Preremove, o.Scripts.Postremove} {
			checkPackageScript(t, script)
		}
	}
}

// packagedPaths returns the paths that a content of the package installs. Those with variables are built and have one path.
func packagedPaths(t *testing.T, f packagedFile) []string {
	t.Helper()
	if f.Type == "dir" {
		return []string{f.Dst}
	}
	if strings.Contains(f.Src, "$") {
		if !f.Expand {
			t.Errorf("nfpm does not expand %s", f.Src)
		}
		return []string{f.Dst}
	}
	sources, err := filepath.Glob(filepath.Join("..", f.Src))
	if err != nil || len(sources) == 0 {
		t.Errorf("%s does not exist (%v)", f.Src, err)
	}
	if !strings.HasSuffix(f.Dst, "/") {
		return []string{f.Dst}
	}
	var paths []string
	for _, s := range sources {
		paths = append(paths, f.Dst+filepath.Base(s))
	}
	return paths
}

// checkPackageScript checks the syntax of a script, and that it deletes no data.
func checkPackageScript(t *testing.T, script string) {
	t.Helper()
	path := filepath.Join("..", script)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	if said, err := exec.Command("sh", "-n", path).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", script, err, said)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(strings.TrimSpace(line), "rm ") && !strings.Contains(line, "/etc/systemd/system/") {
			t.Errorf("%s deletes files: %s", script, line)
		}
	}
}
