package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestGeneratedPassword checks that the generated password of admin goes to a file if systemd started the process, and is printed otherwise.
func TestGeneratedPassword(t *testing.T) {
	const generated = "a-password-for-this-test"
	dir := filepath.Join(t.TempDir(), "data")
	show := func() (printed, file string) {
		t.Helper()
		var out bytes.Buffer
		file, err := passwordFile(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := (&process{app: &App{Stdout: &out}}).showPassword(generated, file); err != nil {
			t.Fatal(err)
		}
		return out.String(), file
	}

	t.Setenv("SYSTEMD_EXEC_PID", "1") // of a parent, such as a terminal
	if printed, file := show(); file != "" || !strings.Contains(printed, generated) {
		t.Errorf("the parent was started by systemd: the file is %q, and it printed %q", file, printed)
	}
	t.Setenv("SYSTEMD_EXEC_PID", strconv.Itoa(os.Getpid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "initial-password"), []byte("of an older database, and longer than the new one"), 0o644); err != nil {
		t.Fatal(err)
	}
	printed, file := show()
	if strings.Contains(printed, generated) || !strings.Contains(printed, file) || file != filepath.Join(dir, "initial-password") {
		t.Errorf("the file is %q, and it printed %q", file, printed)
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != generated+"\n" {
		t.Errorf("the file contains %q (%v)", text, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the file is %v (%v)", info.Mode(), err)
	}
}
