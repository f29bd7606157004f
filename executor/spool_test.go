package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/wire"
)

func spoolResult(n int) wire.Result {
	return wire.Result{Instance: "i", BootID: "b", RunID: fmt.Sprint("r", n), Attempt: 1, Outcome: wire.Succeeded, Output: "line\nbreak"}
}

func spoolItem(r wire.Result) *pending {
	return &pending{key: keyOf(&r), json: wire.AppendResult(nil, &r)}
}

func mustOpen(t *testing.T, dir string) (*spool, []wire.Result) {
	t.Helper()
	s, left, err := openSpool(dir, quietLogger())
	must(t, err)
	return s, left
}

func TestSpoolKeepsWhatIsNotSettled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "g.i")
	s, left := mustOpen(t, dir)
	if len(left) != 0 {
		t.Fatalf("a new spool holds %v", left)
	}
	must(t, s.add([]*pending{spoolItem(spoolResult(1)), spoolItem(spoolResult(2))}))
	must(t, s.add([]*pending{spoolItem(spoolResult(3))}))
	two := spoolResult(2)
	must(t, s.remove([]spoolKey{keyOf(&two)}))
	if _, _, err := openSpool(dir, quietLogger()); !errors.Is(err, errSpoolLocked) {
		t.Errorf("opened twice: %v", err)
	}
	must(t, s.close())
	s, left = mustOpen(t, dir)
	if asJSON(left) != asJSON([]wire.Result{spoolResult(1), spoolResult(3)}) {
		t.Errorf("left: %s", asJSON(left))
	}
	must(t, s.close())
}

// TestSpoolSurvivesDamage cuts the file at every byte, and spoils lines in its midst.
func TestSpoolSurvivesDamage(t *testing.T) {
	one := appendPutLine(nil, spoolItem(spoolResult(1)).json)
	two := appendPutLine(nil, spoolItem(spoolResult(2)).json)
	three := appendPutLine(nil, spoolItem(spoolResult(3)).json)
	load := func(data []byte) (n int, bad bool) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, spoolFile), data, 0o600))
		s, left := mustOpen(t, dir)
		defer s.close()
		must(t, s.add([]*pending{spoolItem(spoolResult(9))}))
		aside, err := filepath.Glob(filepath.Join(dir, spoolFile+".bad-*"))
		must(t, err)
		return len(left), len(aside) > 0
	}
	for cut := range two {
		n, bad := load(append(append([]byte{}, one...), two[:cut]...))
		if wantBad := cut > 0 && cut < len(two)-1; (n != 1 || bad != wantBad) && cut != len(two)-1 {
			t.Fatalf("cut at byte %d: %d results, set aside: %t", cut, n, bad)
		}
	}
	spoilt := []byte(strings.Replace(string(two), "r2", "r7", 1))
	if n, bad := load(append(append(append([]byte{}, one...), spoilt...), three...)); n != 2 || !bad {
		t.Errorf("a spoilt line among others: %d results, set aside: %t", n, bad)
	}
	if n, bad := load([]byte("\x00\x00\n\n\xff")); n != 0 || !bad {
		t.Errorf("rubbish: %d results, set aside: %t", n, bad)
	}
}

func TestSpoolIsRewritten(t *testing.T) {
	dir := t.TempDir()
	s, _ := mustOpen(t, dir)
	big := spoolResult(0)
	big.Output = strings.Repeat("x", MaxOutput)
	for n := range 3 * spoolSlack / MaxOutput {
		big.RunID = fmt.Sprint("r", n)
		must(t, s.add([]*pending{spoolItem(big)}))
		must(t, s.remove([]spoolKey{keyOf(&big)}))
	}
	info, err := os.Stat(filepath.Join(dir, spoolFile))
	must(t, err)
	if info.Size() > spoolSlack+2*MaxOutput || info.Size() != s.size || s.liveBytes != 0 {
		t.Errorf("the file has %d bytes (%d counted), %d live", info.Size(), s.size, s.liveBytes)
	}
	must(t, s.close())
}

// TestSpoolWithoutDisk closes the file under the spool: what comes then is kept in memory and written when the disk
// takes it again.
func TestSpoolWithoutDisk(t *testing.T) {
	dir := t.TempDir()
	s, _ := mustOpen(t, dir)
	must(t, s.file.Close())
	if err := s.add([]*pending{spoolItem(spoolResult(1))}); err == nil || !s.broken {
		t.Fatalf("a write into a closed file: %v", err)
	}
	must(t, os.Mkdir(filepath.Join(dir, spoolNew), 0o700)) // so that a rewrite fails
	if err := s.mend(); err == nil {
		t.Fatal("mended without a disk")
	}
	must(t, os.Remove(filepath.Join(dir, spoolNew)))
	must(t, s.mend())
	must(t, s.close())
	if s, left := mustOpen(t, dir); len(left) != 1 {
		t.Errorf("after mending: %v", left)
	} else {
		must(t, s.close())
	}
}

func TestReporterRefusesWhenFull(t *testing.T) {
	s, _ := mustOpen(t, t.TempDir())
	defer s.close()
	r := newReporter(s, nil, 1000, quietLogger())
	r.written = func([]*pending) {}
	big := spoolResult(1)
	big.Output = strings.Repeat("x", 1000)
	r.add(big)
	r.write()
	if !r.full.Load() {
		t.Error("not full")
	}
	r.settled([]wire.Ref{{RunID: "r1", Attempt: 1}})
	r.write()
	if r.full.Load() {
		t.Error("still full")
	}
	must(t, s.file.Close())
	r.add(spoolResult(2))
	r.write()
	if _, ok := r.result(attemptKey{"r2", 1}, "b"); !ok || !r.full.Load() || r.unsent() != 1 {
		t.Error("a result that the disk did not take is not kept, or offers are still taken")
	}
}

// TestSpoolErrorsSayWhatToDo shows that an error of Run names the setting, and leaves its prefix to the caller.
func TestSpoolErrorsSayWhatToDo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	locked := t.TempDir()
	s, _ := mustOpen(t, filepath.Join(locked, "g.i"))
	defer func() { must(t, s.close()) }()
	for dir, remedy := range map[string]string{file: "--spool-dir", locked: "--instance"} {
		e, err := New(Config{NATSURL: "nats://127.0.0.1:1", Group: "g", Instance: "i", SpoolDir: dir, Logger: quietLogger()})
		must(t, err)
		err = e.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), remedy) ||
			strings.HasPrefix(err.Error(), "executor: ") {
			t.Errorf("spool in %s: %v", dir, err)
		}
	}
}
