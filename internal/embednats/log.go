package embednats

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Whoever reaches the port can cause a warning with each log-in.
const (
	warningsPerSecond = 5
	warningsAtOnce    = 50
)

// logger hands the server's lines to slog. The server's notices are news to its developers only, so they and
// its debug lines are level debug; what it calls an error may be a client's bad token, so that is a warning.
type logger struct {
	log      *slog.Logger
	fatal    chan string // the first complaint after which the server does not start
	limit    *rate.Limiter
	withheld atomic.Int64 // warnings since the last one that was written
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

// Fatalf does not exit, as the server expects of its own logger; Start turns the complaint into its error.
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
		l.log.Warn("NATS server warnings withheld", "count", n)
	}
	l.write(slog.LevelWarn, format, v)
}

func (l *logger) write(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "NATS server", "text", fmt.Sprintf(format, v...))
	}
}
