package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	// repeatAfter is the least time between two records of the same failure.
	repeatAfter = time.Minute
	// repeatsKept bounds the failures that are remembered. The keys are messages in the code, with names of groups and the like.
	repeatsKept = 1000
	// A dispatcher has about forty kinds of failures while Postgres is unavailable. The first few are enough to find the cause.
	outageBurst = 10
	outageEvery = 10 * time.Second
)

// repeats is a slog.Handler that limits how often the same failure is logged. During an outage of Postgres or NATS, every loop of
// every part of a process fails, retries and logs the failure, libraries included. The first record of a failure passes at once. Then
// one record passes per minute, and its attribute "suppressed" counts the records that were dropped before it. Different failures
// with the same cause, a server that is unavailable, also share a budget: ten records at once, then one every ten seconds.
//
// A failure is a record of level Warn or Error with the attribute err, or error in a library. Two records are the same failure if they have
// the same message and the same values of the attributes in subjectKeys. Numbers, ids and the text of the error do not distinguish
// failures, because they change with every retry. Records without an error state facts, such as a lost run, and always pass.
type repeats struct {
	slog.Handler
	fixed  string // the values of subjectKeys that WithAttrs has set
	shared *repeatCounts
}

// subjectKeys are the keys of attributes that say what failed.
var subjectKeys = map[string]bool{"part": true, "kind": true, "group": true, "channel": true, "file": true, "queue": true}

type repeatCounts struct {
	outage *rate.Limiter // of records about a server that is unavailable

	mu   sync.Mutex
	last map[string]repeat // guarded by mu
}

// repeat is what is remembered of a failure.
type repeat struct {
	at         time.Time // of the last record that passed; zero: none has
	suppressed int       // since then
}

func limitRepeats(h slog.Handler) slog.Handler {
	return &repeats{Handler: h, shared: newRepeatCounts()}
}

func newRepeatCounts() *repeatCounts {
	return &repeatCounts{outage: rate.NewLimiter(rate.Every(outageEvery), outageBurst), last: make(map[string]repeat)}
}

// Handle implements slog.Handler.
func (h *repeats) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	failed, outage := false, false
	var key strings.Builder
	key.WriteString(r.Message + h.fixed)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" || a.Key == "error" {
			failed, outage = true, isOutage(a.Value)
		}
		key.WriteString(subject(a))
		return true
	})
	if !failed {
		return h.Handler.Handle(ctx, r)
	}
	suppressed, pass := h.shared.count(key.String(), outage, r.Time)
	if !pass {
		return nil
	}
	if suppressed > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", suppressed))
	}
	return h.Handler.Handle(ctx, r)
}

// subject returns the part of the key that an attribute adds.
func subject(a slog.Attr) string {
	if !subjectKeys[a.Key] {
		return ""
	}
	return "\x00" + a.Key + "=" + a.Value.String()
}

// isOutage reports whether an error says that a server is unavailable. Libraries log only the text of an error, which says nothing
// to a program.
func isOutage(v slog.Value) bool {
	err, ok := v.Any().(error)
	if !ok || domain.CodeOf(err) == domain.Unavailable {
		return true
	}
	for _, known := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrConnectionClosed,
		nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, jetstream.ErrNoHeartbeat, jetstream.ErrNoStreamResponse,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	var network net.Error
	return errors.As(err, &network)
}

// count reports whether a record may pass and, if so, how many were suppressed before it.
func (c *repeatCounts) count(key string, outage bool, now time.Time) (suppressed int, pass bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, known := c.last[key]
	if !known && len(c.last) >= repeatsKept {
		c.forget(now)
	}
	if !r.at.IsZero() && now.Sub(r.at) < repeatAfter || outage && !c.outage.AllowN(now, 1) {
		r.suppressed++
		c.last[key] = r
		return 0, false
	}
	c.last[key] = repeat{at: now}
	return r.suppressed, true
}

// forget makes room: it drops the failures that may be logged again anyway or, if there are none, all.
func (c *repeatCounts) forget(now time.Time) {
	for key, r := range c.last {
		if now.Sub(r.at) >= repeatAfter {
			delete(c.last, key)
		}
	}
	if len(c.last) >= repeatsKept {
		clear(c.last)
	}
}

// WithAttrs implements slog.Handler.
func (h *repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	fixed := h.fixed
	for _, a := range attrs {
		fixed += subject(a)
	}
	return &repeats{h.Handler.WithAttrs(attrs), fixed, h.shared}
}

// WithGroup implements slog.Handler.
func (h *repeats) WithGroup(name string) slog.Handler {
	return &repeats{h.Handler.WithGroup(name), h.fixed, h.shared}
}
