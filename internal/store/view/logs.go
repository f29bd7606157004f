package view

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/logchunk"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// LinesPerAttempt is the distance between the line numbers of two attempts. No attempt writes so many lines, and the
// numbers of a hundred attempts are exact as JavaScript numbers.
const LinesPerAttempt = 1_000_000_000

// Position returns the number of an attempt's line n in the run's log.
func Position(attempt int, n int64) int64 {
	return int64(attempt-1)*LinesPerAttempt + min(n, LinesPerAttempt-1)
}

// place reverses Position.
func place(position int64) (attempt int32, n int64) {
	position = max(position, 1)
	return int32(min(position/LinesPerAttempt, 1<<20)) + 1, position % LinesPerAttempt
}

const (
	// logSettleTime is how long after a run's end a reader still waits for lines.
	logSettleTime = 5 * time.Second
	chunkBatch    = 16
	maxPageBytes  = 1 << 20 // of text; a page has at least one line
	maxChunkLines = 5000    // executors may not send more at once
	maxTailLines  = 10_000

	// A search ends its page after this number of lines or this time, and returns where to continue.
	maxSearchLines = 200_000
	maxSearchTime  = 2 * time.Second
)

// LogFilter selects lines; a zero field selects all.
type LogFilter struct {
	Text   string   // occurs in the line, ignoring case and colors
	Levels []string // the line's level is one of them
}

func (f *LogFilter) empty() bool { return f.Text == "" && len(f.Levels) == 0 }

// escape matches terminal control sequences such as colors.
var escape = regexp.MustCompile("\x1b\\[[0-9;?]*[ -/]*[@-~]")

// fits reports whether a line is selected; text is the filter's in lower case.
func (f *LogFilter) fits(l *domain.LogLine, text string) bool {
	if len(f.Levels) > 0 && !slices.Contains(f.Levels, l.Level) {
		return false
	}
	if text == "" {
		return true
	}
	plain := l.Text
	if strings.IndexByte(plain, 0x1b) >= 0 {
		plain = escape.ReplaceAllString(plain, "")
	}
	return strings.Contains(strings.ToLower(plain), text)
}

// LogPage is a part of a run's log. The lines' N is their Position.
type LogPage struct {
	Lines []domain.LogLine
	Next  int64 // where the next page starts
	End   bool  // no line will follow
	State RunState
}

// RunState is the part of a run's state that a reader of its log needs.
type RunState struct {
	Group   string
	State   domain.State
	Reason  domain.Reason
	Attempt int
}

// State returns a run's state, or NotFound.
func (s *Store) State(ctx context.Context, id domain.RunID) (RunState, error) {
	r, err := s.state(ctx, id)
	return toState(r), err
}

func (s *Store) state(ctx context.Context, id domain.RunID) (sqlcgen.RunStateRow, error) {
	r, err := s.q.RunState(ctx, id)
	if err = pgerr.Translate(err); err != nil && domain.CodeOf(err) == domain.NotFound {
		return r, noRun()
	}
	return r, err
}

func toState(r sqlcgen.RunStateRow) RunState {
	return RunState{r.GroupName, domain.State(r.State), domain.Reason(r.Reason), int(r.Attempt)}
}

// Log returns up to limit lines of a run's log that match the filter, starting at the given position. A negative
// position counts from the end, at most 10,000 lines. The cost of a page does not depend on its position in the log. A
// search may end with few lines or none and still have a Next. The error is NotFound if there is no such run.
func (s *Store) Log(ctx context.Context, id domain.RunID, from int64, limit int, filter LogFilter) (LogPage, error) {
	// Read the state first: if lines are stored after a final state was read, the page has more lines, not fewer.
	run, err := s.state(ctx, id)
	if err != nil {
		return LogPage{}, err
	}
	if from < 0 {
		if from, err = s.fromEnd(ctx, id, min(-from, maxTailLines)); err != nil {
			return LogPage{}, err
		}
	}
	settled := run.FinishedAt != nil && run.Now.Sub(*run.FinishedAt) > logSettleTime
	page := LogPage{Lines: []domain.LogLine{}, Next: max(from, 1), State: toState(run)}
	exhausted, err := s.fill(ctx, id, &page, limit, filter, settled)
	if err != nil || !exhausted || run.FinishedAt == nil {
		return page, err
	}
	page.End = settled
	if !settled {
		stored, err := s.q.StoredLines(ctx, sqlcgen.StoredLinesParams{RunID: id, Attempt: run.Attempt})
		if err != nil {
			return LogPage{}, pgerr.Translate(err)
		}
		// Lines that arrived between the two reads would be lost if the page ended here, so the page must include all
		// of them.
		page.End = stored >= run.LastLine && (run.LastLine == 0 || page.Next > Position(int(run.Attempt), run.LastLine))
	}
	return page, nil
}

// fromEnd returns the position of the first of the last n stored lines.
func (s *Store) fromEnd(ctx context.Context, id domain.RunID, n int64) (int64, error) {
	chunks, err := s.q.LogTail(ctx, sqlcgen.LogTailParams{RunID: id, MaxRows: int32(n)})
	if err != nil {
		return 0, pgerr.Translate(err)
	}
	from := int64(1)
	for _, c := range chunks {
		if from = Position(int(c.Attempt), max(c.FirstLine, c.LastLine-n+1)); c.LastLine-c.FirstLine+1 >= n {
			return from, nil
		}
		n -= c.LastLine - c.FirstLine + 1
	}
	return from, nil
}

// fill appends lines to the page until it is full. exhausted means that no more lines are stored, or none that may be
// shown yet.
func (s *Store) fill(ctx context.Context, id domain.RunID, page *LogPage, limit int, filter LogFilter, settled bool) (exhausted bool, err error) {
	bytes, seen, begun := 0, 0, time.Now()
	text := strings.ToLower(filter.Text)
	for {
		if !filter.empty() && (seen >= maxSearchLines || time.Since(begun) > maxSearchTime) {
			return false, nil
		}
		attempt, line := place(page.Next)
		chunks, err := s.q.LogChunks(ctx, sqlcgen.LogChunksParams{RunID: id, Attempt: attempt, LowLine: line - maxChunkLines + 1, Line: line, MaxRows: chunkBatch})
		if err != nil {
			return false, pgerr.Translate(err)
		}
		for _, c := range chunks {
			expected := page.Next
			if _, n := place(expected); c.Attempt > attempt || n == 0 {
				expected = Position(int(c.Attempt), 1)
			}
			if c.Fresh && !settled && Position(int(c.Attempt), c.FirstLine) > expected {
				return true, nil
			}
			lines, err := logchunk.Decode(c.Lines)
			if err != nil {
				return false, domain.WrapError(domain.Internal, "a stored log cannot be read", err)
			}
			for _, l := range lines {
				at := Position(int(c.Attempt), l.N)
				if at < page.Next { // chunks may overlap
					continue
				}
				if seen++; !filter.fits(&l, text) {
					page.Next = at + 1
					continue
				}
				if len(page.Lines) == limit || bytes > 0 && bytes+len(l.Text) > maxPageBytes {
					return false, nil
				}
				bytes += len(l.Text) + 1
				l.N, l.Attempt = at, int(c.Attempt)
				page.Lines = append(page.Lines, l)
				page.Next = at + 1
			}
			// A damaged or empty chunk must not stop the reader.
			page.Next = max(page.Next, Position(int(c.Attempt), c.LastLine)+1)
			attempt = c.Attempt
		}
		if len(chunks) < chunkBatch {
			return true, nil
		}
	}
}
