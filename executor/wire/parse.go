package wire

import (
	"bytes"
	"slices"
	"time"
)

// What comes for every run is read by hand, if it is written as this package writes it: compact, with the fields in
// order, and text that needs no escapes. Everything else, such as what an executor in another language sends, is read by
// encoding/json. The tests hold that both read the same.

// canonical is a message that may be read by hand. It reports whether it was; if not it is unchanged.
type canonical interface{ parse(data []byte) bool }

// parse uses the room that m.Offers has, which is empty then: where a field is left out, encoding/json leaves what it finds.
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

// offer reads an offer. It shares the text that it has in common with the last one.
func (p *parser) offer(last *Offer) Offer {
	o := Offer{
		RunID: p.text(`{"run_id":`), Attempt: int(p.number(`,"attempt":`)), Bind: int(p.number(`,"bind":`)), BoundAt: p.time(`,"bound_at":`),
		JobID: p.number(`,"job_id":`), JobName: p.again(`,"job_name":`, last.JobName), Group: p.again(`,"group":`, last.Group),
		Handler: p.maybe(`,"handler":`, last.Handler), Param: p.again(`,"param":`, last.Param), Cause: p.again(`,"cause":`, last.Cause),
		FireTime: p.time(`,"fire_time":`), DueAt: p.time(`,"due_at":`), Now: p.time(`,"now":`),
		TimeoutMS: p.number(`,"timeout_ms":`), Shard: Shard{Index: int(p.number(`,"shard":{"index":`)), Total: int(p.number(`,"total":`))},
	}
	p.need(`}}`) // scripts, parents and labels are rare
	return o
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

// result reads a result. It shares the text that it has in common with the last one.
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

// parser reads what comes next, until something is not as expected.
type parser struct {
	rest   []byte
	failed bool
	times  [4]readTime // the last ones: the items of a list have most of theirs in common
	oldest int         // in times
}

type readTime struct {
	text []byte
	time Time
}

// end reads the end of the message and reports whether all was as expected.
func (p *parser) end() bool {
	p.need(`}`)
	return !p.failed && len(p.rest) == 0
}

// has reads a literal if it comes next.
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

// list reads a list that is not empty.
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

// maybe reads a field of text that is left out where it is empty.
func (p *parser) maybe(name, last string) string {
	if !p.has(name) {
		return ""
	}
	return p.string(last)
}

func (p *parser) text(name string) string { return p.again(name, "") }

// again reads a field of text that is mostly the same as the last time.
func (p *parser) again(name, last string) string {
	p.need(name)
	return p.string(last)
}

// string reads text. If it is the same as the last one, that is returned, and no other copy of it is made.
func (p *parser) string(last string) string {
	p.need(`"`)
	for i, c := range p.rest {
		switch {
		case p.failed, c == '\\', c < ' ', c >= 0x80:
			p.failed = true
			return ""
		case c == '"':
			text := p.rest[:i]
			p.rest = p.rest[i+1:]
			if string(text) == last {
				return last
			}
			return string(text)
		}
	}
	p.failed = true
	return ""
}

func (p *parser) number(name string) int64 {
	p.need(name)
	return p.integer()
}

// integer reads an integer of up to 18 digits.
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

// time reads an instant as appendTime writes it.
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
	if p.failed || t.Day() != day || int(t.Month()) != month { // a day that the month does not have
		p.failed = true
		return Time{}
	}
	p.rest = p.rest[len(layout):]
	p.times[p.oldest] = readTime{text, Time{t}}
	p.oldest = (p.oldest + 1) % len(p.times)
	return Time{t}
}
