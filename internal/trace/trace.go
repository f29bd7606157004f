package trace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
)

// ID identifies a trace.
type ID [16]byte

// String returns the hexadecimal form.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// SpanID identifies a span of a trace.
type SpanID [8]byte

// IsZero reports whether the id identifies no span.
func (id SpanID) IsZero() bool { return id == SpanID{} }

// Context is the place of a run in its trace.
type Context struct {
	Trace  ID
	Parent SpanID // the span that caused the run; zero: the run's span is the first one
	// Flags are the flags of the caller's traceparent. Decided says whether they are known: without them, the sampler decides.
	Flags   byte
	Decided bool
}

// Sampled is the flag that the caller records the trace.
const Sampled byte = 1

// knownFlags are the flags that version 00 of traceparent defines: sampled and random.
const knownFlags = 3

const (
	traceparentLength = len("00-00000000000000000000000000000000-0000000000000000-00")
	undecidedLength   = len("00000000000000000000000000000000-0000000000000000")
	decidedLength     = undecidedLength + len("-00")
)

// Parse reads the value of a traceparent header. It reports false if the value is not valid; the caller ignores the header then.
func Parse(traceparent string) (c Context, ok bool) {
	s := strings.Trim(traceparent, " \t")
	if len(s) < traceparentLength || s[2] != '-' || !isHex(s[:2]) || s[:2] == "ff" {
		return Context{}, false
	}
	// A later version may append fields.
	if len(s) > traceparentLength && (s[:2] == "00" || s[traceparentLength] != '-') {
		return Context{}, false
	}
	return read(s[3:traceparentLength])
}

// read reads the stored form.
func read(s string) (c Context, ok bool) {
	if len(s) != undecidedLength && len(s) != decidedLength {
		return Context{}, false
	}
	if !isHex(s[:32]) || s[32] != '-' || !isHex(s[33:undecidedLength]) {
		return Context{}, false
	}
	hexInto(c.Trace[:], s[:32])
	hexInto(c.Parent[:], s[33:undecidedLength])
	if len(s) == decidedLength {
		var flags [1]byte
		if s[undecidedLength] != '-' || !isHex(s[undecidedLength+1:]) {
			return Context{}, false
		}
		hexInto(flags[:], s[undecidedLength+1:])
		c.Flags, c.Decided = flags[0]&knownFlags, true
	}
	if c.Trace == (ID{}) || c.Parent.IsZero() {
		return Context{}, false
	}
	return c, true
}

// isHex reports whether s has only digits and lower-case letters a to f.
func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// hexInto decodes valid hexadecimal digits.
func hexInto(to []byte, s string) { _, _ = hex.Decode(to, []byte(s)) }

// Continue returns the form in which a run stores the trace of a traceparent header, or "" if the header is absent or not valid.
func Continue(traceparent string) string {
	if traceparent == "" {
		return ""
	}
	c, ok := Parse(traceparent)
	if !ok {
		return ""
	}
	return c.String()
}

// String returns the form in which a run stores its trace: the trace id, the id of the span that caused the run and, if they are known, the
// flags. A context without a parent is not stored.
func (c Context) String() string {
	b := hex.AppendEncode(make([]byte, 0, decidedLength), c.Trace[:])
	b = hex.AppendEncode(append(b, '-'), c.Parent[:])
	if c.Decided {
		b = hex.AppendEncode(append(b, '-'), []byte{c.Flags})
	}
	return string(b)
}

// Of returns the trace of a run. stored is the run's stored trace, and first is the run's id or, for a shard, the id of its broadcast.
func Of(stored string, first domain.RunID) Context {
	if stored != "" {
		if c, ok := read(stored); ok {
			return c
		}
	}
	h := hash("trace", first, 0)
	return Context{Trace: ID(h[:16])}
}

// OfChild returns the trace of a child. The arguments describe the parent, as for Of.
func OfChild(stored string, first, parent domain.RunID) Context {
	c := Of(stored, first)
	c.Parent = RunSpan(parent)
	return c
}

// RunSpan returns the id of the span of a run.
func RunSpan(run domain.RunID) SpanID { return span("run", run, 0) }

// AttemptSpan returns the id of the span of an attempt.
func AttemptSpan(run domain.RunID, attempt int) SpanID {
	return span("attempt", run, uint64(attempt))
}

func span(kind string, run domain.RunID, n uint64) SpanID {
	h := hash(kind, run, n)
	return SpanID(h[:8])
}

// hash computes an id. A hash of zeros, which is not a valid id, does not occur in practice.
func hash(kind string, run domain.RunID, n uint64) [sha256.Size]byte {
	var b [40]byte
	i := copy(b[:], kind)
	i += copy(b[i:], run[:])
	binary.BigEndian.PutUint64(b[i:], n)
	return sha256.Sum256(b[:])
}

// Traceparent returns the value of a traceparent header.
func Traceparent(trace ID, span SpanID, flags byte) string {
	b := append(make([]byte, 0, traceparentLength), "00-"...)
	b = hex.AppendEncode(b, trace[:])
	b = hex.AppendEncode(append(b, '-'), span[:])
	return string(hex.AppendEncode(append(b, '-'), []byte{flags}))
}

// Forward returns the traceparent that a process without an exporter passes to the executor of a run that stores this trace: the
// caller's traceparent, unchanged, because no process exports the spans in between. It is "" if the run continues no caller's trace.
func Forward(stored string) string {
	c, ok := read(stored)
	if !ok || !c.Decided {
		return ""
	}
	return Traceparent(c.Trace, c.Parent, c.Flags)
}

// URL returns the address of a trace from a template with the place holder {trace_id}, or "" if there is no template.
func URL(template, traceID string) string {
	if template == "" || traceID == "" {
		return ""
	}
	return strings.ReplaceAll(template, "{trace_id}", traceID)
}
