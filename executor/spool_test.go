package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

func spoolResult(n int) wire.Result {
	return wire.Result{Instance: "i", BootID: "b", RunID: fmt.Sprint("r", n), Attempt: 1, Outcome: wire.Succeeded, Output: "line\nbreak"}
}

func spoolItem(r wire.Result) *pending {
	return &pending{result: r}
}

func resultsOf(left []*pending) (out []wire.Result) {
	for _, l := range left {
		out = append(out, l.result)
	}
	return out
}

func mustOpen(t *testing.T, dir string) (*spool, []*pending) {
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
	two := spoolItem(spoolResult(2))
	must(t, s.update([]*pending{spoolItem(spoolResult(1)), two}, nil))
	must(t, s.update([]*pending{spoolItem(spoolResult(3))}, []*pending{two}))
	if _, _, err := openSpool(dir, quietLogger()); !errors.Is(err, errSpoolLocked) {
		t.Errorf("opened twice: %v", err)
	}
	must(t, s.close())
	s, left = mustOpen(t, dir)
	if asJSON(resultsOf(left)) != asJSON([]wire.Result{spoolResult(1), spoolResult(3)}) {
		t.Errorf("left: %s", asJSON(resultsOf(left)))
	}
	must(t, s.close())
}

// TestSpoolSurvivesDamage cuts the file at every byte and corrupts lines in the middle.
func TestSpoolSurvivesDamage(t *testing.T) {
	one := appendPutLine(nil, &spoolItem(spoolResult(1)).result)
	two := appendPutLine(nil, &spoolItem(spoolResult(2)).result)
	three := appendPutLine(nil, &spoolItem(spoolResult(3)).result)
	load := func(data []byte) (n int, bad bool) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, spoolFile), data, 0o600))
		s, left := mustOpen(t, dir)
		defer s.close()
		must(t, s.update([]*pending{spoolItem(spoolResult(9))}, nil))
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
		t.Errorf("a corrupt line among others: %d results, set aside: %t", n, bad)
	}
	if n, bad := load([]byte("\x00\x00\n\n\xff")); n != 0 || !bad {
		t.Errorf("a file without valid lines: %d results, set aside: %t", n, bad)
	}
}

func TestSpoolIsRewritten(t *testing.T) {
	dir := t.TempDir()
	s, _ := mustOpen(t, dir)
	big := spoolResult(0)
	big.Output = strings.Repeat("x", MaxOutput)
	for n := range 3 * spoolSlack / MaxOutput {
		big.RunID = fmt.Sprint("r", n)
		item := spoolItem(big)
		must(t, s.update([]*pending{item}, nil))
		must(t, s.update(nil, []*pending{item}))
	}
	info, err := os.Stat(filepath.Join(dir, spoolFile))
	must(t, err)
	if info.Size() > spoolSlack+2*MaxOutput || info.Size() != s.size || s.liveBytes != 0 {
		t.Errorf("the file has %d bytes (%d counted), %d live", info.Size(), s.size, s.liveBytes)
	}
	must(t, s.close())
}

// TestSpoolWithoutDisk closes the file under the spool. The spool keeps new results in memory and writes them when the
// disk works again.
func TestSpoolWithoutDisk(t *testing.T) {
	dir := t.TempDir()
	s, _ := mustOpen(t, dir)
	must(t, s.file.Close())
	if err := s.update([]*pending{spoolItem(spoolResult(1))}, nil); err == nil || !s.broken {
		t.Fatalf("a write into a closed file: %v", err)
	}
	must(t, os.Mkdir(filepath.Join(dir, spoolNew), 0o700)) // makes a rewrite fail
	if err := s.repair(); err == nil {
		t.Fatal("the spool was repaired without a disk")
	}
	must(t, os.Remove(filepath.Join(dir, spoolNew)))
	must(t, s.repair())
	must(t, s.close())
	if s, left := mustOpen(t, dir); len(left) != 1 {
		t.Errorf("after the repair: %v", left)
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
	r.add(spoolItem(big))
	r.write()
	if r.trouble.Load() == nil {
		t.Error("not full")
	}
	r.settled([]wire.Ref{{RunID: "r1", Attempt: 1}})
	r.write()
	writeLater(r)
	if r.trouble.Load() != nil {
		t.Error("still full")
	}
	must(t, s.file.Close())
	r.add(spoolItem(spoolResult(2)))
	r.write()
	if _, ok := r.result(attemptKey{"r2", 1}); !ok || r.trouble.Load() == nil || unsent(r) != 1 {
		t.Error("a result that could not be written is lost, or offers are still accepted")
	}
}

// unsent returns the number of results that the stream has not acknowledged.
func unsent(r *reporter) int {
	_, n := r.left()
	return n
}

// TestSpoolErrorsSayWhatToDo verifies that an error of Run names the setting and leaves the prefix to the caller.
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

// TestResultsThatAreNowhere: a process whose disk fails and whose results are not settled ends with an error.
func TestResultsThatAreNowhere(t *testing.T) {
	e, err := New(Config{NATSURL: "nats://127.0.0.1:1", Group: "g", Instance: "i", SpoolDir: t.TempDir(), Logger: quietLogger()})
	must(t, err)
	for _, broken := range []bool{false, true} {
		_, s, left, err := findSpool(e.config.SpoolDir, "g", "i", quietLogger())
		must(t, err)
		b := e.newBoot("i", s, left)
		b.reports.written = func([]*pending) {}
		if broken {
			must(t, s.file.Close())
			must(t, os.Mkdir(filepath.Join(s.dir, spoolNew), 0o700))
		}
		b.reports.add(spoolItem(spoolResult(1)))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.run(ctx); broken != (err != nil) {
			t.Errorf("the disk fails: %v, and Run returned %v", broken, err)
		}
		if !broken {
			must(t, s.close())
		}
	}
}

// TestReporterKeepsTheNewest hands the same attempt back twice in one boot, in addition to a result of an earlier boot.
// Each boot keeps one result. Settling one boot's result keeps the other's, in memory and on disk.
func TestReporterKeepsTheNewest(t *testing.T) {
	dir := t.TempDir()
	s, _ := mustOpen(t, dir)
	result := func(boot, outcome string) wire.Result {
		r := spoolResult(1)
		r.BootID, r.Outcome = boot, outcome
		return r
	}
	key := attemptKey{"r1", 1}
	must(t, s.update([]*pending{spoolItem(result("a", wire.Unstarted))}, nil))
	must(t, s.close())
	s, left := mustOpen(t, dir)
	r := newReporter(s, left, 1<<20, quietLogger())
	r.written = func([]*pending) {}
	r.add(spoolItem(result("b", wire.Unstarted)))
	r.write()
	r.add(spoolItem(result("b", wire.Succeeded)))
	r.write()
	if res, ok := r.result(key); !ok || res.Outcome != wire.Succeeded || unsent(r) != 2 {
		t.Errorf("%+v, and %d unsent", res, unsent(r))
	}
	must(t, s.close())
	s, left = mustOpen(t, dir)
	if asJSON(resultsOf(left)) != asJSON([]wire.Result{result("a", wire.Unstarted), result("b", wire.Succeeded)}) {
		t.Errorf("on disk: %s", asJSON(resultsOf(left)))
	}
	r = newReporter(s, left, 1<<20, quietLogger())
	r.settled([]wire.Ref{{RunID: "r1", Attempt: 1, BootID: "b"}})
	r.write()
	if res, ok := r.result(key); !ok || res.BootID != "a" || len(s.live) != 1 {
		t.Errorf("the earlier boot's: %+v, %d lines", res, len(s.live))
	}
	r.settled([]wire.Ref{{RunID: "r1", Attempt: 1}})
	r.write()
	must(t, s.close())
	if s, left = mustOpen(t, dir); len(left) != 0 || s.liveBytes != 0 {
		t.Errorf("all results are settled, but on disk is %s", asJSON(resultsOf(left)))
	}
	must(t, s.close())
}

// TestRepeats verifies that an unsettled result is sent again after a while, but not while earlier results are being
// settled.
func TestRepeats(t *testing.T) {
	for what, c := range map[string]struct {
		acked   []time.Duration // when the stream acknowledged result n
		settled []time.Duration // when result n was settled; 0 means never
		until   time.Duration
		again   []int // results that are sent again by then
	}{
		"nothing is settled":           {acked: []time.Duration{0, 3 * time.Second}, until: 6 * time.Second, again: []int{1}},
		"its turn is still to come":    {acked: []time.Duration{0, time.Second}, settled: []time.Duration{7 * time.Second}, until: 11 * time.Second},
		"no more is settled":           {acked: []time.Duration{0, time.Second}, settled: []time.Duration{7 * time.Second}, until: 13 * time.Second, again: []int{2}},
		"a later one is settled":       {acked: []time.Duration{0, 3 * time.Second}, settled: []time.Duration{0, 4 * time.Second}, until: 6 * time.Second, again: []int{1}},
		"one from about the same time": {acked: []time.Duration{0, time.Second}, settled: []time.Duration{0, 4 * time.Second}, until: 8 * time.Second},
		"its turn does not come": {
			acked:   []time.Duration{0, 0, 0, time.Second},
			settled: []time.Duration{55 * time.Second, 58 * time.Second, 61 * time.Second}, until: 62 * time.Second, again: []int{4},
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := mustOpen(t, t.TempDir())
				defer s.close()
				r := newReporter(s, nil, 1<<20, quietLogger())
				r.written = func([]*pending) {}
				r.ready = func() (bool, int64) { return true, 1 << 20 }
				r.publish = func(context.Context, [][]byte) error { return nil }
				r.heard = time.Now() // when earlier results were settled
				begin := time.Now()
				for ; time.Since(begin) < c.until; time.Sleep(time.Second) {
					now := time.Since(begin)
					for i, at := range c.acked {
						if at == now {
							r.add(spoolItem(spoolResult(i + 1)))
							r.write()
							taken, batch := r.take()
							r.send(t.Context(), taken, batch)
						}
					}
					for i, at := range c.settled {
						if at != 0 && at == now {
							r.settled([]wire.Ref{{RunID: fmt.Sprintf("r%d", i+1), Attempt: 1}})
						}
					}
				}
				r.repeat(time.Now())
				var again []int
				for i := range c.acked {
					if p := r.pending[attemptKey{fmt.Sprintf("r%d", i+1), 1}]; p != nil && p.queued {
						again = append(again, i+1)
					}
				}
				if !slices.Equal(again, c.again) {
					t.Errorf("sent again: %v, want %v", again, c.again)
				}
			})
		})
	}
}
