// Package logs stores the log lines that executors publish. JetStream only carries them. Postgres keeps them in
// compressed chunks, whose key makes a repeated batch a no-op. The package also accepts lines of an attempt that has
// ended, because its last lines may arrive after its result.
//
// Each group has a share of a dispatcher's memory and time (package intake). Executors do not send lines again, so lines
// beyond the share are lost. One line replaces them in the run's log. It gives their number, and its chunk spans their line
// numbers, so that the log has no gap. If a group sends even more, lines are dropped without a replacement.
// Lines of a group that has used up its quota of log bytes are replaced in the same way until the next day (UTC).
package logs

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Store stores chunks.
type Store interface {
	StoreLogs(ctx context.Context, chunks []engine.LogChunk) error
	GroupsOf(ctx context.Context, runs []domain.RunID) (map[domain.RunID]string, error)
	// GroupsOverLogLimit returns the groups that have stored all the log text that their quota of the day allows.
	GroupsOverLogLimit(ctx context.Context) ([]string, error)
}

// Encode encodes lines as the bytes of a chunk.
type Encode func([]domain.LogLine) []byte

// DeadLetter stores a message that cannot be processed.
type DeadLetter func(ctx context.Context, kind, subject string, data []byte, reason error)

// Config holds the dependencies of a Consumer. All fields but Registry and Bounds are required.
type Config struct {
	JetStream  jetstream.JetStream
	Store      Store
	Encode     Encode
	DeadLetter DeadLetter
	Log        *slog.Logger
	Registry   prometheus.Registerer
	Bounds     intake.Bounds // of the lines that were fetched and are not stored yet
}

// Consumer moves log lines from the stream to the store.
type Consumer struct {
	Config
	fair   *intake.Fair
	groups *lru.Cache[domain.RunID, string] // the group of each run, which never changes
	over   atomic.Pointer[[]string]         // the groups beyond their quota of the day; nil before the first answer
	came   atomic.Bool                      // lines have come since the last reading of these groups
}

const (
	durable    = "store"
	batchMax   = 100 // messages per transaction
	groupsKept = 20_000
	gatherFor  = 50 * time.Millisecond // for one transaction; a reader of a live log does not notice it
)

// New returns a consumer that does nothing until Run.
func New(cfg Config) (*Consumer, error) {
	groups, err := lru.New[domain.RunID, string](groupsKept)
	if err != nil {
		return nil, fmt.Errorf("make the cache of groups: %w", err)
	}
	c := &Consumer{Config: cfg, groups: groups}
	c.fair = intake.NewFair(intake.FairConfig{
		JetStream: cfg.JetStream, Log: cfg.Log, Registry: cfg.Registry, Kind: "log", Stream: wire.StreamLogs, Durable: durable,
		Workers: 1, // so that the lines of an attempt are stored in order
		Limit:   batchMax, Gather: gatherFor, Bounds: cfg.Bounds, Handle: c.keep, Excess: c.drop, Shed: c.shed,
	})
	return c, nil
}

// Run stores lines until ctx ends.
func (c *Consumer) Run(ctx context.Context) error {
	lifecycle.Together(ctx, c.fair.Run, c.quotaLoop)
	return nil
}

// quotaPeriod is the time between two readings of the groups that have used up their quota.
const quotaPeriod = 5 * time.Second

// quotaLoop reads which groups are beyond their quota of log bytes. While Postgres is unavailable, the last list applies. While no lines come, an empty list
// stays empty.
func (c *Consumer) quotaLoop(ctx context.Context) {
	for {
		if over := c.over.Load(); c.came.Swap(false) || over == nil || len(*over) > 0 {
			c.readQuotas(ctx)
		}
		if !lifecycle.Rest(ctx, quotaPeriod) {
			return
		}
	}
}

func (c *Consumer) readQuotas(ctx context.Context) {
	groups, err := c.Store.GroupsOverLogLimit(ctx)
	switch {
	case err == nil:
		c.over.Store(&groups)
	case ctx.Err() == nil:
		c.Log.DebugContext(ctx, "cannot read the quotas of log bytes, keeping the last known ones", "err", err)
	}
}

// wait waits for d or until ctx ends, and reports whether ctx is still valid.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// keep stores the lines of a batch of messages and acknowledges the messages. If Postgres is unavailable, keep retries for keepTries, so
// that lines stay in order. After that, it acknowledges nothing, and JetStream delivers the messages again.
func (c *Consumer) keep(ctx context.Context, msgs []*intake.Message) { c.process(ctx, msgs, c.allowed) }

// process stores chunks of the lines of messages and acknowledges the messages.
func (c *Consumer) process(ctx context.Context, msgs []*intake.Message, chunks toChunks) {
	c.came.Store(true)
	tries, cancel := context.WithTimeout(ctx, keepTries)
	defer cancel()
	var bad map[int]error
	var err error
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		bad, err = c.processOnce(ctx, msgs, chunks)
		away := err != nil && domain.Transient(err)
		if c.fair.Away(away); !away {
			break
		}
		c.Log.WarnContext(ctx, "cannot store log lines, retrying", "err", err)
		if !wait(tries, pause) {
			for _, m := range msgs {
				_ = m.NakWithDelay(comeAgain) // if this fails, JetStream delivers the messages again after AckWait
			}
			return
		}
	}
	switch {
	case err != nil && len(msgs) == 1:
		bad = map[int]error{0: err}
	case err != nil:
		// One message that Postgres rejects must not block the others.
		for i := range msgs {
			c.process(ctx, msgs[i:i+1], chunks)
		}
		return
	}
	for i, m := range msgs {
		if err := bad[i]; err != nil {
			c.DeadLetter(ctx, "log", m.Subject(), m.Data(), err)
		}
		if err := m.Ack(); err != nil {
			c.Log.DebugContext(ctx, "cannot acknowledge log lines, their redelivery changes nothing", "err", err)
		}
	}
}

const (
	keepTries = 5 * time.Second
	comeAgain = 2 * time.Second
)

// processOnce stores chunks of the valid messages of a batch in one transaction. bad holds the errors of the others, by
// message index.
func (c *Consumer) processOnce(ctx context.Context, msgs []*intake.Message, chunks toChunks) (bad map[int]error, err error) {
	ctx, cancel := context.WithTimeout(ctx, intake.AckWait/2)
	defer cancel()
	lines, bad, err := c.read(ctx, msgs)
	if err != nil || len(lines) == 0 {
		return bad, err
	}
	return bad, c.Store.StoreLogs(ctx, chunks(lines))
}

// runLines holds the lines of a valid message.
type runLines struct {
	run   domain.RunID
	group string
	*wire.Logs
}

// toChunks returns the chunks that are stored for the lines of messages.
type toChunks func([]runLines) []engine.LogChunk

// allowed returns chunks with the lines of groups within their quota. It replaces the other lines as marked does.
func (c *Consumer) allowed(all []runLines) []engine.LogChunk {
	over := c.over.Load()
	if over == nil || len(*over) == 0 {
		return c.whole(all)
	}
	var within, beyond []runLines
	for _, l := range all {
		if slices.Contains(*over, l.group) {
			c.fair.Count(l.group, intake.OverQuota, 1)
			beyond = append(beyond, l)
		} else {
			within = append(within, l)
		}
	}
	return append(c.whole(within), c.marked(beyond, "log quota of the day")...)
}

// whole returns chunks that contain all lines.
func (c *Consumer) whole(all []runLines) []engine.LogChunk {
	chunks := make([]engine.LogChunk, len(all))
	for i, l := range all {
		chunks[i] = engine.LogChunk{
			RunID: l.run, Group: l.group, Attempt: l.Attempt, First: l.Lines[0].N, Last: l.Lines[len(l.Lines)-1].N, Lines: c.Encode(linesOf(l.Logs)),
		}
		for _, line := range l.Lines {
			chunks[i].TextBytes += int64(min(len(line.Text), wire.MaxLogLineBytes))
		}
	}
	return chunks
}

// read decodes messages. bad holds the errors of invalid messages, by message index.
func (c *Consumer) read(ctx context.Context, msgs []*intake.Message) (lines []runLines, bad map[int]error, err error) {
	bad = make(map[int]error)
	decoded := make([]*wire.Logs, len(msgs))
	ids := make([]domain.RunID, len(msgs))
	var ask []domain.RunID
	for i, m := range msgs {
		var l wire.Logs
		if err := decode(m.Data(), &l, &ids[i]); err != nil {
			bad[i] = err
			continue
		}
		decoded[i] = &l
		if _, known := c.groups.Get(ids[i]); !known {
			ask = append(ask, ids[i])
		}
	}
	if err := c.learn(ctx, ask); err != nil {
		return nil, nil, err
	}
	for i, l := range decoded {
		if l == nil {
			continue
		}
		// The executor's token guarantees the group in the subject.
		if group, known := c.groups.Get(ids[i]); !known || group != msgs[i].Group {
			bad[i] = fmt.Errorf("run %s does not exist or belongs to another group", ids[i])
			continue
		}
		lines = append(lines, runLines{ids[i], msgs[i].Group, l})
	}
	return lines, bad, nil
}

// learn adds the groups of runs to the cache.
func (c *Consumer) learn(ctx context.Context, ids []domain.RunID) error {
	if len(ids) == 0 {
		return nil
	}
	groups, err := c.Store.GroupsOf(ctx, ids)
	for id, g := range groups {
		c.groups.Add(id, g)
	}
	return err
}

// lineMax is higher than the number of any line.
const lineMax = 1 << 40

// decode decodes a message and checks that its lines are consecutive.
func decode(data []byte, l *wire.Logs, id *domain.RunID) error {
	if err := wire.Decode(data, l); err != nil {
		return err
	}
	run, err := domain.ParseRunID(l.RunID)
	if err != nil {
		return fmt.Errorf("run_id %q: %w", l.RunID, err)
	}
	*id = run
	if l.Attempt < 1 || l.Attempt > domain.MaxRetries+1 || len(l.Lines) == 0 || len(l.Lines) > 10*wire.MaxLogLines ||
		l.Lines[0].N < 1 || l.Lines[0].N > lineMax {
		return fmt.Errorf("run %s: attempt or lines are missing or out of range", run)
	}
	for i, line := range l.Lines {
		if line.N != l.Lines[0].N+int64(i) {
			return fmt.Errorf("run %s: line %d follows line %d", run, line.N, l.Lines[0].N+int64(i)-1)
		}
	}
	return nil
}

func linesOf(l *wire.Logs) []domain.LogLine {
	out := make([]domain.LogLine, len(l.Lines))
	for i, line := range l.Lines {
		text := line.Text
		if len(text) > wire.MaxLogLineBytes {
			text = strings.ToValidUTF8(text[:wire.MaxLogLineBytes], "") + "… cut"
		}
		out[i] = domain.LogLine{N: line.N, At: domain.At(line.At.Time), Level: line.Level, Attempt: l.Attempt, Text: text}
	}
	return out
}
