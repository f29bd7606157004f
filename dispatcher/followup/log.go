package followup

import (
	"context"
	"log/slog"
)

// riverLog returns a logger for River. Its records have the form of the other parts' records.
func riverLog(log *slog.Logger) *slog.Logger {
	return slog.New(riverHandler{log.Handler()}).With("part", "river")
}

// riverHandler drops River's routine records, unless debug is enabled. It gives all failures of River the same message, because a dozen parts of
// River fail and try again while Postgres is unavailable, and the process limits how often it logs the same message.
type riverHandler struct{ slog.Handler }

// riverFailed is the message of each record of River that has an error.
const riverFailed = "River cannot work follow-ups, retrying"

// Enabled accepts warnings and errors, and all levels if debug is enabled.
func (h riverHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, l) && (l >= slog.LevelWarn || h.Handler.Enabled(ctx, slog.LevelDebug))
}

// Handle implements slog.Handler. A record with an error becomes a warning that keeps the error and, as the step, River's own message. The ids of
// River's jobs are left out, because they are not those of Belfry's jobs.
func (h riverHandler) Handle(ctx context.Context, r slog.Record) error {
	var cause slog.Attr
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" || a.Key == "error" {
			cause = slog.Attr{Key: "err", Value: a.Value}
		}
		return cause.Key == ""
	})
	if r.Level < slog.LevelWarn || cause.Key == "" {
		return h.Handler.Handle(ctx, r)
	}
	failed := slog.NewRecord(r.Time, slog.LevelWarn, riverFailed, r.PC)
	failed.AddAttrs(slog.String("step", r.Message), cause)
	return h.Handler.Handle(ctx, failed)
}

// WithAttrs implements slog.Handler.
func (h riverHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return riverHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h riverHandler) WithGroup(name string) slog.Handler {
	return riverHandler{h.Handler.WithGroup(name)}
}
