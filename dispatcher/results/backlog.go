package results

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// behindFor is how long Backlog reports a backlog after results last had to wait. It is longer than a batch that waits for
// Postgres, which takes about a second.
const behindFor = 2 * time.Second

// maxBacklog bounds the age that Backlog returns, so that lost results are found during a backlog too.
const maxBacklog = 5 * time.Second

// backlogs holds the last observation of results that waited to be settled, for each group that had some lately.
type backlogs struct {
	mu sync.Mutex
	of map[string]backlog
}

type backlog struct {
	seen time.Time
	age  time.Duration // of the group's oldest result in a settled batch, at most maxBacklog
}

// Backlog returns how old the results of a group are when this process settles them. ok is false if few of them wait. During a
// backlog, the judge asks later about the group's attempts without news. No verdict depends on Backlog.
func (c *Consumer) Backlog(group string) (age time.Duration, ok bool) {
	c.behind.mu.Lock()
	defer c.behind.mu.Unlock()
	b, ok := c.behind.of[group]
	if !ok || time.Since(b.seen) >= behindFor {
		return 0, false
	}
	return b.age, true
}

// noteBacklog records a backlog if more than a few messages of a group wait. published is when the oldest settled message was
// published.
func (c *Consumer) noteBacklog(group string, waiting int, published time.Time) {
	if waiting <= settlers*maxMessages {
		return
	}
	c.behind.mu.Lock()
	defer c.behind.mu.Unlock()
	maps.DeleteFunc(c.behind.of, func(_ string, b backlog) bool { return time.Since(b.seen) >= behindFor })
	c.behind.of[group] = backlog{seen: time.Now(), age: min(max(time.Since(published), 0), maxBacklog)}
}

const measurePeriod = 2 * time.Second

// measureLoop updates the metric of result messages in the stream.
func (c *Consumer) measureLoop(ctx context.Context) {
	for lifecycle.Rest(ctx, measurePeriod) {
		if !c.Peers.Connected() {
			continue
		}
		s, err := c.JetStream.Stream(ctx, wire.StreamResults)
		if err != nil {
			if ctx.Err() == nil {
				c.Log.WarnContext(ctx, "cannot count the results in the stream, retrying", "err", err)
			}
			continue
		}
		c.waiting.Set(float64(s.CachedInfo().State.Msgs))
	}
}
