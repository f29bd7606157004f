package wire

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Messages that are sent for every run are encoded by hand, because reflection took a third of an executor's cost per
// run. The tests verify that encoding/json would write the same.

// AppendOffer appends the JSON of an offer.
func AppendOffer(b []byte, o *Offer) []byte {
	b = appendString(append(b, `{"run_id":`...), o.RunID)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(o.Attempt), 10)
	b = strconv.AppendInt(append(b, `,"bind":`...), int64(o.Bind), 10)
	b = appendTime(append(b, `,"bound_at":`...), o.BoundAt)
	b = strconv.AppendInt(append(b, `,"job_id":`...), o.JobID, 10)
	b = appendString(append(b, `,"job_name":`...), o.JobName)
	b = appendString(append(b, `,"group":`...), o.Group)
	if o.Handler != "" {
		b = appendString(append(b, `,"handler":`...), o.Handler)
	}
	if o.Script != nil {
		b = append(append(b, `,"script":`...), Encode(o.Script)...)
	}
	b = appendString(append(b, `,"param":`...), o.Param)
	b = appendString(append(b, `,"cause":`...), o.Cause)
	b = appendTime(append(b, `,"fire_time":`...), o.FireTime)
	b = appendTime(append(b, `,"due_at":`...), o.DueAt)
	b = appendTime(append(b, `,"now":`...), o.Now)
	b = strconv.AppendInt(append(b, `,"timeout_ms":`...), o.TimeoutMS, 10)
	b = strconv.AppendInt(append(b, `,"shard":{"index":`...), int64(o.Shard.Index), 10)
	b = strconv.AppendInt(append(b, `,"total":`...), int64(o.Shard.Total), 10)
	b = append(b, '}')
	if o.Parent != nil {
		b = append(append(b, `,"parent":`...), Encode(o.Parent)...)
	}
	if len(o.Labels) > 0 {
		b = appendLabels(append(b, `,"labels":`...), o.Labels)
	}
	return append(b, '}')
}

// appendLabels appends a JSON object. Offers of traced runs have one label, so nothing has to be sorted.
func appendLabels(b []byte, labels map[string]string) []byte {
	if len(labels) > 1 {
		return append(b, Encode(labels)...)
	}
	b = append(b, '{')
	for name, value := range labels {
		b = appendString(append(appendString(b, name), ':'), value)
	}
	return append(b, '}')
}

// BeginOffers appends the beginning of a message of offers. The caller then appends the offers with AppendOffer,
// separated by commas, and calls EndOffers.
func BeginOffers(b []byte, bootID string, beat int64) []byte {
	b = appendString(append(appendVersion(b), `,"boot_id":`...), bootID)
	if beat != 0 {
		b = strconv.AppendInt(append(b, `,"beat":`...), beat, 10)
	}
	return append(b, `,"offers":[`...)
}

// EndOffers appends the end of a message that BeginOffers began.
func EndOffers(b []byte) []byte { return append(b, `]}`...) }

// AppendResult appends the JSON of a result.
func AppendResult(b []byte, r *Result) []byte {
	b = appendString(append(b, `{"instance":`...), r.Instance)
	b = appendString(append(b, `,"boot_id":`...), r.BootID)
	b = appendString(append(b, `,"run_id":`...), r.RunID)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(r.Attempt), 10)
	if r.Bind != 0 {
		b = strconv.AppendInt(append(b, `,"bind":`...), int64(r.Bind), 10)
	}
	b = appendString(append(b, `,"outcome":`...), r.Outcome)
	for _, field := range [...]struct{ name, value string }{
		{`,"reason":`, r.Reason}, {`,"message":`, r.Message}, {`,"output":`, r.Output},
	} {
		if field.value != "" {
			b = appendString(append(b, field.name...), field.value)
		}
	}
	if r.RetryAfterMS != 0 {
		b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), r.RetryAfterMS, 10)
	}
	if r.Permanent {
		b = append(b, `,"permanent":true`...)
	}
	b = appendTime(append(b, `,"started_at":`...), r.StartedAt)
	b = appendTime(append(b, `,"finished_at":`...), r.FinishedAt)
	b = strconv.AppendInt(append(b, `,"last_line":`...), r.LastLine, 10)
	return append(b, '}')
}

// EncodeResults encodes a message of results that AppendResult has encoded.
func EncodeResults(load Load, results [][]byte) []byte {
	size := 128
	for _, r := range results {
		size += len(r) + 1
	}
	b := appendVersion(make([]byte, 0, size))
	b = appendLoad(b, load)
	return append(appendRaw(append(b, `,"results":`...), results), '}')
}

// EncodeAnswer encodes the answer to a message of offers. Verdicts must not be nil.
func EncodeAnswer(a *Answer) []byte {
	b := appendVersion(make([]byte, 0, 256+96*len(a.Verdicts)))
	b = appendString(append(b, `,"instance":`...), a.Instance)
	b = appendString(append(b, `,"boot_id":`...), a.BootID)
	b = appendLoad(b, a.Load)
	b = append(b, `,"verdicts":[`...)
	for i := range a.Verdicts {
		v := &a.Verdicts[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"run_id":`...), v.RunID)
		b = strconv.AppendInt(append(b, `,"attempt":`...), int64(v.Attempt), 10)
		b = appendString(append(b, `,"verdict":`...), v.Verdict)
		if v.Reason != "" {
			b = appendString(append(b, `,"reason":`...), v.Reason)
		}
		if v.Outcome != "" {
			b = appendString(append(b, `,"outcome":`...), v.Outcome)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	if len(a.Scripts) > 0 {
		b = append(append(b, `,"scripts":`...), Encode(a.Scripts)...)
	}
	return append(b, '}')
}

func appendLoad(b []byte, l Load) []byte {
	b = strconv.AppendInt(append(b, `,"load":{"capacity":`...), int64(l.Capacity), 10)
	b = strconv.AppendInt(append(b, `,"running":`...), int64(l.Running), 10)
	b = strconv.AppendInt(append(b, `,"seq":`...), l.Seq, 10)
	if l.Draining {
		b = append(b, `,"draining":true`...)
	}
	return append(b, '}')
}

// EncodeSettled encodes the control request that tells an instance that results are settled.
func EncodeSettled(refs []Ref) []byte {
	b := appendVersion(make([]byte, 0, 64+128*len(refs)))
	b = append(b, `,"op":"settled","runs":[`...)
	for i, r := range refs {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendRef(b, &r)
	}
	return append(b, "]}"...)
}

// AppendRef appends the JSON of a reference to an attempt.
func AppendRef(b []byte, r *Ref) []byte {
	b = appendString(append(b, `{"run_id":`...), r.RunID)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(r.Attempt), 10)
	if r.BootID != "" {
		b = appendString(append(b, `,"boot_id":`...), r.BootID)
	}
	return append(b, '}')
}

// EncodeRunChanges encodes a message of run changes.
func EncodeRunChanges(changes []RunChange) []byte {
	b := appendVersion(make([]byte, 0, 64+256*len(changes)))
	b = append(b, `,"runs":[`...)
	for i, c := range changes {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"run_id":`...), c.RunID)
		b = strconv.AppendInt(append(b, `,"job_id":`...), c.JobID, 10)
		b = appendString(append(b, `,"job_name":`...), c.JobName)
		b = appendString(append(b, `,"state":`...), c.State)
		if c.Reason != "" {
			b = appendString(append(b, `,"reason":`...), c.Reason)
		}
		b = appendString(append(b, `,"cause":`...), c.Cause)
		b = appendTime(append(b, `,"fire_time":`...), c.FireTime)
		b = strconv.AppendInt(append(b, `,"attempt":`...), int64(c.Attempt), 10)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

func appendVersion(b []byte) []byte {
	return strconv.AppendInt(append(b, `{"v":`...), Version, 10)
}

func appendRaw(b []byte, values [][]byte) []byte {
	b = append(b, '[')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}

// plain contains the bytes that encoding/json writes into a string as they are.
var plain = func() (p [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		p[c] = !strings.ContainsRune(`"\<>&`, c)
	}
	return p
}()

// appendString appends a JSON string. It uses encoding/json for text that needs an escape.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if !plain[s[i]] {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic(err) // cannot happen: every string has a JSON form
			}
			return append(b, quoted...)
		}
	}
	b = append(append(b, '"'), s...)
	return append(b, '"')
}

// appendTime appends the output of Time.MarshalJSON.
func appendTime(b []byte, t Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	u := t.UTC()
	year, month, day := u.Date()
	if year < 0 || year > 9999 {
		return append(u.AppendFormat(append(b, '"'), timeLayout), '"')
	}
	hour, minute, second := u.Clock()
	b = append(b, '"')
	b = appendDigits(b, year, 4)
	b = appendDigits(append(b, '-'), int(month), 2)
	b = appendDigits(append(b, '-'), day, 2)
	b = appendDigits(append(b, 'T'), hour, 2)
	b = appendDigits(append(b, ':'), minute, 2)
	b = appendDigits(append(b, ':'), second, 2)
	b = appendDigits(append(b, '.'), u.Nanosecond()/int(time.Millisecond), 3)
	return append(b, `Z"`...)
}

// appendDigits appends a number with leading zeros.
func appendDigits(b []byte, n, width int) []byte {
	var digits [4]byte
	for i := width - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return append(b, digits[:width]...)
}
