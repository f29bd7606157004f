package executor

import (
	"os"
	"syscall"
	"testing"
)

// withoutFiles calls f while this process can open no file.
func withoutFiles(t *testing.T, f func()) {
	t.Helper()
	var before syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	none := before
	none.Cur = 0
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	defer func() { must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)) }()
	f()
}

func TestCountsOpenFiles(t *testing.T) {
	var c fileCount
	before, limit, ok := c.read()
	if !ok || before < 3 || limit < before {
		t.Fatalf("%d of %d, %t", before, limit, ok)
	}
	f, err := os.Open(os.DevNull)
	must(t, err)
	defer f.Close()
	if after, _, ok := c.read(); !ok || after != before+1 {
		t.Errorf("%d files are open after %d", after, before)
	}
}
