package alert

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// Templates are bounded in time and output:
//
//   - They cannot call functions whose result is longer than their arguments, such as printf, which could return megabytes.
//   - They cannot call templates, which could call themselves.
//   - They can range only over the log, with at most two nested ranges.
//   - Execution ends when the output exceeds its maximum size.
//
// The first three are checked when a channel is saved.

// allowed lists the functions that a template may call. All but upper and lower belong to text/template.
var allowed = []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "upper", "lower"}

var functions = template.FuncMap{"upper": strings.ToUpper, "lower": strings.ToLower}

const (
	maxSubject   = 250      // runes
	maxTextBytes = 16 << 10 // maximum output of a template
	maxRanges    = 2
)

var ansi = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)

// compile parses a template and rejects constructs that could run long.
func compile(text string) (*template.Template, error) {
	if len(text) > maxTemplateBytes {
		return nil, fmt.Errorf("is over %d bytes", maxTemplateBytes)
	}
	t, err := template.New("").Funcs(functions).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("is not a Go template: %s", plainError(err))
	}
	if len(t.Templates()) > 1 {
		return nil, errors.New("must not define templates")
	}
	if t.Tree == nil || t.Tree.Root == nil {
		return t, nil
	}
	if err := check(t.Tree.Root, 0); err != nil {
		return nil, err
	}
	// References to unknown fields cause errors only on execution.
	for _, v := range []view{{}, sample} {
		if _, err := run(t, &v); err != nil {
			return nil, fmt.Errorf("does not work: %s", plainError(err))
		}
	}
	return t, nil
}

// plainError returns a template's error without the parts that mean nothing to the author of the template.
func plainError(err error) string {
	return noise.ReplaceAllString(strings.TrimPrefix(err.Error(), "template: "), "")
}

var noise = regexp.MustCompile(`^:|executing "" at | in type \*?alert\.view`)

// check returns an error if a template's tree contains a construct that is not allowed.
func check(n parse.Node, ranges int) error {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, c := range n.Nodes {
			if err := check(c, ranges); err != nil {
				return err
			}
		}
	case *parse.ActionNode:
		return check(n.Pipe, ranges)
	case *parse.IfNode:
		return checkBranch(&n.BranchNode, ranges)
	case *parse.WithNode:
		return checkBranch(&n.BranchNode, ranges)
	case *parse.RangeNode:
		if ranges == maxRanges {
			return errors.New("has too many nested ranges")
		}
		if p := n.Pipe.String(); !slices.Contains([]string{".Log", "$.Log"}, p[strings.LastIndexByte(p, ' ')+1:]) {
			return fmt.Errorf("may range over .Log only, not over %s", p)
		}
		return checkBranch(&n.BranchNode, ranges+1)
	case *parse.PipeNode:
		if n == nil {
			return nil
		}
		for _, c := range n.Cmds {
			for _, a := range c.Args {
				if err := check(a, ranges); err != nil {
					return err
				}
			}
		}
	case *parse.ChainNode:
		return check(n.Node, ranges)
	case *parse.IdentifierNode:
		if !slices.Contains(allowed, n.Ident) {
			return fmt.Errorf("must not call %s; it may call %s", n.Ident, strings.Join(allowed, ", "))
		}
	case *parse.TemplateNode:
		return errors.New("must not call templates")
	}
	return nil // the other nodes are harmless
}

func checkBranch(b *parse.BranchNode, ranges int) error {
	for _, n := range []parse.Node{b.Pipe, b.List, b.ElseList} {
		if err := check(n, ranges); err != nil {
			return err
		}
	}
	return nil
}

// view is the data of a template: a message's text and numbers, escaped for the channel's markup, without methods.
type view struct {
	ID, Kind, Headline, At             string
	JobID                              int64
	Job, Group, RunID, URL             string
	TraceID, TraceURL, RunbookURL      string
	State, Cause, Reason, Message      string
	Instance, FireTime                 string
	Attempt, MaxAttempts               int
	Shards, ShardsFailed               int
	Lateness                           string
	Count                              int64
	Since                              string
	MissedFirst, MissedLast, MissedWhy string
	Log                                []string
}

var sample = view{
	ID: "1", Kind: "failed", Headline: "failed", At: "2026-03-29 01:30:00 UTC", JobID: 1, Job: "nightly", Group: "default", RunID: "r", URL: "u", TraceID: "t", TraceURL: "v", RunbookURL: "w",
	State: "failed", Cause: "schedule", Reason: "timeout", Message: "m", Instance: "i", FireTime: "t", Attempt: 1, MaxAttempts: 2, Shards: 3,
	ShardsFailed: 1, Lateness: "1m0s", Count: 2, Since: "t", MissedFirst: "t", MissedLast: "t", MissedWhy: "w", Log: []string{"one", "two"},
}

// missedWhy returns the reason of missed fire times in a language.
func missedWhy(m *engine.MissedAt, lang Language) string {
	if lang == Chinese {
		return tidy(explain.ChineseMissed(m.Reason()), maxFieldRunes)
	}
	return m.Why
}

// runMessage returns the message of a run in a language.
func runMessage(m *Message, lang Language) string {
	if lang == Chinese {
		return tidyLines(explain.MessageIn(m.Parts, m.Message, explain.Chinese), maxMessage)
	}
	return m.Message
}

// see returns the view of a message with every text escaped.
func see(m *Message, lang Language, escape func(string) string) *view {
	instant := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
	v := &view{
		ID: m.ID, Kind: string(m.Kind), Headline: headline(m, lang), At: instant(m.At.Time), JobID: int64(m.JobID),
		Job: escape(m.Job), Group: escape(m.Group), RunID: m.RunID, URL: escape(m.URL), TraceID: m.TraceID, TraceURL: escape(m.TraceURL), RunbookURL: escape(m.RunbookURL), State: string(m.State), Cause: string(m.Cause),
		Reason: escape(string(m.Reason)), Message: escape(runMessage(m, lang)), Instance: escape(m.Instance), FireTime: escape(m.LocalTime),
		Attempt: m.Attempt, MaxAttempts: m.MaxAttempts, Shards: m.Shards, ShardsFailed: m.ShardsBad, Count: m.Count,
	}
	if m.LatenessMS > 0 {
		v.Lateness = (time.Duration(m.LatenessMS) * time.Millisecond).String()
	}
	if m.Since != nil {
		v.Since = instant(m.Since.Time)
	}
	if m.Missed != nil {
		v.MissedFirst, v.MissedLast, v.MissedWhy = instant(m.Missed.First.Time), instant(m.Missed.Last.Time), escape(missedWhy(m.Missed, lang))
	}
	for _, l := range m.Log {
		v.Log = append(v.Log, escape(l))
	}
	return v
}

var errTooLong = errors.New("its output is too long")

// bounded is a writer with a maximum number of bytes.
type bounded struct{ strings.Builder }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxTextBytes {
		p = p[:max(0, maxTextBytes-b.Len())]
		b.Builder.Write(p)
		return len(p), errTooLong
	}
	return b.Builder.Write(p)
}

// run executes a template. With an error, it returns the output so far.
func run(t *template.Template, v *view) (string, error) {
	var out bounded
	err := t.Execute(&out, v)
	if errors.Is(err, errTooLong) {
		err = nil // a shortened alert is better than none
	}
	return strings.ToValidUTF8(out.String(), ""), err
}

// Rendered is a message in the form of a channel.
type Rendered struct{ Subject, Text string }

// Render returns the one-line subject and the text of a message for a channel. If the channel's template fails, Render uses the
// default text, because an alert with another text is better than none.
func Render(c *Channel, m Message) Rendered {
	m = m.Bounded()
	v := see(&m, c.Language, escaper(c.Kind))
	say := func(own, usual string) string {
		if own != "" {
			if t, err := compile(own); err == nil {
				if s, err := run(t, v); err == nil {
					return s
				}
			}
		}
		s, err := run(template.Must(template.New("").Funcs(functions).Parse(usual)), v)
		if err != nil {
			return v.Group + "/" + v.Job + " " + v.Headline // a fallback; the default texts are tested and do not fail
		}
		return s
	}
	usual := texts[English]
	if t, ok := texts[c.Language]; ok {
		usual = t
	}
	return Rendered{
		Subject: strings.TrimSpace(tidy(say(c.Subject, usual.Subject), maxSubject)),
		Text:    strings.TrimSpace(say(c.Text, usual.Text)),
	}
}

// escaper returns the function that escapes untrusted text for a kind of channel. Slack has control sequences in angle brackets.
// The other kinds are sent in forms without markup.
func escaper(k Kind) func(string) string {
	if k == KindSlack {
		return slackEscape.Replace
	}
	return func(s string) string { return s }
}

var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// texts are the default texts.
var texts = map[Language]Rendered{
	English: {
		Subject: `[Belfry] {{.Group}}/{{.Job}} {{.Headline}}`,
		Text: `{{.Group}}/{{.Job}} {{.Headline}}{{if and (gt .Count 1) .Since (ne .Kind "recovered")}} since {{.Since}}{{end}}
{{- if eq .Kind "recovered"}} after {{.Count}} failed{{if .Since}}, the first at {{.Since}}{{end}}{{end}}
{{- if .Reason}}
Reason: {{.Reason}}{{end}}
{{- if .Message}}
Message: {{.Message}}{{end}}
{{- if .ShardsFailed}}
Shards: {{.ShardsFailed}} of {{.Shards}} did not succeed{{end}}
{{- if .Lateness}}
Late by: {{.Lateness}}{{end}}
{{- if .MissedFirst}}
Missed: {{.MissedFirst}} to {{.MissedLast}}: {{.MissedWhy}}{{end}}
{{- if .FireTime}}
Fire time: {{.FireTime}}{{end}}
{{- if .Attempt}}
Attempt: {{.Attempt}} of {{.MaxAttempts}}{{if .Instance}}, on {{.Instance}}{{end}}{{end}}
{{- if .RunbookURL}}
Runbook: {{.RunbookURL}}{{end}}
{{- if .RunID}}
Run: {{.RunID}}{{end}}
{{- if .URL}}
{{.URL}}{{end}}
{{- if .TraceURL}}
Trace: {{.TraceURL}}{{end}}
{{- if .Log}}

Last lines of its log:{{range .Log}}
  {{.}}{{end}}{{end}}
`},
	Chinese: {
		Subject: `[Belfry] {{.Group}}/{{.Job}} {{.Headline}}`,
		Text: `{{.Group}}/{{.Job}} {{.Headline}}{{if and (gt .Count 1) .Since (ne .Kind "recovered")}}(自 {{.Since}} 起){{end}}
{{- if eq .Kind "recovered"}}(此前失败 {{.Count}} 次{{if .Since}},首次于 {{.Since}}{{end}}){{end}}
{{- if .Reason}}
原因:{{.Reason}}{{end}}
{{- if .Message}}
信息:{{.Message}}{{end}}
{{- if .ShardsFailed}}
分片:共 {{.Shards}} 个,{{.ShardsFailed}} 个未成功{{end}}
{{- if .Lateness}}
延迟:{{.Lateness}}{{end}}
{{- if .MissedFirst}}
错过:{{.MissedFirst}} 至 {{.MissedLast}}({{.MissedWhy}}){{end}}
{{- if .FireTime}}
触发时间:{{.FireTime}}{{end}}
{{- if .Attempt}}
尝试:第 {{.Attempt}} 次,共 {{.MaxAttempts}} 次{{if .Instance}},实例 {{.Instance}}{{end}}{{end}}
{{- if .RunbookURL}}
处理手册:{{.RunbookURL}}{{end}}
{{- if .RunID}}
运行:{{.RunID}}{{end}}
{{- if .URL}}
{{.URL}}{{end}}
{{- if .TraceURL}}
调用链:{{.TraceURL}}{{end}}
{{- if .Log}}

日志末尾:{{range .Log}}
  {{.}}{{end}}{{end}}
`},
}
