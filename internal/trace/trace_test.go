package trace_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/trace"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
	valid   = "00-" + traceID + "-" + spanID + "-01"
)

func TestContinue(t *testing.T) {
	for _, tt := range []struct{ name, traceparent, want string }{
		{"valid", valid, traceID + "-" + spanID + "-01"},
		{"with white space", " " + valid + "\t", traceID + "-" + spanID + "-01"},
		{"not sampled", strings.TrimSuffix(valid, "1") + "0", traceID + "-" + spanID + "-00"},
		{"unknown flags", strings.TrimSuffix(valid, "01") + "ff", traceID + "-" + spanID + "-03"},
		{"a later version", "cc" + valid[2:] + "-more", traceID + "-" + spanID + "-01"},
		{"absent", "", ""},
		{"version ff", "ff" + valid[2:], ""},
		{"version 00 with more", valid + "-more", ""},
		{"a later version with a longer flag", "cc" + valid[2:] + "1", ""},
		{"upper case", strings.ToUpper(valid), ""},
		{"short", valid[:54], ""},
		{"no digits", "00-" + strings.Repeat("g", 32) + "-" + spanID + "-01", ""},
		{"no dash", "00-" + traceID + "0" + spanID + "-01", ""},
		{"zero trace", "00-" + strings.Repeat("0", 32) + "-" + spanID + "-01", ""},
		{"zero span", "00-" + traceID + "-" + strings.Repeat("0", 16) + "-01", ""},
	} {
		if got := trace.Continue(tt.traceparent); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(valid)
	f.Add("cc" + valid[2:] + "-more")
	f.Fuzz(func(t *testing.T, s string) {
		stored := trace.Continue(s)
		if stored == "" {
			return
		}
		c := trace.Of(stored, domain.NilRunID)
		if c.String() != stored || trace.Forward(stored) != trace.Traceparent(c.Trace, c.Parent, c.Flags) || trace.Continue(trace.Forward(stored)) != stored {
			t.Errorf("%q is stored as %q and read as %+v", s, stored, c)
		}
	})
}

// A release must compute the same ids as the releases before it, because processes of two releases export spans of the same runs.
func TestIDsNeverChange(t *testing.T) {
	run := domain.ScheduledRunID(7, time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC), 0)
	own := trace.Of("", run)
	if got, want := own.Trace.String(), "2f12880549e938ae6f88d6ec2b8f151d"; got != want {
		t.Errorf("trace id %s, want %s", got, want)
	}
	if got, want := trace.Traceparent(own.Trace, trace.RunSpan(run), 1), "00-2f12880549e938ae6f88d6ec2b8f151d-9c2554f1334e4c8c-01"; got != want {
		t.Errorf("run span: %s, want %s", got, want)
	}
	if got, want := trace.Traceparent(own.Trace, trace.AttemptSpan(run, 2), 0), "00-2f12880549e938ae6f88d6ec2b8f151d-81e6724b648aea88-00"; got != want {
		t.Errorf("attempt span: %s, want %s", got, want)
	}
}

func TestChildren(t *testing.T) {
	parent := domain.NewRunID(time.Now())
	own := trace.Of("", parent)
	child := trace.OfChild("", parent, parent)
	if child.Trace != own.Trace || child.Parent != trace.RunSpan(parent) || child.Decided {
		t.Errorf("a child of a run with its own trace: %+v", child)
	}
	if trace.Forward(child.String()) != "" {
		t.Errorf("no caller records the trace, but it is forwarded")
	}
	grandchild := trace.OfChild(child.String(), domain.NewRunID(time.Now()), domain.NewRunID(time.Now()))
	if grandchild.Trace != own.Trace {
		t.Errorf("a grandchild has another trace: %+v", grandchild)
	}
	continued := trace.OfChild(trace.Continue(valid), parent, parent)
	if continued.Trace.String() != traceID || !continued.Decided || continued.Flags != trace.Sampled || continued.Parent != trace.RunSpan(parent) {
		t.Errorf("a child of a run that continues a trace: %+v", continued)
	}
	if damaged := trace.Of("no trace", parent); damaged != own {
		t.Errorf("a damaged value: %+v", damaged)
	}
}

// Ratio samplers of OpenTelemetry read the last 8 bytes as a number.
func TestTraceIDsAreUniform(t *testing.T) {
	const runs = 4000
	var quarters [4]int
	for i := range runs {
		id := trace.Of("", domain.ScheduledRunID(1, time.UnixMilli(int64(i)), 0)).Trace
		quarters[binary.BigEndian.Uint64(id[8:])>>62]++
	}
	for q, n := range quarters {
		if n < runs/5 || n > runs*3/10 {
			t.Errorf("quarter %d has %d of %d trace ids", q, n, runs)
		}
	}
}

func TestURL(t *testing.T) {
	for template, want := range map[string]string{
		"": "", "https://t.example/trace/{trace_id}": "https://t.example/trace/" + traceID, "https://t.example/{trace_id}?t={trace_id}": "https://t.example/" + traceID + "?t=" + traceID,
	} {
		if got := trace.URL(template, traceID); got != want {
			t.Errorf("%q: got %q", template, got)
		}
	}
}
