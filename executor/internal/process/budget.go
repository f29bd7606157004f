package process

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/belfryhq/belfry/executor"
)

// lineCost is what a line counts beside its bytes, so that empty ones are not free.
const lineCost = 32

// budget is what a program may still write into its run's log. Past it the program goes on, and is read so that it never
// waits for a full pipe, but what it says is dropped.
type budget struct {
	run   executor.Run
	total int64

	mu   sync.Mutex // stdout and stderr come from two goroutines
	left int64
	cut  bool
}

func newBudget(run executor.Run, bytes int64) *budget {
	if bytes <= 0 {
		bytes = DefaultLogBytes
	}
	return &budget{run: run, total: bytes, left: bytes}
}

// writer passes on to w what the budget allows.
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
		s.budget.run.Log().Warn(fmt.Sprintf("… the log was cut here: the program has written over %d KiB; it goes on unheard", s.budget.total>>10))
	}
	return len(p), nil
}

// take grants the first bytes of p that may be logged, and says if they are the last.
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
