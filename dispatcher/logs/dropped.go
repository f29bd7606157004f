package logs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// drop replaces the lines of messages, because their group exceeds its share. Each replacement gives the number of dropped lines.
func (c *Consumer) drop(ctx context.Context, msgs []*intake.Message) {
	c.fair.Count(msgs[0].Group, intake.Dropped, len(msgs))
	c.process(ctx, msgs, func(all []runLines) []engine.LogChunk { return c.marked(all, "log share") })
}

// shed drops the lines of a message without a replacement in the log, because there is no room for one.
func (c *Consumer) shed(m *intake.Message) {
	c.fair.Count(m.Group, intake.Dropped, 1)
	_ = m.Ack() // if this fails, the message is delivered again
}

// maxMarked is the maximum number of lines that one line replaces. The code that reads logs relies on this maximum span of a chunk.
const maxMarked = 10 * wire.MaxLogLines

// marked returns chunks with one line, which names the exceeded limit, for consecutive lines of an attempt. A chunk spans the numbers of the lines that it
// replaces, so that a reader finds no gap, and finds the end of the log.
func (c *Consumer) marked(all []runLines, limit string) []engine.LogChunk {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b runLines) int {
		return cmp.Or(slices.Compare(a.run[:], b.run[:]), a.Attempt-b.Attempt, cmp.Compare(a.Lines[0].N, b.Lines[0].N))
	})
	var chunks []engine.LogChunk
	for i := 0; i < len(all); {
		first := all[i].Lines[0]
		last := all[i].Lines[len(all[i].Lines)-1].N
		run, group, attempt := all[i].run, all[i].group, all[i].Attempt
		for i++; i < len(all) && all[i].run == run && all[i].Attempt == attempt && all[i].Lines[0].N <= last+1; i++ {
			to := max(last, all[i].Lines[len(all[i].Lines)-1].N)
			if to-first.N >= maxMarked {
				break
			}
			last = to
		}
		text := fmt.Sprintf("%d lines dropped: the group exceeded its %s", last-first.N+1, limit)
		chunks = append(chunks, engine.LogChunk{RunID: run, Group: group, TextBytes: int64(len(text)), Attempt: attempt, First: first.N, Last: last, Lines: c.Encode([]domain.LogLine{
			{N: first.N, At: domain.At(first.At.Time), Level: "warn", Attempt: attempt, Text: text},
		})})
	}
	return chunks
}
