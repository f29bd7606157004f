package app

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestHide checks that other processes of the same user cannot read the environment of a process that called hide. It runs as
// user `nobody`, because root can read everything.
func TestHide(t *testing.T) {
	if os.Getenv("HIDE_TEST") != "" {
		if os.Getenv("HIDE_TEST") == "hidden" {
			if err := hide(); err != nil {
				t.Fatal(err)
			}
		}
		out, _ := exec.Command("sh", "-c", "cat /proc/$PPID/environ | tr '\\0' '\\n' | grep ^SECRET_FOR_TEST=; true").CombinedOutput()
		t.Logf("a child sees: %s", out)
		return
	}
	see := func(how string) string {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "-test.run=^TestHide$", "-test.v")
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), "HIDE_TEST="+how, "SECRET_FOR_TEST=hush")
		if os.Getuid() == 0 {
			// The child runs as another user, who may lack the permission to open the program. So this process opens it.
			file, err := os.Open(self)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{file}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Skipf("NOT COVERED: on this system the test cannot run as another user: %v\n%s", err, out)
		}
		return string(out)
	}
	if open := see("open"); !strings.Contains(open, "SECRET_FOR_TEST=hush") {
		t.Skipf("NOT COVERED: on this system processes cannot read each other's environment anyway:\n%s", open)
	}
	if hidden := see("hidden"); strings.Contains(hidden, "SECRET_FOR_TEST=hush") || !strings.Contains(hidden, "a child sees") {
		t.Errorf("a child process can read the environment of its parent:\n%s", hidden)
	}
}
