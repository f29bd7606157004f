package dispatcher

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
)

// emptyResults is a message without results, behind which others wait.
type emptyResults struct {
	jetstream.Msg
	waiting uint64
	came    time.Time
}

func (m emptyResults) Data() []byte    { return []byte(`{"v":1,"results":[]}`) }
func (m emptyResults) Subject() string { return wire.ResultSubject("g") }
func (m emptyResults) Ack() error      { return nil }
func (m emptyResults) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{NumPending: m.waiting, Timestamp: m.came}, nil
}

// While results wait to be settled, attempts are given longer before instances are asked about them: by as much as results
// are settled late.
func TestLasting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Dispatcher{log: slog.New(slog.DiscardHandler)}
		const some, many = settlers * settleMessages, settlers*settleMessages + 1
		for _, c := range []struct {
			waiting uint64
			late    time.Duration
			want    time.Duration
		}{
			{0, 0, longRun}, {some, time.Hour, longRun}, {many, 3 * time.Second, silentAfter + 3*time.Second},
			{many, time.Hour, silentAfter + backlogMax}, {many, -time.Hour, silentAfter}, // by another machine's clock
		} {
			d.settleBatchOf(t.Context(), []jetstream.Msg{emptyResults{waiting: c.waiting, came: time.Now().Add(-c.late)}})
			if got := d.lasting(); got != c.want {
				t.Errorf("while %d messages wait, the last one settled %v late: after %v, want %v", c.waiting, c.late, got, c.want)
			}
		}
		time.Sleep(behindFor)
		if got := d.lasting(); got != longRun {
			t.Errorf("after they were settled: %v", got)
		}
	})
}
