package results

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// behindFor is how long settling counts as behind after results had to wait. A batch that waits for Postgres takes about a
// second.
const behindFor = 2 * time.Second

// maxBacklog bounds the age that Backlog returns, so that lost results are found during a backlog too.
const maxBacklog = 5 * time.Second

// backlog is the last observation of results that waited to be settled.
type backlog struct {
	seen time.Time
	age  time.Duration // of the newest settled result, at most maxBacklog
}

// Backlog returns how old results are when this process settles them, if results wait in the stream. Otherwise it is not ok.
func (c *Consumer) Backlog() (age time.Duration, ok bool) {
	b := c.behind.Load()
	if b == nil || time.Since(b.seen) >= behindFor {
		return 0, false
	}
	return b.age, true
}

// noteBacklog records that messages wait in the stream behind the settled ones, if there are more than a few. published is when
// the newest settled message was published.
func (c *Consumer) noteBacklog(waiting uint64, published time.Time) {
	if waiting > settlers*maxMessages {
		c.behind.Store(&backlog{seen: time.Now(), age: min(max(time.Since(published), 0), maxBacklog)})
	}
}

const measurePeriod = 2 * time.Second

// measureLoop keeps the metric of result messages in the stream.
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

// AllSettled reports whether the results that the stream holds now are settled within about two seconds. Dispatchers acknowledge
// a result after its commit, so a result that is no longer in the work queue is settled.
func (c *Consumer) AllSettled(ctx context.Context) (bool, error) {
	s, err := c.JetStream.Stream(ctx, wire.StreamResults)
	if err != nil {
		return false, err
	}
	last := s.CachedInfo().State.LastSeq
	const tries = 20
	for range tries {
		s, err := c.JetStream.Stream(ctx, wire.StreamResults)
		if err != nil {
			return false, err
		}
		if st := s.CachedInfo().State; st.Msgs == 0 || st.FirstSeq > last {
			return true, nil
		}
		if !lifecycle.Pause(ctx, 100*time.Millisecond) {
			return false, nil
		}
	}
	return false, nil
}
