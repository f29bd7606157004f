package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFromFile(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const env, both = "BELFRY_TOKEN", "both set"
	secret := file("secret", "hunter2\n")
	for name, c := range map[string]struct {
		direct, path string
		value, fault string
	}{
		"no variable":            {},
		"only the value":         {direct: "direct"},
		"a file":                 {path: secret, value: "hunter2"},
		"an empty value":         {direct: "", path: secret, value: "hunter2"},
		"without a newline":      {path: file("bare", " hunter2 "), value: " hunter2 "},
		"a newline of Windows":   {path: file("windows", "hunter2\r\n"), value: "hunter2"},
		"both":                   {direct: "hunter2", path: secret, fault: both},
		"a missing file":         {path: filepath.Join(dir, "none"), fault: "no such file"},
		"a directory":            {path: dir, fault: "directory"},
		"an empty file":          {path: file("empty", "\n"), fault: "is empty"},
		"several lines":          {path: file("lines", "hunter2\nhunter3\n"), fault: "more than one line"},
		"a file that is too big": {path: file("big", strings.Repeat("x", maxFile+1)), fault: "larger than 64 KiB"},
	} {
		vars := map[string]string{env: c.direct, env + FileSuffix: c.path}
		value, found, err := FromFile(env, func(name string) (string, bool) { v, ok := vars[name]; return v, ok })
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) || !strings.Contains(err.Error(), env+FileSuffix) || strings.Contains(err.Error(), "hunter") {
				t.Errorf("%s: the error is %v, want one about %s%s that contains %q", name, err, env, FileSuffix, c.fault)
			}
			continue
		}
		if err != nil || value != c.value || found != (c.value != "") {
			t.Errorf("%s: got %q, %v, %v, want %q", name, value, found, err, c.value)
		}
	}
}
