package conformance

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

// record holds the messages that the executors of one group published, in order of arrival, and the faults of any message.
type record struct {
	group string

	mu       sync.Mutex
	beats    []seenBeat
	goodbyes []seenGoodbye
	results  []seenResult
	lines    map[attemptKey][]wire.LogLine
	faults   map[string][]string // by duty
	loads    map[string]loadSeen // by boot
	settling bool                // settle each result as it arrives
}

// attemptKey names an attempt of a run.
type attemptKey struct {
	run     string
	attempt int
}

type seenBeat struct {
	wire.Heartbeat
	at time.Time // when it arrived, by the tester's monotonic clock
}

type seenGoodbye struct {
	instance string
	body     []byte
	at       time.Time
}

type seenResult struct {
	wire.Result
	at time.Time
}

// loadSeen is the state of a boot's slots in its newest message.
type loadSeen struct {
	seq     int64
	running int
}

// faultsKept bounds the faults that are kept for each duty. One is enough to break it.
const faultsKept = 20

func newRecord(group string) *record {
	return &record{
		group: group, lines: make(map[attemptKey][]wire.LogLine), faults: make(map[string][]string), loads: make(map[string]loadSeen),
	}
}

// fault records that a message broke a duty. The mutex must be held.
func (r *record) fault(duty, format string, args ...any) {
	if len(r.faults[duty]) < faultsKept {
		r.faults[duty] = append(r.faults[duty], fmt.Sprintf(format, args...))
	}
}

// foreignHeader marks the values of the case overwrite, which no executor has published.
const foreignHeader = "Conformance-Foreign"

// heartbeat records a message on the subject of an instance's key. It returns the instance, and whether the message is
// the first of a boot.
func (r *record) heartbeat(msg *nats.Msg, at time.Time) (instance string, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
	if msg.Header.Get(foreignHeader) != "" {
		return key, false
	}
	if msg.Header.Get("KV-Operation") == "DEL" {
		r.goodbyes = append(r.goodbyes, seenGoodbye{key, msg.Data, at})
		return key, false
	}
	var h wire.Heartbeat
	if err := wire.Decode(msg.Data, &h); err != nil {
		r.fault("heartbeat_fields", "a heartbeat cannot be read: %v", err)
		return key, false
	}
	r.checkHeartbeat(h, key, msg.Data)
	first = true
	var last int64
	for i := range r.beats {
		if r.beats[i].BootID == h.BootID {
			first, last = false, r.beats[i].Beat
		}
	}
	// A heartbeat may be lost, and it may come twice, because an executor may publish it again under another condition.
	if h.Beat < max(last, 1) {
		r.fault("heartbeat_beats", "beat %d of boot %s follows beat %d", h.Beat, h.BootID, last)
	}
	r.beats = append(r.beats, seenBeat{h, at})
	return key, first
}

// checkHeartbeat records the faults of a heartbeat. The mutex must be held.
func (r *record) checkHeartbeat(h wire.Heartbeat, key string, data []byte) {
	const duty = "heartbeat_fields"
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) == nil {
		for _, name := range []string{"v", "instance", "group", "boot_id", "beat", "handlers", "script_languages", "capacity", "running", "seq",
			"version", "host", "started_at", "draining"} {
			if raw, ok := fields[name]; !ok || string(raw) == "null" {
				r.fault(duty, "a heartbeat has no %s", name)
			}
		}
	}
	switch {
	case h.Instance != key || !wire.ValidInstance(h.Instance):
		r.fault(duty, "a heartbeat on the key %q names the instance %q", key, h.Instance)
	case h.Group != r.group:
		r.fault(duty, "a heartbeat names the group %q, not %q", h.Group, r.group)
	case h.BootID == "" || len(h.BootID) > 64:
		r.fault(duty, "a heartbeat has the boot id %.80q", h.BootID)
	case h.Capacity < 1 || h.Running < 0 || h.Running > h.Capacity:
		r.fault(duty, "a heartbeat has capacity %d and running %d", h.Capacity, h.Running)
	case len(data) > 64<<10:
		r.fault(duty, "a heartbeat has %d bytes", len(data))
	}
	r.load(h.BootID, wire.Load{Capacity: h.Capacity, Running: h.Running, Seq: h.Seq})
}

// load checks that messages of a boot with one seq agree about its slots. The mutex must be held.
func (r *record) load(boot string, l wire.Load) {
	last, ok := r.loads[boot]
	if ok && l.Seq == last.seq && l.Running != last.running {
		r.fault("load", "two messages say running %d and %d under the same seq %d", last.running, l.Running, l.Seq)
	}
	if !ok || l.Seq > last.seq {
		r.loads[boot] = loadSeen{l.Seq, l.Running}
	}
}

// result records a message of results. If the record settles results as they arrive, it returns them.
func (r *record) result(msg *nats.Msg, at time.Time) []wire.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	const duty = "result_fields"
	var m wire.Results
	if err := wire.Decode(msg.Data, &m); err != nil {
		r.fault(duty, "a message of results cannot be read: %v", err)
		return nil
	}
	if msg.Reply == "" {
		r.fault("result_acknowledged", "results were published without a reply subject")
	}
	if len(m.Results) == 0 || len(m.Results) > wire.MaxResults {
		r.fault(duty, "a message has %d results", len(m.Results))
	}
	if !utf8.Valid(msg.Data) {
		r.fault("result_limits", "a message of results is not UTF-8")
	}
	for i := range m.Results {
		r.checkResult(&m.Results[i])
		r.results = append(r.results, seenResult{m.Results[i], at})
	}
	if r.settling {
		return m.Results
	}
	return nil
}

// reasons are the reasons that an executor may report, by outcome.
var reasons = map[string][]string{
	wire.Succeeded: {""},
	wire.Failed:    {"handler_error", "handler_panic", "handler_not_found", "timeout", "drained", "bad_script", "unsupported"},
	wire.Cancelled: {"killed", "covered"},
	wire.Unstarted: {"", "killed", "covered", "timeout"},
}

// checkResult records the faults of a result. The mutex must be held.
func (r *record) checkResult(res *wire.Result) {
	const duty = "result_fields"
	allowed, known := reasons[res.Outcome]
	if !known {
		r.fault(duty, "a result has the outcome %q", res.Outcome)
		return
	}
	ok := false
	for _, reason := range allowed {
		ok = ok || res.Reason == reason
	}
	switch {
	case !ok:
		r.fault(duty, "a result with outcome %s has the reason %q", res.Outcome, res.Reason)
	case res.Instance == "" || res.BootID == "":
		r.fault(duty, "a result names the instance %q and boot %q", res.Instance, res.BootID)
	case res.Bind < 1:
		r.fault(duty, "a result has bind %d", res.Bind)
	case res.FinishedAt.IsZero():
		r.fault(duty, "a result has no finished_at")
	case res.Outcome == wire.Unstarted && !res.StartedAt.IsZero():
		r.fault(duty, "an unstarted attempt has a started_at")
	case res.Outcome != wire.Unstarted && (res.StartedAt.IsZero() || res.FinishedAt.Before(res.StartedAt.Time)):
		r.fault(duty, "a result says started_at %v and finished_at %v", res.StartedAt, res.FinishedAt)
	}
	switch {
	case len(res.Message) > 16<<10:
		r.fault("result_limits", "a message has %d bytes", len(res.Message))
	case len(res.Output) > 64<<10:
		r.fault("result_limits", "an output has %d bytes", len(res.Output))
	case strings.ContainsRune(res.Message+res.Output, 0):
		r.fault("result_limits", "a message or an output contains NUL")
	}
}

var levels = map[string]bool{"debug": true, "info": true, "warn": true, "error": true, "stdout": true, "stderr": true}

func (r *record) log(msg *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const duty = "logs"
	var m wire.Logs
	if err := wire.Decode(msg.Data, &m); err != nil {
		r.fault(duty, "a message of log lines cannot be read: %v", err)
		return
	}
	if len(m.Lines) == 0 || len(m.Lines) > wire.MaxLogLines {
		r.fault(duty, "a message has %d lines", len(m.Lines))
	}
	text := 0
	for i, l := range m.Lines {
		text += len(l.Text)
		switch {
		case l.N < 1 || i > 0 && l.N != m.Lines[i-1].N+1:
			r.fault(duty, "the lines of a message are not numbered in order: line %d has n %d", i, l.N)
		case !levels[l.Level]:
			r.fault(duty, "a line has the level %q", l.Level)
		case len(l.Text) > wire.MaxLogLineBytes:
			r.fault(duty, "a line has %d bytes", len(l.Text))
		case l.At.IsZero():
			r.fault(duty, "a line has no instant")
		}
	}
	if text > wire.MaxLogBytes {
		r.fault(duty, "the lines of a message have %d bytes", text)
	}
	k := attemptKey{m.RunID, m.Attempt}
	r.lines[k] = append(r.lines[k], m.Lines...)
}

// newest returns the newest heartbeat of a boot; an empty boot means any.
func (r *record) newest(boot string) (seenBeat, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.beats) - 1; i >= 0; i-- {
		if boot == "" || r.beats[i].BootID == boot {
			return r.beats[i], true
		}
	}
	return seenBeat{}, false
}

// received returns when a heartbeat arrived, or the zero time if it did not.
func (r *record) received(boot string, beat int64) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.beats {
		if b.BootID == boot && b.Beat == beat {
			return b.at
		}
	}
	return time.Time{}
}

// beatsOf returns the heartbeats of a boot that arrived after an instant.
func (r *record) beatsOf(boot string, after time.Time) (out []seenBeat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.beats {
		if b.BootID == boot && b.at.After(after) {
			out = append(out, b)
		}
	}
	return out
}

// resultsOf returns the results of an attempt, in order of arrival.
func (r *record) resultsOf(k attemptKey) (out []seenResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range r.results {
		if res.RunID == k.run && res.Attempt == k.attempt {
			out = append(out, res)
		}
	}
	return out
}

// allResults returns the instance of each result that arrived.
func (r *record) allResults() map[wire.Ref]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[wire.Ref]string, len(r.results))
	for _, res := range r.results {
		out[wire.Ref{RunID: res.RunID, Attempt: res.Attempt, BootID: res.BootID}] = res.Instance
	}
	return out
}

func (r *record) linesOf(k attemptKey) []wire.LogLine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]wire.LogLine(nil), r.lines[k]...)
}

// goodbye returns the first deletion of a heartbeat.
func (r *record) goodbye() (seenGoodbye, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.goodbyes) == 0 {
		return seenGoodbye{}, false
	}
	return r.goodbyes[0], true
}

func (r *record) settleAll(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settling = on
}
