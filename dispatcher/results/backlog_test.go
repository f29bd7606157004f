package results

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
)

// emptyResults is a message without results. Other messages wait behind it.
type emptyResults struct {
	jetstream.Msg
	waiting   uint64
	published time.Time
}

func (m emptyResults) Data() []byte    { return []byte(`{"v":1,"results":[]}`) }
func (m emptyResults) Subject() string { return wire.ResultSubject("g") }
func (m emptyResults) Ack() error      { return nil }
func (m emptyResults) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{NumPending: m.waiting, Timestamp: m.published}, nil
}

// Backlog returns how late results are settled while many wait, and for a short time afterwards.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{Log: slog.New(slog.DiscardHandler)})
		const some, many = settlers * maxMessages, settlers*maxMessages + 1
		for _, b := range []struct {
			waiting uint64
			late    time.Duration
			age     time.Duration
			ok      bool
		}{
			{0, 0, 0, false}, {some, time.Hour, 0, false}, {many, 3 * time.Second, 3 * time.Second, true},
			{many, time.Hour, maxBacklog, true}, {many, -time.Hour, 0, true}, // published by a machine whose clock is ahead
		} {
			c.take(t.Context(), []jetstream.Msg{emptyResults{waiting: b.waiting, published: time.Now().Add(-b.late)}})
			if age, ok := c.Backlog(); age != b.age || ok != b.ok {
				t.Errorf("while %d messages wait, and the last one was settled %v late: %v, %v", b.waiting, b.late, age, ok)
			}
		}
		time.Sleep(behindFor)
		if age, ok := c.Backlog(); ok {
			t.Errorf("after the messages were settled: %v", age)
		}
	})
}
