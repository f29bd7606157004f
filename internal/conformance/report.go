package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Verdict is the result of the test of a duty.
type Verdict string

// The verdicts. Failed and Unclear fail the run.
const (
	Passed     Verdict = "pass"
	Failed     Verdict = "fail"
	NotOffered Verdict = "not offered" // the duty is optional, and the executor leaves it out completely
	Unclear    Verdict = "unclear"     // the tester was disturbed each time, or could not test the duty
)

// Line is the report on one duty.
type Line struct {
	Duty     string  `json:"duty"`
	Title    string  `json:"title"`
	Section  string  `json:"section"` // of docs/wire.md
	Optional bool    `json:"optional"`
	Verdict  Verdict `json:"verdict"`
	Seen     string  `json:"seen"`
	TookMS   int64   `json:"took_ms"`
}

// Report is the result of Run.
type Report struct {
	Executor string `json:"executor"` // the command
	Short    bool   `json:"short"`
	OK       bool   `json:"ok"` // no duty is broken or unclear
	Passed   int    `json:"passed"`
	Broken   int    `json:"broken"` // failed or unclear
	TookMS   int64  `json:"took_ms"`
	Duties   []Line `json:"duties"`
}

// count sets the fields that follow from the lines.
func (r *Report) count() {
	r.Passed, r.Broken = 0, 0
	for _, l := range r.Duties {
		switch l.Verdict {
		case Passed:
			r.Passed++
		case Failed, Unclear:
			r.Broken++
		case NotOffered:
		}
	}
	r.OK = r.Broken == 0 && len(r.Duties) > 0
}

// BrokenDuties returns the names of the duties that failed or are unclear.
func (r *Report) BrokenDuties() (ids []string) {
	for _, l := range r.Duties {
		if l.Verdict == Failed || l.Verdict == Unclear {
			ids = append(ids, l.Duty)
		}
	}
	return ids
}

// JSON writes the report for programs.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Table writes the report for people.
func (r *Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DUTY\tSECTION OF docs/wire.md\tVERDICT\tSEEN")
	for _, l := range r.Duties {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", l.Duty, l.Section, l.Verdict, printable(l.Seen))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	result := "every duty is kept"
	if !r.OK {
		result = fmt.Sprintf("%d duties are broken", r.Broken)
	}
	_, err := fmt.Fprintf(w, "\n%d duties, %d passed: %s\n", len(r.Duties), r.Passed, result)
	return err
}

// printable replaces characters that control a terminal, because some of the text comes from the executor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
