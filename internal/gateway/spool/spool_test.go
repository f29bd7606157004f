package spool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/belfryhq/belfry/internal/store/gateway"
)

func open(t *testing.T, dir string) *Spool {
	t.Helper()
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func batch(id int64) Batch {
	return Batch{Groups: []string{"g"}, Ends: []gateway.End{{LogID: id, Result: gateway.Result{Outcome: "succeeded", Output: "line\nother \u2028"}, Killed: id%2 == 0}}}
}

func appendAll(t *testing.T, s *Spool, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		if err := s.Append(batch(id)); err != nil {
			t.Fatal(err)
		}
	}
}

// replay returns the log ids that Replay passes on, and its error. It fails at the log id fault.
func replay(t *testing.T, s *Spool, fault int64) (ids []int64, err error) {
	t.Helper()
	err = s.Replay(t.Context(), func(_ context.Context, b Batch) error {
		id := b.Ends[0].LogID
		if id == fault {
			return errors.New("away")
		}
		if fmt.Sprint(b) != fmt.Sprint(batch(id)) {
			t.Errorf("a batch has become %+v", b)
		}
		ids = append(ids, id)
		return nil
	})
	return ids, err
}

func TestReplay(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if !s.Empty() {
		t.Error("a new spool has batches")
	}
	appendAll(t, s, 1, 2, 3)
	if _, err := Open(dir, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrLocked) {
		t.Errorf("a second process: %v", err)
	}
	s.Close()

	s = open(t, dir) // the next process
	appendAll(t, s, 4)
	if ids, err := replay(t, s, 3); err == nil || !slices.Equal(ids, []int64{1, 2}) || s.Empty() {
		t.Errorf("passed on %v, %v", ids, err)
	}
	appendAll(t, s, 5)
	if ids, err := replay(t, s, 0); err != nil || !slices.Equal(ids, []int64{1, 2, 3, 4, 5}) || !s.Empty() {
		t.Errorf("passed on %v, %v", ids, err)
	}
	appendAll(t, s, 6)
	if ids, err := replay(t, s, 0); err != nil || !slices.Equal(ids, []int64{6}) || s.total != 0 {
		t.Errorf("passed on %v, %v, %d bytes", ids, err, s.total)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.callbacks")); err != nil || len(left) != 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// A batch that is appended during a replay is passed on once, and after those before it.
func TestAppendDuringReplay(t *testing.T) {
	s := open(t, t.TempDir())
	var appending sync.WaitGroup
	appendAll(t, s, 0)
	appending.Go(func() {
		for id := range int64(100) {
			if err := s.Append(batch(id + 1)); err != nil {
				t.Error(err)
			}
		}
	})
	var got []int64
	for len(got) < 101 && !t.Failed() {
		ids, err := replay(t, s, -1)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ids...)
	}
	appending.Wait()
	for i, id := range got {
		if id != int64(i) {
			t.Fatalf("passed on %v", got)
		}
	}
}

func TestDamagedLines(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	appendAll(t, s, 1, 2)
	name := s.path(1)
	s.Close()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "\n")
	if err := os.WriteFile(name, []byte("x\n"+strings.Replace(first, "succeeded", "failed   ", 1)+"\n"+second+"0000"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	appendAll(t, s, 3)
	if ids, err := replay(t, s, 0); err != nil || !slices.Equal(ids, []int64{2, 3}) {
		t.Errorf("passed on %v, %v", ids, err)
	}
	damaged, err := os.ReadFile(filepath.Join(dir, "damaged"))
	if err != nil || !strings.HasPrefix(string(damaged), "x\n") || !strings.Contains(string(damaged), "failed   ") || !strings.HasSuffix(string(damaged), "0000") {
		t.Errorf("set aside: %q, %v", damaged, err)
	}
}

func TestFull(t *testing.T) {
	s := open(t, t.TempDir())
	s.most = 400
	var stored []int64
	for id := int64(1); ; id++ {
		err := s.Append(batch(id))
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, id)
	}
	if ids, err := replay(t, s, 0); err != nil || len(stored) == 0 || !slices.Equal(ids, stored) {
		t.Errorf("passed on %v of %v, %v", ids, stored, err)
	}
	appendAll(t, s, 99)
}

// After a failed write, the next batch goes to another file, so that the half line spoils only itself.
func TestFailedWrite(t *testing.T) {
	s := open(t, t.TempDir())
	appendAll(t, s, 1)
	if _, err := s.out.WriteString("0000 half"); err != nil {
		t.Fatal(err)
	}
	s.out.Close()
	if err := s.Append(batch(2)); err == nil {
		t.Fatal("written to a closed file")
	}
	appendAll(t, s, 3)
	if ids, err := replay(t, s, 0); err != nil || !slices.Equal(ids, []int64{1, 3}) {
		t.Errorf("passed on %v, %v", ids, err)
	}
}
