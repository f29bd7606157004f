package executor

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

func TestFileDescriptors(t *testing.T) {
	counts := func(open, limit int) func() (int, int, bool) {
		return func() (int, int, bool) { return open, limit, true }
	}
	unknown := func() (int, int, bool) { return 0, 0, false }
	for _, test := range []struct {
		name   string
		opened error
		count  func() (int, int, bool)
		out    bool // before
		want   bool
	}{
		{"enough", nil, counts(48, 64), false, false},
		{"one too few", nil, counts(49, 64), false, true},
		{"not enough to return", nil, counts(45, 64), true, true},
		{"enough to return", nil, counts(44, 64), true, false},
		{"none, by the process's limit", &os.PathError{Err: syscall.EMFILE}, unknown, false, true},
		{"none, by the system's limit", &os.PathError{Err: syscall.ENFILE}, counts(10, 64), false, true},
		{"unknown number, a file can be opened", nil, unknown, true, false},
		{"no such device", os.ErrNotExist, counts(10, 64), false, false},
	} {
		got := judgeFiles(test.opened, test.count, test.out)
		if (got != nil) != test.want || got != nil && got.Reason != wire.UnfitOutOfFiles {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

func TestUnfitMessageIsBounded(t *testing.T) {
	u := newUnfit("r", strings.Repeat("é", wire.MaxUnfitMessage))
	if len(u.Message) > wire.MaxUnfitMessage || !strings.HasPrefix(u.Message, "éé") || strings.ContainsRune(u.Message, '�') {
		t.Errorf("%q", u.Message)
	}
}

// An instance without results to write notices that its disk is full, and returns to service when there is room.
func TestProbeFindsAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("NOT COVERED: this system has no /dev/full")
	}
	defer full.Close()
	s, _ := mustOpen(t, t.TempDir())
	r := newReporter(s, nil, 1000, quietLogger())
	r.written = func([]*pending) {}
	begin := time.Now()
	r.probe(begin)
	r.write()
	if u := r.trouble.Load(); u != nil {
		t.Fatalf("unfit with an empty spool: %+v", u)
	}
	room := s.trial
	s.trial = full
	r.probe(begin.Add(wire.HeartbeatEvery))
	r.write() // a write does not hide the result of the probe
	if u := r.trouble.Load(); u == nil || u.Reason != wire.UnfitSpoolFull || u.Message == "" {
		t.Fatalf("with a full disk: %+v", u)
	}
	s.trial = room
	r.probe(begin.Add(2 * wire.HeartbeatEvery))
	r.write()
	if r.trouble.Load() == nil {
		t.Error("the trouble is over at once; the room may be taken again")
	}
	writeLater(r)
	if u := r.trouble.Load(); u != nil {
		t.Errorf("with room again: %+v", u)
	}
	if info, err := room.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("the probe takes room that results need: %v, %v", info, err)
	}
	must(t, s.close())
}

func TestUnwritableSpool(t *testing.T) {
	s, _ := mustOpen(t, t.TempDir())
	r := newReporter(s, nil, 1000, quietLogger())
	r.written = func([]*pending) {}
	must(t, s.file.Close())
	r.add(spoolItem(spoolResult(1)))
	r.write()
	first := r.trouble.Load()
	if first == nil || first.Reason != wire.UnfitSpoolUnwritable || !strings.Contains(first.Message, "file already closed") {
		t.Fatalf("%+v", first)
	}
	r.write()
	if u := r.trouble.Load(); u != first {
		t.Errorf("a later error replaced the first one: %+v", u)
	}
	must(t, s.repair())
	r.write()
	writeLater(r)
	if u := r.trouble.Load(); u != nil {
		t.Errorf("after the repair: %+v", u)
	}
	must(t, s.close())
}

// writeLater writes after the time for which a spool must be well until its trouble is over.
func writeLater(r *reporter) {
	r.wellSince = r.wellSince.Add(-wire.HeartbeatEvery)
	r.write()
}

// A process without file descriptors cannot rewrite the spool. It goes on appending to the old file.
func TestAppendWithoutFileDescriptors(t *testing.T) {
	dir := t.TempDir()
	s, _ := mustOpen(t, dir)
	s.size = 2 * spoolSlack // as if most of the file were dead
	withoutFiles(t, func() {
		if err := openFile(); !errors.Is(err, syscall.EMFILE) {
			t.Errorf("the test could open a file: %v", err)
		}
		if err := s.update([]*pending{spoolItem(spoolResult(1))}, nil); err != nil {
			t.Errorf("update: %v", err)
		}
		if err := s.probe(); err != nil {
			t.Errorf("probe: %v", err)
		}
	})
	must(t, s.update([]*pending{spoolItem(spoolResult(2))}, nil))
	if s.size > spoolSlack {
		t.Error("the spool was not rewritten afterwards")
	}
	must(t, s.close())
	s, left := mustOpen(t, dir)
	if len(left) != 2 {
		t.Errorf("%d results are left, want 2", len(left))
	}
	must(t, s.close())
}

// An unfit instance refuses offers, because a dispatcher of an older release does not know the heartbeat's field. Its
// heartbeat names the trouble, its answers do not say that it drains, and it accepts offers again afterwards.
func TestUnfitRefusesOffers(t *testing.T) {
	now := instant{wall: epoch}
	x := newStillEngine(&now)
	x.handlers["h"] = newRegistered(HandlerFunc(func(context.Context, Run) error { return nil }))
	x.nextBeat()
	offer := func(bind int) wire.Verdict {
		at := wire.Time{Time: now.wall}
		ans := x.answerOffers(&wire.Offers{V: 1, BootID: x.boot, Beat: 1, Offers: []wire.Offer{{
			RunID: "r", Attempt: 1, Bind: bind, BoundAt: at, Now: at, DueAt: wire.Time{Time: now.wall.Add(time.Hour)}, Handler: "h",
		}}}, 1, now)
		if ans.Load.Draining {
			t.Error("it drains")
		}
		return ans.Verdicts[0]
	}
	x.files.unfit.Store(newUnfit(wire.UnfitOutOfFiles, "60 of 64"))
	if v := offer(1); v.Verdict != wire.Refused || v.Reason != wire.RefusedFull {
		t.Errorf("out of files: %+v", v)
	}
	x.files.unfit.Store(nil)
	x.reports.trouble.Store(newUnfit(wire.UnfitSpoolFull, "no space"))
	if v := offer(2); v.Verdict != wire.Refused || v.Reason != wire.RefusedFull {
		t.Errorf("spool full: %+v", v)
	}
	x.reports.trouble.Store(nil)
	if v := offer(2); v.Verdict != wire.Refused {
		t.Errorf("the same offer again: %+v", v)
	}
	if v := offer(3); v.Verdict != wire.Accepted {
		t.Errorf("the trouble is over: %+v", v)
	}
}
