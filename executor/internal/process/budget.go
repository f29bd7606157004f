package process

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/belfryhq/belfry/executor"
)

// lineCost is added to the length of each line, in bytes, so that empty lines also use the budget.
const lineCost = 32

// budget limits a program's output in its run's log. Above the limit, the program continues. Its output is still read,
// so that it never waits for a full pipe, but the output is dropped.
type budget struct {
	run   executor.Run
	total int64

	mu   sync.Mutex // stdout and stderr are written by two goroutines
	left int64
	cut  bool
}

func newBudget(run executor.Run, bytes int64) *budget {
	if bytes <= 0 {
		bytes = DefaultLogBytes
	}
	return &budget{run: run, total: bytes, left: bytes}
}

// writer returns a writer that passes output to w within the budget.
func (b *budget) writer(w io.Writer) io.Writer { return &spender{b, w} }

type spender struct {
	budget *budget
	to     io.Writer
}

// Write implements io.Writer.
func (s *spender) Write(p []byte) (int, error) {
	granted, cut := s.budget.take(p)
	if _, err := s.to.Write(p[:granted]); err != nil {
		return 0, err
	}
	if cut {
		if granted > 0 && p[granted-1] != '\n' {
			if _, err := s.to.Write([]byte("\n")); err != nil {
				return 0, err
			}
		}
		s.budget.run.Log().Warn(fmt.Sprintf("… the log was cut here: the program has written over %d KiB; it continues, but its further output is dropped", s.budget.total>>10))
	}
	return len(p), nil
}

// take returns how many bytes of p may be logged. cut is true once, when the budget is exceeded.
func (b *budget) take(p []byte) (granted int, cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cut {
		return 0, false
	}
	if cost := int64(len(p)) + lineCost*int64(bytes.Count(p, []byte("\n"))); cost <= b.left {
		b.left -= cost
		return len(p), false
	}
	for granted < len(p) && b.left > 0 {
		if b.left--; p[granted] == '\n' {
			b.left -= lineCost
		}
		granted++
	}
	b.cut = true
	return granted, true
}
