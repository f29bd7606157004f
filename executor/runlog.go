package executor

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// lineHandler writes slog records into a run's log: the message, then its attributes as key=value.
type lineHandler struct {
	run   *runState
	attrs slog.Handler // writes the attributes alone, into buf
	mu    *sync.Mutex  // guards buf; shared with the copies that WithAttrs and WithGroup make
	buf   *bytes.Buffer
}

// onlyAttrs replaces the message while attributes are formatted. It distinguishes the message from an attribute that a
// caller named msg.
const onlyAttrs = "\x00only attributes"

func newLineHandler(run *runState) *lineHandler {
	h := &lineHandler{run: run, mu: new(sync.Mutex), buf: new(bytes.Buffer)}
	h.attrs = slog.NewTextHandler(h.buf, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return a
			}
			_, level := a.Value.Any().(slog.Level)
			if a.Key == slog.LevelKey && level || a.Key == slog.MessageKey && a.Value.String() == onlyAttrs {
				return slog.Attr{}
			}
			return a
		},
	})
	return h
}

// Enabled implements slog.Handler.
func (h *lineHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelDebug
}

// Handle implements slog.Handler.
func (h *lineHandler) Handle(ctx context.Context, r slog.Record) error {
	bare := slog.NewRecord(time.Time{}, r.Level, onlyAttrs, 0) // slog does not write a zero time
	r.Attrs(func(a slog.Attr) bool { bare.AddAttrs(a); return true })
	h.mu.Lock()
	h.buf.Reset()
	err := h.attrs.Handle(ctx, bare)
	attrs := strings.TrimSpace(h.buf.String())
	h.mu.Unlock()
	text := r.Message
	if attrs != "" {
		text += " " + attrs
	}
	h.run.write(levelName(r.Level), text)
	return err
}

// WithAttrs implements slog.Handler.
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.attrs = h.attrs.WithAttrs(attrs)
	return &with
}

// WithGroup implements slog.Handler.
func (h *lineHandler) WithGroup(name string) slog.Handler {
	with := *h
	with.attrs = h.attrs.WithGroup(name)
	return &with
}

func levelName(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "debug"
	case l < slog.LevelWarn:
		return "info"
	case l < slog.LevelError:
		return "warn"
	}
	return "error"
}

// lineWriter splits a stream into lines. It cuts a line over MaxLine and skips the rest of it, so that a process that
// never breaks a line needs no more memory.
type lineWriter struct {
	level string
	run   *runState
	mu    sync.Mutex
	part  []byte
}

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			w.keep(p)
			return n, nil
		}
		w.keep(p[:i])
		w.emit()
		p = p[i+1:]
	}
}

// keep appends to the unfinished line. It keeps one byte over the limit, so that clip sees that the line was longer.
func (w *lineWriter) keep(p []byte) {
	room := MaxLine + 1 - len(w.part)
	w.part = append(w.part, p[:min(len(p), room)]...)
}

func (w *lineWriter) emit() {
	w.run.journal.hold()
	w.run.mu.Lock()
	w.run.line(w.level, strings.TrimSuffix(string(w.part), "\r"))
	w.run.mu.Unlock()
	w.part = w.part[:0]
}

func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.part) > 0 {
		w.emit()
	}
}
