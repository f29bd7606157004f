// Package logs stores the log lines that executors publish. JetStream only carries them. Postgres keeps them in
// compressed chunks, whose key makes a repeated batch a no-op. The package also accepts lines of an attempt that has
// ended, because its last lines may arrive after its result.
package logs

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// Store stores chunks.
type Store interface {
	StoreLogs(ctx context.Context, chunks []engine.LogChunk) error
	GroupsOf(ctx context.Context, runs []domain.RunID) (map[domain.RunID]string, error)
}

// Encode encodes lines as the bytes of a chunk.
type Encode func([]domain.LogLine) []byte

// DeadLetter stores a message that cannot be processed.
type DeadLetter func(ctx context.Context, kind, subject string, data []byte, reason error)

// Consumer moves log lines from the stream to the store.
type Consumer struct {
	js     jetstream.JetStream
	store  Store
	encode Encode
	dead   DeadLetter
	log    *slog.Logger
	groups *lru.Cache[domain.RunID, string] // the group of each run, which never changes
}

const (
	durable    = "store"
	batchMax   = 100 // messages per transaction
	groupsKept = 20_000
)

// New returns a consumer that does nothing until Run.
func New(js jetstream.JetStream, store Store, encode Encode, dead DeadLetter, log *slog.Logger) (*Consumer, error) {
	groups, err := lru.New[domain.RunID, string](groupsKept)
	if err != nil {
		return nil, fmt.Errorf("make the cache of groups: %w", err)
	}
	return &Consumer{js: js, store: store, encode: encode, dead: dead, log: log, groups: groups}, nil
}

// Run stores lines until ctx ends.
func (c *Consumer) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := intake.Run(ctx, c.js, wire.StreamLogs, durable, batchMax, c.keep); err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "cannot fetch log lines, retrying", "err", err)
			wait(ctx, time.Second)
		}
	}
	return nil
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

// keep stores a batch of messages and acknowledges them. If Postgres is unavailable, keep retries for keepTries, so
// that lines stay in order. After that, it acknowledges nothing, and JetStream delivers the messages again.
func (c *Consumer) keep(ctx context.Context, msgs []jetstream.Msg) {
	tries, cancel := context.WithTimeout(ctx, keepTries)
	defer cancel()
	var bad map[int]error
	var err error
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		if bad, err = c.keepOnce(ctx, msgs); err == nil || !domain.Transient(err) {
			break
		}
		c.log.WarnContext(ctx, "cannot store log lines, retrying", "err", err)
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
			c.keep(ctx, msgs[i:i+1])
		}
		return
	}
	for i, m := range msgs {
		if err := bad[i]; err != nil {
			c.dead(ctx, "log", m.Subject(), m.Data(), err)
		}
		if err := m.Ack(); err != nil {
			c.log.DebugContext(ctx, "cannot acknowledge log lines, their redelivery changes nothing", "err", err)
		}
	}
}

const (
	keepTries = 5 * time.Second
	comeAgain = 2 * time.Second
)

// keepOnce stores the valid messages of a batch in one transaction. bad holds the errors of the others, by message
// index.
func (c *Consumer) keepOnce(ctx context.Context, msgs []jetstream.Msg) (bad map[int]error, err error) {
	ctx, cancel := context.WithTimeout(ctx, intake.AckWait/2)
	defer cancel()
	chunks, bad, err := c.chunks(ctx, msgs)
	if err != nil || len(chunks) == 0 {
		return bad, err
	}
	return bad, c.store.StoreLogs(ctx, chunks)
}

// chunks decodes messages. bad holds the errors of invalid messages, by message index.
func (c *Consumer) chunks(ctx context.Context, msgs []jetstream.Msg) (chunks []engine.LogChunk, bad map[int]error, err error) {
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
		if group, known := c.groups.Get(ids[i]); !known || group != wire.GroupOfSubject(msgs[i].Subject()) {
			bad[i] = fmt.Errorf("run %s does not exist or belongs to another group", ids[i])
			continue
		}
		chunks = append(chunks, engine.LogChunk{
			RunID: ids[i], Attempt: l.Attempt, First: l.Lines[0].N, Last: l.Lines[len(l.Lines)-1].N, Lines: c.encode(linesOf(l)),
		})
	}
	return chunks, bad, nil
}

// learn adds the groups of runs to the cache.
func (c *Consumer) learn(ctx context.Context, ids []domain.RunID) error {
	if len(ids) == 0 {
		return nil
	}
	groups, err := c.store.GroupsOf(ctx, ids)
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
