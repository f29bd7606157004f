package wire

import (
	"bytes"
	"slices"
	"time"
)

// Messages that arrive for every run are parsed by hand if they have this package's own form: compact, with the fields
// in order, and with text that needs no escapes. All other messages, for example from an executor in another language,
// are parsed by encoding/json. The tests verify that both parsers agree.

// canonical is a message that has a parser in this file. parse reports whether it could read data. If not, the message
// is unchanged.
type canonical interface{ parse(data []byte) bool }

// parse reuses the memory of m.Offers, which is empty. It clears that memory first, because encoding/json keeps the old
// values of missing fields.
func (m *Offers) parse(data []byte) bool {
	clear(m.Offers[:cap(m.Offers)])
	p := parser{rest: data}
	var out Offers
	out.V = p.version()
	out.BootID = p.text(`,"boot_id":`)
	if p.has(`,"beat":`) {
		out.Beat = p.integer()
	}
	out.Offers = slices.Grow(m.Offers[:0], min(bytes.Count(data, []byte(`{"run_id":`)), MaxOffers))
	var last Offer
	p.list(`,"offers":`, func() {
		last = p.offer(&last)
		out.Offers = append(out.Offers, last)
	})
	return p.end() && assign(m, out)
}

// offer parses an offer. It shares strings with the last offer if they are equal.
func (p *parser) offer(last *Offer) Offer {
	o := Offer{
		RunID: p.text(`{"run_id":`), Attempt: int(p.number(`,"attempt":`)), Bind: int(p.number(`,"bind":`)), BoundAt: p.time(`,"bound_at":`),
		JobID: p.number(`,"job_id":`), JobName: p.again(`,"job_name":`, last.JobName), Group: p.again(`,"group":`, last.Group),
		Handler: p.maybe(`,"handler":`, last.Handler), Param: p.again(`,"param":`, last.Param), Cause: p.again(`,"cause":`, last.Cause),
		FireTime: p.time(`,"fire_time":`), DueAt: p.time(`,"due_at":`), Now: p.time(`,"now":`),
		TimeoutMS: p.number(`,"timeout_ms":`), Shard: Shard{Index: int(p.number(`,"shard":{"index":`)), Total: int(p.number(`,"total":`))},
	}
	p.need(`}`)
	if p.has(`,"labels":{`) {
		o.Labels = p.labels()
	}
	p.need(`}`) // offers with scripts or parents are rare and left to encoding/json
	return o
}

// labels parses the rest of an object with at least one string.
func (p *parser) labels() map[string]string {
	labels := make(map[string]string, 1)
	for !p.failed {
		name := p.string("")
		p.need(`:`)
		labels[name] = p.string("")
		if !p.has(`,`) {
			break
		}
	}
	p.need(`}`)
	return labels
}

func (m *Results) parse(data []byte) bool {
	p := parser{rest: data}
	var out Results
	out.V = p.version()
	out.Load = p.load()
	out.Results = make([]Result, 0, min(bytes.Count(data, []byte(`{"instance":`)), MaxResults))
	var last Result
	p.list(`,"results":`, func() {
		last = p.result(&last)
		out.Results = append(out.Results, last)
	})
	return p.end() && assign(m, out)
}

// result parses a result. It shares strings with the last result if they are equal.
func (p *parser) result(last *Result) Result {
	r := Result{
		Instance: p.again(`{"instance":`, last.Instance), BootID: p.again(`,"boot_id":`, last.BootID),
		RunID: p.text(`,"run_id":`), Attempt: int(p.number(`,"attempt":`)),
	}
	if p.has(`,"bind":`) {
		r.Bind = int(p.integer())
	}
	r.Outcome = p.again(`,"outcome":`, last.Outcome)
	r.Reason, r.Message, r.Output = p.maybe(`,"reason":`, ""), p.maybe(`,"message":`, ""), p.maybe(`,"output":`, "")
	if p.has(`,"retry_after_ms":`) {
		r.RetryAfterMS = p.integer()
	}
	r.Permanent = p.has(`,"permanent":true`)
	r.StartedAt, r.FinishedAt, r.LastLine = p.time(`,"started_at":`), p.time(`,"finished_at":`), p.number(`,"last_line":`)
	p.need(`}`)
	return r
}

func (m *Answer) parse(data []byte) bool {
	p := parser{rest: data}
	var out Answer
	out.V = p.version()
	out.Instance, out.BootID, out.Load = p.text(`,"instance":`), p.text(`,"boot_id":`), p.load()
	out.Verdicts = make([]Verdict, 0, min(bytes.Count(data, []byte(`{"run_id":`)), MaxOffers))
	var v Verdict
	p.list(`,"verdicts":`, func() {
		v = Verdict{
			RunID: p.text(`{"run_id":`), Attempt: int(p.number(`,"attempt":`)), Verdict: p.again(`,"verdict":`, v.Verdict),
			Reason: p.maybe(`,"reason":`, v.Reason), Outcome: p.maybe(`,"outcome":`, v.Outcome),
		}
		p.need(`}`)
		out.Verdicts = append(out.Verdicts, v)
	})
	return p.end() && assign(m, out)
}

func (m *Control) parse(data []byte) bool {
	p := parser{rest: data}
	out := Control{V: p.version(), Op: p.text(`,"op":`)}
	out.Runs = make([]Ref, 0, bytes.Count(data, []byte(`{"run_id":`)))
	var ref Ref
	p.list(`,"runs":`, func() {
		ref = Ref{RunID: p.text(`{"run_id":`), Attempt: int(p.number(`,"attempt":`)), BootID: p.maybe(`,"boot_id":`, ref.BootID)}
		p.need(`}`)
		out.Runs = append(out.Runs, ref)
	})
	return p.end() && assign(m, out)
}

func assign[T any](to *T, from T) bool {
	*to = from
	return true
}

// parser reads one token after another until one differs from the expected form.
type parser struct {
	rest   []byte
	failed bool
	times  [4]readTime // the last instants, because the items of a list have most of them in common
	oldest int         // index in times
}

type readTime struct {
	text []byte
	time Time
}

// end reports whether the message ends here and everything had the expected form.
func (p *parser) end() bool {
	p.need(`}`)
	return !p.failed && len(p.rest) == 0
}

// has consumes a literal if it comes next.
func (p *parser) has(literal string) bool {
	if p.failed || len(p.rest) < len(literal) || string(p.rest[:len(literal)]) != literal {
		return false
	}
	p.rest = p.rest[len(literal):]
	return true
}

func (p *parser) need(literal string) {
	if !p.has(literal) {
		p.failed = true
	}
}

func (p *parser) version() int { return int(p.number(`{"v":`)) }

func (p *parser) load() Load {
	l := Load{Capacity: int(p.number(`,"load":{"capacity":`)), Running: int(p.number(`,"running":`)), Seq: p.number(`,"seq":`)}
	l.Draining = p.has(`,"draining":true`)
	p.need(`}`)
	return l
}

// list parses a list that is not empty.
func (p *parser) list(name string, item func()) {
	p.need(name)
	p.need(`[`)
	for !p.failed {
		item()
		if !p.has(`,`) {
			break
		}
	}
	p.need(`]`)
}

// maybe parses a string field that is omitted if it is empty.
func (p *parser) maybe(name, last string) string {
	if !p.has(name) {
		return ""
	}
	return p.string(last)
}

func (p *parser) text(name string) string { return p.again(name, "") }

// again parses a string field that usually has the same value as last.
func (p *parser) again(name, last string) string {
	p.need(name)
	return p.string(last)
}

// string parses a string. If it equals last, string returns last and makes no copy. Some languages write <, > and & as they are.
func (p *parser) string(last string) string {
	p.need(`"`)
	end := 0
	for end < len(p.rest) && (plain[p.rest[end]] || p.rest[end] == '<' || p.rest[end] == '>' || p.rest[end] == '&') {
		end++
	}
	if p.failed || end == len(p.rest) || p.rest[end] != '"' {
		p.failed = true
		return ""
	}
	text := p.rest[:end]
	p.rest = p.rest[end+1:]
	if string(text) == last {
		return last
	}
	return string(text)
}

func (p *parser) number(name string) int64 {
	p.need(name)
	return p.integer()
}

// integer parses an integer of up to 18 digits.
func (p *parser) integer() (n int64) {
	negative := p.has(`-`)
	digits := 0
	for digits < len(p.rest) && digits <= 18 && '0' <= p.rest[digits] && p.rest[digits] <= '9' {
		n = n*10 + int64(p.rest[digits]-'0')
		digits++
	}
	if p.failed || digits == 0 || digits > 18 || (digits > 1 && p.rest[0] == '0') {
		p.failed = true
		return 0
	}
	p.rest = p.rest[digits:]
	if negative {
		return -n
	}
	return n
}

// time parses an instant in the form of appendTime.
func (p *parser) time(name string) Time {
	p.need(name)
	if p.has(`null`) {
		return Time{}
	}
	const layout = `"2006-01-02T15:04:05.000Z"`
	if p.failed || len(p.rest) < len(layout) {
		p.failed = true
		return Time{}
	}
	text := p.rest[:len(layout)]
	for i := range p.times {
		if bytes.Equal(p.times[i].text, text) {
			p.rest = p.rest[len(layout):]
			return p.times[i].time
		}
	}
	field := func(from, to int) (n int) {
		for _, c := range p.rest[from:to] {
			if c < '0' || c > '9' {
				p.failed = true
			}
			n = n*10 + int(c-'0')
		}
		return n
	}
	for _, at := range [...]struct {
		i int
		c byte
	}{{0, '"'}, {5, '-'}, {8, '-'}, {11, 'T'}, {14, ':'}, {17, ':'}, {20, '.'}, {24, 'Z'}, {25, '"'}} {
		if p.rest[at.i] != at.c {
			p.failed = true
		}
	}
	year, month, day := field(1, 5), field(6, 8), field(9, 11)
	hour, minute, second, ms := field(12, 14), field(15, 17), field(18, 20), field(21, 24)
	if year < 1 || hour > 23 || minute > 59 || second > 59 {
		p.failed = true
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second, ms*int(time.Millisecond), time.UTC)
	if p.failed || t.Day() != day || int(t.Month()) != month { // the month does not have this day
		p.failed = true
		return Time{}
	}
	p.rest = p.rest[len(layout):]
	p.times[p.oldest] = readTime{text, Time{t}}
	p.oldest = (p.oldest + 1) % len(p.times)
	return Time{t}
}
