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

// The bounds of what a run may leave behind, in bytes.
const (
	MaxOutput  = 64 << 10 // of SetOutput
	MaxMessage = 16 << 10 // of an error's text; what exceeds it is cut
	MaxLine    = 16 << 10 // of one line of the run's log; what exceeds it is cut
)

// RunInfo is what an attempt is told.
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
	ShardTotal   int // 1 where there is no broadcast
	ParentRunID  string
	ParentOutput string
	Timeout      time.Duration // 0 is none
}

// Line is one line of a run's log.
type Line struct {
	N     int64     // from 1 within the attempt
	At    time.Time // on the database's clock
	Level string    // debug, info, warn, error; stdout, stderr for a process's own output
	Text  string    // at most MaxLine bytes, without a line break
}

// Run is one attempt of a run, as its handler sees it. Its methods may be called by many goroutines at once, until
// the handler has returned; later calls change nothing. A Run is a small value; its zero value is of no use.
type Run struct{ state *runState }

// newRun makes a Run whose log lines go to sink, in order, one at a time.
func newRun(info RunInfo, sink func(Line)) Run {
	s := new(runState)
	s.init(info, funcJournal{sink})
	return Run{s}
}

// Package executortest makes its runs by this hook.
var _ = func() bool {
	hook.NewRun = func(info, sink any) (run any, end func() string) {
		r := newRun(info.(RunInfo), sink.(func(Line)))
		return r, func() string { r.end(); return r.output() }
	}
	return true
}()

// runState is what the copies of one Run share.
type runState struct {
	info           RunInfo
	journal        journal
	logged         sync.Once // makes logger; many runs log nothing, and need none
	logger         *slog.Logger
	stdout, stderr lineWriter

	mu       sync.Mutex // held while the journal takes a line, so that lines leave in order
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

// journal takes the lines of a run's log.
type journal interface {
	now() time.Time // which lines are dated by
	take(Line)      // one at a time, in order; it must not block
	hold()          // holds up who writes lines faster than they are taken
}

// funcJournal is the journal of a Run that newRun made.
type funcJournal struct{ sink func(Line) }

func (j funcJournal) now() time.Time { return time.Now() }
func (j funcJournal) take(l Line)    { j.sink(l) }
func (j funcJournal) hold()          {}

// ID is the run's UUID.
func (r Run) ID() string { return r.state.info.ID }

// JobID is the job's number.
func (r Run) JobID() int64 { return r.state.info.JobID }

// JobName is the job's name at the time of the offer.
func (r Run) JobName() string { return r.state.info.JobName }

// Group is the executor group.
func (r Run) Group() string { return r.state.info.Group }

// Handler is the name under which the handler was called.
func (r Run) Handler() string { return r.state.info.Handler }

// Param is the job's or the trigger's parameter, as it was given.
func (r Run) Param() string { return r.state.info.Param }

// Shard is the part of a broadcast that this run is, index counting from 0; 0 of 1 where there is no broadcast.
func (r Run) Shard() (index, total int) { return r.state.info.ShardIndex, r.state.info.ShardTotal }

// FireTime is the nominal instant at which the job should run, never a clock reading. The same in every attempt.
func (r Run) FireTime() time.Time { return r.state.info.FireTime }

// DueAt is the instant at which this attempt was to start, on the database's clock.
func (r Run) DueAt() time.Time { return r.state.info.DueAt }

// Attempt counts the tries of this run from 1.
func (r Run) Attempt() int { return r.state.info.Attempt }

// Cause says why the run exists: schedule, misfire, manual, api, event, child or backfill.
func (r Run) Cause() string { return r.state.info.Cause }

// Timeout is the job's timeout, 0 for none. ctx carries it as its deadline.
func (r Run) Timeout() time.Duration { return r.state.info.Timeout }

// ParentRunID is the run whose end caused this one, or "".
func (r Run) ParentRunID() string { return r.state.info.ParentRunID }

// ParentOutput is that run's output; of a broadcast, a JSON array by shard index.
func (r Run) ParentOutput() string { return r.state.info.ParentOutput }

// SetOutput sets the run's output, replacing what was set before. Output over MaxOutput bytes is an error and
// changes nothing. Bytes that are not UTF-8, and NUL, are replaced by U+FFFD.
func (r Run) SetOutput(output string) error {
	output = clean(output)
	if len(output) > MaxOutput {
		return fmt.Errorf("executor: an output of %d bytes; at most %d are taken", len(output), MaxOutput)
	}
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	if !r.state.ended {
		r.state.output = output
	}
	return nil
}

// output is what SetOutput set last.
func (r Run) output() string {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	return r.state.output
}

// Log is a logger whose records become lines of the run's log, from level debug on.
func (r Run) Log() *slog.Logger {
	s := r.state
	s.logged.Do(func() { s.logger = slog.New(newLineHandler(s)) })
	return s.logger
}

// Stdout is a writer whose lines become lines of the run's log with level stdout. What follows the last line break
// becomes a line when the handler returns. Writes never fail. Whoever writes faster than lines can be sent is held up,
// as long as any are sent; where NATS is away the oldest lines give way instead.
func (r Run) Stdout() io.Writer { return &r.state.stdout }

// Stderr is as Stdout, with level stderr.
func (r Run) Stderr() io.Writer { return &r.state.stderr }

// Progress writes how far the run is into its log, at most once a second; done = total is always written.
// A total of 0 or less means that it is not known.
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

// end closes the run when its handler has returned: unfinished lines are written, and further calls change nothing. It
// returns the number of the last line.
func (r Run) end() (lastLine int64) {
	r.state.stdout.flush()
	r.state.stderr.flush()
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	r.state.ended = true
	return r.state.lines
}

// write writes text into the log, one line for each of its lines.
func (s *runState) write(level, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.SplitSeq(strings.TrimRight(text, "\r\n"), "\n") {
		s.line(level, strings.TrimSuffix(line, "\r"))
	}
}

// line is called with mu held.
func (s *runState) line(level, text string) {
	if s.ended {
		return
	}
	s.lines++
	s.journal.take(Line{N: s.lines, At: s.journal.now(), Level: level, Text: clip(clean(text), MaxLine)})
}

// clean replaces what cannot be stored as text: bytes that are not UTF-8, and NUL.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

const cutMark = " … (cut)"

// clip shortens s to at most n bytes, at a character, with a mark where it did.
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
