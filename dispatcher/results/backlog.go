package results

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// behindFor is how long Backlog reports a backlog after results last had to wait. It is longer than a batch that waits for
// Postgres, which takes about a second.
const behindFor = 2 * time.Second

// maxBacklog bounds the age that Backlog returns, so that lost results are found during a backlog too.
const maxBacklog = 5 * time.Second

// backlog is the last observation of results that waited to be settled.
type backlog struct {
	seen time.Time
	age  time.Duration // of the oldest result in a settled batch, at most maxBacklog
}

// Backlog returns how old results are when this process settles them. ok is false if few results wait. During a backlog, the judge
// asks later about attempts without news. No verdict depends on Backlog.
func (c *Consumer) Backlog() (age time.Duration, ok bool) {
	b := c.behind.Load()
	if b == nil || time.Since(b.seen) >= behindFor {
		return 0, false
	}
	return b.age, true
}

// noteBacklog records a backlog if more than a few messages wait. published is when the oldest settled message was published.
func (c *Consumer) noteBacklog(waiting int, published time.Time) {
	if waiting > settlers*maxMessages {
		c.behind.Store(&backlog{seen: time.Now(), age: min(max(time.Since(published), 0), maxBacklog)})
	}
}

const measurePeriod = 2 * time.Second

// measureLoop updates the metric of result messages in the stream.
func (c *Consumer) measureLoop(ctx context.Context) {
	for lifecycle.Pause(ctx, measurePeriod) {
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
