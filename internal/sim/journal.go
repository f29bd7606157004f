package sim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/sim/simnats"
)

// journal records what happens in a world, and the failures that the world and its checks find.
type journal struct {
	began time.Time

	mu       sync.Mutex
	events   []event
	messages []simnats.Message
	failures []failure
}

// event is an entry of the trace that a failure's report prints.
type event struct {
	at   time.Time
	who  string // nemesis, user, a node, or a process such as d1#2
	what string
}

// failure is a broken promise.
type failure struct {
	run  domain.RunID // NilRunID if the failure is not about one run
	text string
}

func (j *journal) event(who, what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, event{time.Now(), who, what})
}

// message records a message between a process and NATS.
func (j *journal) message(m simnats.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.messages = append(j.messages, m)
}

// fail records a failure that is not about one run.
func (j *journal) fail(format string, args ...any) { j.failRun(domain.NilRunID, format, args...) }

// failRun records a failure that is about one run.
func (j *journal) failRun(run domain.RunID, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failures = append(j.failures, failure{run, fmt.Sprintf(format, args...)})
}

// since returns an instant as the time since the start of the world.
func (j *journal) since(t time.Time) string {
	return t.Sub(j.began).Truncate(time.Millisecond).String()
}

// logger returns a logger whose warnings and errors become events.
func (j *journal) logger(who string) *slog.Logger { return slog.New(&eventHandler{j, who}) }

type eventHandler struct {
	journal *journal
	who     string
}

func (h *eventHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (h *eventHandler) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h *eventHandler) WithGroup(string) slog.Handler                { return h }

func (h *eventHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Level.String() + " " + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	h.journal.event(h.who, b.String())
	return nil
}
