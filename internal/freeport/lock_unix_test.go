//go:build unix

package freeport

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// envHold turns the test binary into a process that reserves half of the range until its input ends.
const envHold = "FREEPORT_HOLD"

const half = first + (last-first)/2

func TestMain(m *testing.M) {
	if os.Getenv(envHold) != "" {
		for port := first; port < half; port++ {
			if locked, err := lock(port); err != nil || !locked {
				fmt.Println(port, locked, err)
				os.Exit(1)
			}
		}
		fmt.Println("held")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	// A temporary directory separates the locks from those of other tests that run at the same time.
	dir, err := os.MkdirTemp("", "freeport")
	if err != nil {
		panic(err)
	}
	os.Setenv("TMPDIR", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Ports that another process has reserved are not returned until that process ends, even if it does not listen on them.
func TestTakeBesideAnotherProcess(t *testing.T) {
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), envHold+"=1")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 100)
	n, _ := out.Read(said)
	if !strings.HasPrefix(string(said[:n]), "held") {
		t.Fatalf("the other process said %q", said[:n])
	}
	for range 100 {
		if port := Take(t); port < half {
			t.Errorf("%d is another process's", port)
		}
	}
	in.Close()
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	for port := first; port < half; port++ {
		if locked, err := lock(port); err != nil || !locked {
			t.Fatalf("%d is reserved by a process that has ended: %v", port, err)
		}
		unlock(port)
	}
}
