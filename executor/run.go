package executor

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/executor/internal/hook"
)

// The limits of what a run may produce, in bytes.
const (
	MaxOutput  = 64 << 10 // maximum output
	MaxMessage = 16 << 10 // maximum text of an error; longer texts are cut
	MaxLine    = 16 << 10 // maximum line of the run's log; longer lines are cut
)

// RunInfo describes an attempt to its handler.
type RunInfo struct {
	ID           string // of the run, a UUID
	JobID        int64
	JobName      string
	Group        string
	Handler      string
	Param        string
	Cause        string // why the run exists: schedule, misfire, manual, api, event, child or backfill
	FireTime     time.Time
	DueAt        time.Time
	Attempt      int // from 1
	ShardIndex   int // from 0
	ShardTotal   int // 1 without a broadcast
	ParentRunID  string
	ParentOutput string
	Timeout      time.Duration // 0 means none
	Labels       map[string]string
}

// Line is one line of a run's log.
type Line struct {
	N     int64     // from 1 within the attempt
	At    time.Time // on the database's clock
	Level string    // debug, info, warn or error; stdout or stderr for the output of a process
	Text  string    // at most MaxLine bytes, without a line break
}

// Run is one attempt of a run, as its handler sees it. Its methods are safe for concurrent use until the handler has
// returned. Later calls change nothing. A Run is a small value. Its zero value is not usable.
type Run struct{ state *runState }

// newRun makes a Run that passes its log lines to sink, in order, one at a time.
func newRun(info RunInfo, sink func(Line)) Run {
	s := new(runState)
	s.init(info, funcJournal{sink})
	return Run{s}
}

// Package executortest creates runs through this hook.
var _ = func() bool {
	hook.NewRun = func(info, sink any) (run any, end func() string) {
		r := newRun(info.(RunInfo), sink.(func(Line)))
		return r, func() string { r.end(); return r.output() }
	}
	return true
}()

// runState is the state that all copies of one Run share.
type runState struct {
	info           RunInfo
	journal        journal
	logged         sync.Once // guards the creation of logger; most runs log nothing and need none
	logger         *slog.Logger
	stdout, stderr lineWriter

	mu       sync.Mutex // held while the journal takes a line, so that lines stay in order
	lines    int64
	output   string
	progress time.Time
	ended    bool
}

func (s *runState) init(info RunInfo, j journal) {
	s.info, s.journal = info, j
	s.stdout = lineWriter{level: "stdout", run: s}
	s.stderr = lineWriter{level: "stderr", run: s}
}

// journal receives the lines of a run's log.
type journal interface {
	now() time.Time // the time that a new line carries
	take(Line)      // is called for one line at a time, in order; must not block
	hold()          // blocks a writer that produces lines faster than they are taken
}

// funcJournal is the journal of a Run that newRun made.
type funcJournal struct{ sink func(Line) }

func (j funcJournal) now() time.Time { return time.Now() }
func (j funcJournal) take(l Line)    { j.sink(l) }
func (j funcJournal) hold()          {}

// ID returns the run's UUID.
func (r Run) ID() string { return r.state.info.ID }

// JobID returns the job's id.
func (r Run) JobID() int64 { return r.state.info.JobID }

// JobName returns the job's name at the time of the offer.
func (r Run) JobName() string { return r.state.info.JobName }

// Group returns the name of the executor group.
func (r Run) Group() string { return r.state.info.Group }

// Handler returns the name under which the handler is registered.
func (r Run) Handler() string { return r.state.info.Handler }

// Param returns the job's or the trigger's parameter, unchanged.
func (r Run) Param() string { return r.state.info.Param }

// Shard returns the run's part of a broadcast. index counts from 0. Without a broadcast, Shard returns 0, 1.
func (r Run) Shard() (index, total int) { return r.state.info.ShardIndex, r.state.info.ShardTotal }

// FireTime returns the nominal instant at which the job should run, never a clock reading. It is the same for every
// attempt.
func (r Run) FireTime() time.Time { return r.state.info.FireTime }

// DueAt returns the instant at which this attempt is due, on the database's clock.
func (r Run) DueAt() time.Time { return r.state.info.DueAt }

// Attempt returns the attempt's number, counted from 1.
func (r Run) Attempt() int { return r.state.info.Attempt }

// Cause returns why the run exists: schedule, misfire, manual, api, event, child or backfill.
func (r Run) Cause() string { return r.state.info.Cause }

// Timeout returns the job's timeout, or 0 if it has none. The handler's context has it as its deadline.
func (r Run) Timeout() time.Duration { return r.state.info.Timeout }

// Label returns a label of the offer, or "" if there is none. Label "traceparent" is the W3C trace context of the attempt:
// the handler's spans belong below its span. It is absent if no process records the run's trace.
func (r Run) Label(name string) string { return r.state.info.Labels[name] }

// ParentRunID returns the id of the run whose end caused this one, or "".
func (r Run) ParentRunID() string { return r.state.info.ParentRunID }

// ParentOutput returns the parent run's output. If the parent was a broadcast, it is a JSON array by shard index.
func (r Run) ParentOutput() string { return r.state.info.ParentOutput }

// SetOutput sets the run's output and replaces the previous one. If output is longer than MaxOutput bytes, SetOutput
// returns an error and changes nothing. Invalid UTF-8 and NUL bytes are replaced with U+FFFD.
func (r Run) SetOutput(output string) error {
	output = clean(output)
	if len(output) > MaxOutput {
		return fmt.Errorf("executor: an output of %d bytes; at most %d are allowed", len(output), MaxOutput)
	}
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	if !r.state.ended {
		r.state.output = output
	}
	return nil
}

// output returns the output that SetOutput set last.
func (r Run) output() string {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	return r.state.output
}

// Log returns a logger whose records become lines of the run's log. It has all levels from debug up.
func (r Run) Log() *slog.Logger {
	s := r.state
	s.logged.Do(func() { s.logger = slog.New(newLineHandler(s)) })
	return s.logger
}

// Stdout returns a writer whose lines become lines of the run's log, with level stdout. Text after the last line break
// becomes a line when the handler returns. Writes never fail. If the caller writes faster than the executor can send
// lines, Write blocks as long as lines are being sent. If NATS is unavailable, Write does not block, and the executor
// drops the oldest lines.
func (r Run) Stdout() io.Writer { return &r.state.stdout }

// Stderr returns a writer like Stdout, with level stderr.
func (r Run) Stderr() io.Writer { return &r.state.stderr }

// Progress writes the run's progress into its log, at most once per second. It always writes a call with done = total.
// A total of 0 or less means that the total is unknown.
func (r Run) Progress(done, total int64) {
	s := r.state
	text := fmt.Sprintf("progress %d", done)
	if total > 0 {
		text = fmt.Sprintf("progress %d/%d (%d%%)", done, total, int64(float64(done)/float64(total)*100))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.journal.now()
	if (total <= 0 || done != total) && now.Sub(s.progress) < time.Second {
		return
	}
	s.progress = now
	s.line("info", text)
}

// end closes the run after its handler has returned. It writes unfinished lines, and later calls change nothing. It
// returns the number of the last line.
func (r Run) end() (lastLine int64) {
	r.state.stdout.flush()
	r.state.stderr.flush()
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	r.state.ended = true
	return r.state.lines
}

// write adds text to the log, line by line.
func (s *runState) write(level, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.SplitSeq(strings.TrimRight(text, "\r\n"), "\n") {
		s.line(level, strings.TrimSuffix(line, "\r"))
	}
}

// line adds one line to the log. The caller holds mu.
func (s *runState) line(level, text string) {
	if s.ended {
		return
	}
	s.lines++
	s.journal.take(Line{N: s.lines, At: s.journal.now(), Level: level, Text: clip(clean(text), MaxLine)})
}

// clean replaces bytes that cannot be stored as text, which are invalid UTF-8 and NUL.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

const cutMark = " … (cut)"

// clip shortens s to at most n bytes. It cuts at a character boundary and adds a mark.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := n - len(cutMark)
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end] + cutMark
}
