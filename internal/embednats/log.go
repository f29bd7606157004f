package embednats

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Anyone who can reach the port can cause a warning with each log-in.
const (
	warningsPerSecond = 5
	warningsAtOnce    = 50
)

// logger passes the server's log lines to slog. The server's notices concern only its developers, so they and its debug
// lines are logged at level debug. A server error may be caused by a client's bad token, so it is a warning.
type logger struct {
	log      *slog.Logger
	fatal    chan string // the first error that prevents the server's start
	limit    *rate.Limiter
	withheld atomic.Int64 // warnings dropped since the last written one
}

func newLogger(log *slog.Logger) *logger {
	return &logger{
		log:   log.With("component", "nats"),
		fatal: make(chan string, 1),
		limit: rate.NewLimiter(warningsPerSecond, warningsAtOnce),
	}
}

func (l *logger) debug() bool { return l.log.Enabled(context.Background(), slog.LevelDebug) }

func (l *logger) Noticef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.warn(format, v) }
func (l *logger) Errorf(format string, v ...any)  { l.warn(format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.write(slog.LevelDebug, format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.write(slog.LevelDebug, format, v) }

// Fatalf does not exit, although the server expects its logger to; Start returns the message as its error.
func (l *logger) Fatalf(format string, v ...any) {
	l.write(slog.LevelError, format, v)
	select {
	case l.fatal <- fmt.Sprintf(format, v...):
	default:
	}
}

func (l *logger) warn(format string, v []any) {
	if !l.limit.Allow() {
		l.withheld.Add(1)
		return
	}
	if n := l.withheld.Swap(0); n > 0 {
		l.log.Warn("the NATS server wrote too many warnings, some are left out", "count", n)
	}
	l.write(slog.LevelWarn, format, v)
}

func (l *logger) write(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "NATS server", "text", fmt.Sprintf(format, v...))
	}
}
