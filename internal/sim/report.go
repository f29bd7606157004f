package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// The limits of a report.
const (
	reportMax = 6   // failures
	linesMax  = 120 // lines of each trace
	lineBytes = 400 // bytes of each message
)

// report describes the failures and their history: for each failure of a run, the messages that name the run, its starts, and
// the acts of the user and the nemesis.
func (w *World) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d failures\n%s\n", w.seed, len(w.failures), w.plan.describe())
	traced := make(map[domain.RunID]bool)
	for i, f := range w.failures {
		if i == reportMax {
			fmt.Fprintf(&b, "… and %d more\n", len(w.failures)-i)
			break
		}
		if f.run.IsZero() {
			fmt.Fprintf(&b, "FAILURE %s\n", f.text)
			continue
		}
		fmt.Fprintf(&b, "FAILURE run %s: %s\n", f.run, f.text)
		if !traced[f.run] {
			traced[f.run] = true
			w.trace(&b, f.run)
		}
	}
	b.WriteString("The acts of the user and the nemesis:\n")
	for _, e := range w.events {
		if e.who == "nemesis" || !strings.Contains(e.who, "#") {
			fmt.Fprintf(&b, "  %9s %s %s\n", w.since(e.at), e.who, e.what)
		}
	}
	return b.String()
}

// trace writes the history of a run.
func (w *World) trace(b *strings.Builder, run domain.RunID) {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	id := run.String()
	for _, m := range w.messages {
		if !bytes.Contains(m.Data, []byte(id)) && !strings.Contains(string(m.Data), id) {
			continue
		}
		text := fmt.Sprintf("%s > %s %s %s", m.From, m.To, m.Subject, excerpt(m.Data, id))
		if m.Lost {
			text += " LOST"
		}
		lines = append(lines, line{m.At, text})
	}
	for _, e := range w.events {
		if strings.Contains(e.what, id) || e.who == "nemesis" || !strings.Contains(e.who, "#") {
			lines = append(lines, line{e.at, e.who + " " + e.what})
		}
	}
	for a, s := range w.handlers.starts {
		if a.run == run {
			lines = append(lines, line{s.begun, fmt.Sprintf("HANDLER attempt %d begins on %s", a.n, s.p.title)})
			if !s.ended.IsZero() {
				lines = append(lines, line{s.ended, fmt.Sprintf("HANDLER attempt %d ends, ok %v", a.n, s.ok)})
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	for i, l := range lines {
		if i == linesMax {
			fmt.Fprintf(b, "    … and %d more lines\n", len(lines)-i)
			break
		}
		fmt.Fprintf(b, "    %9s %s\n", w.since(l.at), l.text)
	}
	for _, r := range w.db.Runs() {
		if r.ID == run {
			fmt.Fprintf(b, "    in the end: %s/%s (%s) attempt %d, bind %d, instance %s, due %s, cause %s, job %d version %d\n", r.State, r.Reason, r.Message,
				r.Attempt, r.Bind, r.Instance, w.since(r.DueAt), r.Cause, r.JobID, r.JobVersion)
		}
	}
}

// excerpt returns the part of a message that is about a run.
func excerpt(data []byte, id string) string {
	i := bytes.Index(data, []byte(id))
	from := max(0, bytes.LastIndexByte(data[:i], '{'))
	out := data[from:]
	if end := bytes.IndexByte(out, '}'); end > 0 {
		out = out[:end+1]
	}
	return string(out[:min(len(out), lineBytes)])
}
