package executor

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// The files of a spool.
const (
	spoolFile = "results"
	spoolLock = "lock"
	spoolNew  = "results.new" // an unfinished rewrite
	spoolTry  = "probe"       // written by probe; empty otherwise
)

// spoolSlack is the size of dead lines, in bytes, that the file may hold in addition to the size of its live lines
// before it is rewritten.
const spoolSlack = 4 << 20

var (
	errSpoolLocked = errors.New("another process holds the spool")
	errSpoolBroken = errors.New("an earlier write to the spool failed")
)

// spoolKey identifies a result in the file. It includes the boot, because one boot can hand an attempt back and the
// next boot can run it.
type spoolKey struct {
	attemptKey
	boot string
}

// spool keeps unsettled results on disk. It is one file of lines. Each line has a checksum and a record: a result, or
// the name of a settled result. If a line's checksum is wrong, for example because the process died while writing it,
// the line is moved to another file and the other lines stay valid. The file is rewritten when about half of it is
// dead. Only the goroutine that owns the spool may call its methods.
type spool struct {
	dir  string
	lock io.Closer
	log  *slog.Logger
	file *os.File
	size int64 // bytes of the file that are known to be valid

	live      []*line // the lines of unsettled results, in no order
	liveBytes int64
	broken    bool // a write failed; the file must be rewritten before the next append

	trial     *os.File // the file of probe; nil before the first one
	trialData []byte
}

// line is a live line of the file.
type line struct {
	text  []byte // nil before the line is written and after it is dropped
	place int    // index in live
}

// record is the content of a line. Exactly one field is set.
type record struct {
	Put *wire.Result `json:"put,omitempty"`
	Del *wire.Ref    `json:"del,omitempty"`
}

// openSpool creates the directory if needed, locks it, and reads the results of earlier processes. If another process
// holds the lock, it returns errSpoolLocked.
func openSpool(dir string, log *slog.Logger) (*spool, []*pending, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the spool: %w", err)
	}
	lock, err := lockFile(filepath.Join(dir, spoolLock))
	if err != nil {
		return nil, nil, fmt.Errorf("lock the spool %s: %w", dir, err)
	}
	s := &spool{dir: dir, lock: lock, log: log}
	results, err := s.load()
	if err == nil {
		err = s.rewrite()
	}
	if err != nil {
		lock.Close()
		return nil, nil, fmt.Errorf("open the spool %s: %w", dir, err)
	}
	return s, results, nil
}

// load reads the file. It sets invalid lines aside.
func (s *spool) load() ([]*pending, error) {
	f, err := os.Open(filepath.Join(s.dir, spoolFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	results := make(map[spoolKey]*pending)
	var order []spoolKey
	var bad bytes.Buffer
	in := bufio.NewReaderSize(f, 1<<16)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, err
		}
		if len(text) > 0 {
			rec, ok := parseLine(text)
			switch {
			case !ok:
				bad.Write(text)
			case rec.Put != nil:
				key := spoolKey{attemptKey{rec.Put.RunID, rec.Put.Attempt}, rec.Put.BootID}
				if old, twice := results[key]; twice {
					s.drop(&old.line)
				} else {
					order = append(order, key)
				}
				p := &pending{result: *rec.Put, json: wire.AppendResult(nil, rec.Put)}
				s.keep(&p.line, text)
				results[key] = p
			case rec.Del != nil:
				key := spoolKey{attemptKey{rec.Del.RunID, rec.Del.Attempt}, rec.Del.BootID}
				if p := results[key]; p != nil {
					s.drop(&p.line)
					delete(results, key)
				}
			}
		}
		if err == io.EOF {
			break
		}
	}
	s.setAside(bad.Bytes())
	out := make([]*pending, 0, len(results))
	for _, key := range order {
		if p := results[key]; p != nil {
			out = append(out, p)
			delete(results, key)
		}
	}
	return out, nil
}

// setAside saves invalid lines for inspection. If that fails, the spool continues without it.
func (s *spool) setAside(bad []byte) {
	if len(bad) == 0 {
		return
	}
	name := filepath.Join(s.dir, spoolFile+".bad-"+time.Now().UTC().Format("20060102T150405.000"))
	err := os.WriteFile(name, bad, 0o600)
	s.log.Warn("the spool has lines that are malformed or damaged, they are moved to a file", "file", name, "bytes", len(bad), "err", err)
}

// update writes new results and records the settled ones. It returns when the new results are on disk. It does not sync
// if there are only settled results: if a crash brings one back, it is sent and settled again. After an error, the
// results stay in memory, and the spool is rewritten when the disk works again.
func (s *spool) update(results, settled []*pending) error {
	if len(results)+len(settled) == 0 {
		return nil
	}
	size := 0
	for _, p := range results {
		r := &p.result
		size += putBytes + len(r.Instance) + len(r.BootID) + len(r.RunID) + len(r.Reason) + len(r.Message) + len(r.Output)
	}
	for _, p := range settled {
		size += len(p.result.RunID) + len(p.result.BootID) + len(`00000000 {"del":{"run_id":"","attempt":1000,"boot_id":""}}`+"\n")
	}
	lines := make([]byte, 0, size)
	for _, p := range results {
		begin := len(lines)
		lines = appendPutLine(lines, &p.result)
		s.keep(&p.line, lines[begin:len(lines):len(lines)])
		p.json = putJSON(p.line.text)
	}
	for _, p := range settled {
		// A replaced result has the same key as its replacement, so a deletion would also remove the replacement.
		if s.drop(&p.line) && !p.replaced {
			lines = appendDelLine(lines, &p.result)
		}
	}
	return s.append(lines, len(results) > 0)
}

// repair rewrites the file if an earlier write failed.
func (s *spool) repair() error {
	if !s.broken {
		return nil
	}
	return s.rewrite()
}

func (s *spool) append(lines []byte, sync bool) error {
	switch {
	case s.broken:
		return errSpoolBroken // the file is rewritten later
	case s.size > 2*s.liveBytes+spoolSlack:
		err := s.rewrite()
		if s.file == nil || !outOfFiles(err) {
			return err
		}
		// The process has no file descriptor for the new file. The old file is intact and can take more lines.
		s.broken = false
	}
	_, err := s.file.Write(lines)
	if err == nil && sync {
		err = s.file.Sync()
	}
	if err != nil {
		s.broken = true // after a failed write or sync, the content of the file is unknown
		return fmt.Errorf("write the spool: %w", err)
	}
	s.size += int64(len(lines))
	return nil
}

// rewrite replaces the file with one that holds only the live lines.
func (s *spool) rewrite() (err error) {
	s.broken = true
	name := filepath.Join(s.dir, spoolNew)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("rewrite the spool: %w", err)
	}
	defer func() {
		f.Close() // a second close is harmless
		if err != nil {
			_ = os.Remove(name) // an unfinished file would take the room that the next attempt needs
			err = fmt.Errorf("rewrite the spool: %w", err)
		}
	}()
	out := bufio.NewWriterSize(f, 1<<16)
	var size int64
	for _, line := range s.live {
		n, _ := out.Write(line.text) // Flush returns the first error of a write
		size += int64(n)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if s.file != nil {
		s.file.Close() // both files are closed before the rename because some systems require it
		s.file = nil
	}
	target := filepath.Join(s.dir, spoolFile)
	if err := os.Rename(name, target); err != nil {
		return err
	}
	if err := syncDir(s.dir); err != nil {
		return err
	}
	if s.file, err = os.OpenFile(target, os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	s.size, s.broken = size, false
	return nil
}

// probeBytes is the size of a large result on disk.
const probeBytes = 128 << 10

// probe reports whether the spool's file system takes a large result. It writes to a separate file and truncates it
// at once, without a sync, so that the data usually never reaches the disk. The file stays open, because a process that
// is out of file descriptors must not take its disk for full.
func (s *spool) probe() (err error) {
	if s.trial == nil {
		if s.trial, err = os.OpenFile(filepath.Join(s.dir, spoolTry), os.O_WRONLY|os.O_CREATE, 0o600); err != nil {
			s.trial = nil
			if outOfFiles(err) {
				return nil
			}
			return fmt.Errorf("probe the spool: %w", err)
		}
		s.trialData = make([]byte, probeBytes)
		rand.Read(s.trialData) // a file system that compresses would store zeros without taking room
	}
	_, err = s.trial.WriteAt(s.trialData, 0)
	if err = errors.Join(err, s.trial.Truncate(0)); err != nil {
		return fmt.Errorf("probe the spool: %w", err)
	}
	return nil
}

// close closes the file and releases the lock.
func (s *spool) close() error {
	var err error
	if s.trial != nil {
		s.trial.Close() // holds no data
	}
	if s.file != nil {
		err = s.file.Close()
	}
	return errors.Join(err, s.lock.Close())
}

func (s *spool) keep(l *line, text []byte) {
	l.text, l.place = text, len(s.live)
	s.live = append(s.live, l)
	s.liveBytes += int64(len(text))
}

// drop removes a line and reports whether it was live.
func (s *spool) drop(l *line) bool {
	if l.text == nil {
		return false
	}
	last := s.live[len(s.live)-1]
	s.live[l.place], last.place = last, l.place
	s.live[len(s.live)-1] = nil
	s.live = s.live[:len(s.live)-1]
	s.liveBytes -= int64(len(l.text))
	l.text = nil
	return true
}

// A line is a CRC-32C checksum of eight hexadecimal digits, a space, a record in JSON, and a line break.
const sumDigits = 8

const (
	putBegin = blankSum + `{"put":`
	putEnd   = "}\n"
	// putBytes is the size of a line with a result, without the result's strings.
	putBytes = 280
)

// appendPutLine appends the line of a new result.
func appendPutLine(b []byte, r *wire.Result) []byte {
	begin := len(b)
	b = append(b, putBegin...)
	return sealLine(append(wire.AppendResult(b, r), '}'), begin)
}

// putJSON returns the result's JSON from a line that appendPutLine wrote.
func putJSON(line []byte) []byte { return line[len(putBegin) : len(line)-len(putEnd)] }

// appendDelLine appends the line that marks a result as settled.
func appendDelLine(b []byte, r *wire.Result) []byte {
	begin := len(b)
	b = append(append(b, blankSum...), `{"del":`...)
	b = wire.AppendRef(b, &wire.Ref{RunID: r.RunID, Attempt: r.Attempt, BootID: r.BootID})
	return sealLine(append(b, '}'), begin)
}

const blankSum = "00000000 "

// sealLine ends the line that begins at index begin and fills in its checksum.
func sealLine(b []byte, begin int) []byte {
	const digits = "0123456789abcdef"
	sum := crc32.Checksum(b[begin+len(blankSum):], castagnoli())
	for i := sumDigits - 1; i >= 0; i-- {
		b[begin+i] = digits[sum&0xf]
		sum >>= 4
	}
	return append(b, '\n')
}

func parseLine(line []byte) (r record, ok bool) {
	sum, body, cut := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	if !cut || fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli())) != string(sum) {
		return record{}, false
	}
	if json.Unmarshal(body, &r) != nil {
		return record{}, false
	}
	return r, r.Put != nil || r.Del != nil
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// findSpool opens the spool of the named instance. Without a name, it opens the first spool of this group and host that
// no running process holds. If there is none, it creates one.
func findSpool(base, group, instance string, log *slog.Logger) (name string, s *spool, left []*pending, err error) {
	if instance != "" {
		s, left, err = openSpool(filepath.Join(base, group+"."+instance), log)
		return instance, s, left, err
	}
	host := hostToken()
	dirs, err := os.ReadDir(base)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", nil, nil, fmt.Errorf("look for spools: %w", err)
	}
	for _, dir := range dirs {
		suffix, ours := strings.CutPrefix(dir.Name(), group+"."+host+"-")
		if !ours || len(suffix) != suffixDigits || !wire.ValidInstance(suffix) {
			continue
		}
		name = host + "-" + suffix
		s, left, err = openSpool(filepath.Join(base, dir.Name()), log)
		if errors.Is(err, errSpoolLocked) {
			continue
		}
		return name, s, left, err
	}
	name = host + "-" + randomHex(suffixDigits/2)
	s, left, err = openSpool(filepath.Join(base, group+"."+name), log)
	return name, s, left, err
}

const suffixDigits = 6

// hostToken returns the host's name in the form that an instance name allows.
func hostToken() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	host, _, _ = strings.Cut(host, ".")
	token := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, host)
	token = strings.Trim(token, "-")
	if token == "" {
		token = "host"
	}
	return token[:min(len(token), 64)]
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
