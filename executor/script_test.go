package executor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// TestTheLargestScriptFitsIntoAMessage checks that the largest script that Belfry accepts fits into a message of a server with
// default settings. Its code is encoded in base64.
func TestTheLargestScriptFitsIntoAMessage(t *testing.T) {
	const largest = 256 << 10
	m := wire.Encode(wire.Control{V: wire.Version, Op: wire.OpScript, SHA256: sumOf(nil), Code: bytes.Repeat([]byte{1}, largest)})
	if most := 1 << 20; len(m) > most/2 {
		t.Errorf("the message has %d bytes; a server accepts %d", len(m), most)
	}
	if err := wire.Decode(m, &wire.Control{}); err != nil {
		t.Error(err)
	}
}

func TestScriptCacheIsBounded(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "new-123"), nil, 0o600)) // left by a dead process
	c, err := openScripts(dir, quietLogger())
	must(t, err)
	code := func(n int) []byte {
		return append(bytes.Repeat([]byte("x"), maxScriptBytes-8), fmt.Sprintf("%08d", n)...)
	}
	const fit = scriptCacheBytes / maxScriptBytes
	for n := range fit {
		must(t, c.put(sumOf(code(n)), code(n)))
	}
	if got, ok := c.await(sumOf(code(0)), nil, time.Hour); !ok || !bytes.Equal(got, code(0)) { // now it is the most recently used one
		t.Fatal("a stored script is missing")
	}
	must(t, c.put(sumOf(code(fit)), code(fit)))
	if !c.has(sumOf(code(0))) || c.has(sumOf(code(1))) || !c.has(sumOf(code(fit))) {
		t.Error("the least recently used script is still in the cache")
	}
	files, err := os.ReadDir(dir)
	must(t, err)
	if len(files) != fit || c.bytes > scriptCacheBytes {
		t.Errorf("%d files, %d bytes", len(files), c.bytes)
	}
	if err := c.put(sumOf(make([]byte, maxScriptBytes+1)), make([]byte, maxScriptBytes+1)); err == nil {
		t.Error("a script beyond the bound was accepted")
	}
	// A script also runs if the disk accepts no writes.
	must(t, os.RemoveAll(dir))
	must(t, c.put(sumOf([]byte("late")), []byte("late")))
	if got, ok := c.await(sumOf([]byte("late")), nil, time.Hour); !ok || string(got) != "late" {
		t.Errorf("%q, %v", got, ok)
	}
	// The wait for code that does not arrive is bounded.
	if _, ok := c.await(sumOf([]byte("never")), nil, time.Millisecond); ok || len(c.awaited) != 0 {
		t.Errorf("%v, %d are awaited", ok, len(c.awaited))
	}
}
