// Package spool keeps batches of callbacks on disk while Postgres is away.
//
// Append returns after a batch is on disk, so that the gateway can answer that the callbacks are stored. Replay passes the batches on in the order in
// which they were appended. A batch is removed after it was passed on, together with the other batches of its file. If the process dies in between, a later
// process passes them on again; storing a callback twice changes nothing.
//
// A batch is one line with a checksum. A line that is damaged, for example because the process died while it was written, is set aside in
// the file "damaged". Its executor received no answer, or the disk has lost it. The spool has a limit, beyond which it refuses batches, so that executors
// keep their callbacks. One process at a time may use a directory.
package spool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/belfryhq/belfry/internal/store/gateway"
)

// Batch is what one caller has reported.
type Batch struct {
	Groups []string      `json:"groups"` // for which the caller may speak
	Ends   []gateway.End `json:"ends"`
}

// The limits of a spool, in bytes.
const (
	maxSize = 1 << 30
	maxFile = 16 << 20 // then the next batch begins another file
)

// ErrFull means that the spool has reached its limit.
var ErrFull = errors.New("the spool of callbacks is full")

// ErrLocked means that another process uses the directory.
var ErrLocked = errors.New("another process uses the spool of callbacks")

// Spool is safe for concurrent use.
type Spool struct {
	dir  string
	log  *slog.Logger
	lock io.Closer
	most int64

	replay sync.Mutex // held during Replay

	mu    sync.Mutex
	files []segment // in the order of their batches
	last  int64     // the number of the newest file that ever existed
	out   *os.File  // the newest file, if batches may be appended to it; nil: the next batch begins another one
	total int64     // of all files
}

// segment is a file of batches.
type segment struct {
	number int64
	size   int64
}

// Open creates the directory if needed, locks it, and finds the batches of earlier processes. If another process holds the lock, the error wraps
// ErrLocked.
func Open(dir string, log *slog.Logger) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the spool of callbacks: %w", err)
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	s := &Spool{dir: dir, log: log, lock: lock, most: maxSize}
	if err := s.find(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("read the spool of callbacks: %w", err)
	}
	return s, nil
}

// find lists the files.
func (s *Spool) find() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		var n int64
		if _, err := fmt.Sscanf(e.Name(), "%d.callbacks", &n); err != nil {
			continue // the lock, damaged lines
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		s.files = append(s.files, segment{n, info.Size()})
		s.total += info.Size()
		s.last = max(s.last, n)
	}
	slices.SortFunc(s.files, func(a, b segment) int { return int(a.number - b.number) })
	return nil
}

// Close unlocks the directory. Batches stay on disk.
func (s *Spool) Close() error {
	s.replay.Lock()
	defer s.replay.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seal()
	return s.lock.Close()
}

// Empty reports whether there are no batches. It becomes true after the last batch was passed on.
func (s *Spool) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files) == 0
}

// Append stores a batch, and returns after it is on disk. The error is ErrFull if there is no room.
func (s *Spool) Append(b Batch) error {
	text, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("encode callbacks: %w", err)
	}
	line := fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(text), text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total+int64(len(line)) > s.most {
		return ErrFull
	}
	if err := s.write(line); err != nil {
		s.seal() // the file may end with a part of the line
		return fmt.Errorf("write callbacks to disk: %w", err)
	}
	return nil
}

func (s *Spool) write(line []byte) error {
	if s.out == nil {
		if err := s.create(); err != nil {
			return err
		}
	}
	n, err := s.out.Write(line)
	f := &s.files[len(s.files)-1]
	f.size += int64(n)
	s.total += int64(n)
	if err != nil {
		return err
	}
	if err := s.out.Sync(); err != nil {
		return err
	}
	if f.size >= maxFile {
		s.seal()
	}
	return nil
}

// create begins a file.
func (s *Spool) create() error {
	out, err := os.OpenFile(s.path(s.last+1), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	s.last++
	s.out, s.files = out, append(s.files, segment{number: s.last})
	return syncDir(s.dir)
}

// seal ends the newest file.
func (s *Spool) seal() {
	if s.out != nil {
		s.out.Close()
		s.out = nil
	}
}

func (s *Spool) path(number int64) string {
	return filepath.Join(s.dir, fmt.Sprintf("%016d.callbacks", number))
}

// Replay passes the batches to store, the oldest first, until there are none. It stops at the first error of store, and returns it; the next Replay
// continues with the first batch of that file.
func (s *Spool) Replay(ctx context.Context, store func(context.Context, Batch) error) error {
	s.replay.Lock()
	defer s.replay.Unlock()
	for {
		s.mu.Lock()
		if len(s.files) == 0 {
			s.mu.Unlock()
			return nil
		}
		f := s.files[0]
		if len(s.files) == 1 {
			s.seal() // later batches go to another file
		}
		s.mu.Unlock()
		if err := s.pass(ctx, f, store); err != nil {
			return err
		}
		if err := s.remove(f); err != nil {
			return err
		}
	}
}

// pass passes on the batches of a file.
func (s *Spool) pass(ctx context.Context, f segment, store func(context.Context, Batch) error) error {
	file, err := os.Open(s.path(f.number))
	if err != nil {
		return fmt.Errorf("read the spool of callbacks: %w", err)
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			if b, ok := parse(line); !ok {
				s.setAside(ctx, line)
			} else if err := store(ctx, b); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the spool of callbacks: %w", err)
		}
	}
}

func parse(line []byte) (b Batch, ok bool) {
	line, whole := bytes.CutSuffix(line, []byte("\n"))
	if !whole || len(line) < 9 {
		return b, false
	}
	text := line[9:]
	if fmt.Sprintf("%08x ", crc32.ChecksumIEEE(text)) != string(line[:9]) {
		return b, false
	}
	return b, json.Unmarshal(text, &b) == nil
}

// setAside keeps a damaged line for people.
func (s *Spool) setAside(ctx context.Context, line []byte) {
	file := filepath.Join(s.dir, "damaged")
	s.log.WarnContext(ctx, "a line in the spool of callbacks is damaged, setting it aside", "file", file, "bytes", len(line))
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = out.Write(line)
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		s.log.WarnContext(ctx, "cannot write a damaged line of the spool of callbacks, dropping it", "file", file, "err", err)
	}
}

// remove deletes the oldest file.
func (s *Spool) remove(f segment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Remove(s.path(f.number)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove callbacks that are stored: %w", err)
	}
	s.total -= s.files[0].size
	s.files = s.files[1:]
	return nil
}
