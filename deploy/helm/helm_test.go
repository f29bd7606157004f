package helm

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestAgainstHelm runs Helm's own linter, and compares the manifests that Helm renders with those that the other tests examine.
func TestAgainstHelm(t *testing.T) {
	helm := os.Getenv("BELFRY_TEST_HELM")
	if helm == "" {
		t.Skip("NOT COVERED: Helm takes minutes to build; `.ci/long chart` runs it")
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(helm, args...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		var problems strings.Builder
		cmd.Stderr = &problems
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("helm %s: %v\n%s\n%s", strings.Join(args, " "), err, out, problems.String())
		}
		return string(out)
	}
	for name, text := range matrix {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			run("lint", "--strict", "--values", file, chartDir)
			theirs := decode(t, map[string]string{"helm": run("template", installed.Name, chartDir, "--namespace", installed.Namespace, "--values", file)})
			ours := decode(t, rendered(t, text))
			if len(theirs.objects) != len(ours.objects) {
				t.Errorf("Helm renders %d objects, the tests %d", len(theirs.objects), len(ours.objects))
			}
			for _, o := range ours.objects {
				other := theirs.named(reflect.TypeOf(o).Elem().Name(), o.GetName())
				if !reflect.DeepEqual(o, other) {
					got, _ := yaml.Marshal(other)
					want, _ := yaml.Marshal(o)
					t.Errorf("Helm renders\n%s\nthe tests\n%s", got, want)
				}
			}
		})
	}
	if out := run("template", "belfry", chartDir, "--set", "secret.name=belfry"); !strings.Contains(out, "kind: Deployment") {
		t.Errorf("helm template prints\n%s", out)
	}
	archive := t.TempDir()
	run("package", chartDir, "--destination", archive)
	if found, err := filepath.Glob(filepath.Join(archive, "belfry-*.tgz")); err != nil || len(found) != 1 {
		t.Errorf("helm package wrote %q, %v", found, err)
	}
}
