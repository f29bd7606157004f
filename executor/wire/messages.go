package wire

import (
	"encoding/json"
	"fmt"
	"time"
)

// Time is an instant, written as RFC 3339 with milliseconds in UTC.
type Time struct{ time.Time }

const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// MarshalJSON writes RFC 3339 with milliseconds in UTC; the zero time is null.
func (t Time) MarshalJSON() ([]byte, error) {
	return appendTime(make([]byte, 0, len(timeLayout)+2), t), nil
}

// UnmarshalJSON reads RFC 3339 with any fraction, or null.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" || string(b) == `""` {
		t.Time = time.Time{}
		return nil
	}
	if err := t.Time.UnmarshalJSON(b); err != nil {
		return err
	}
	if year := t.UTC().Year(); year < 1 || year > 9999 { // what UTC makes of it could not be read back
		return fmt.Errorf("%s lies outside the years 1 to 9999 in UTC", b)
	}
	return nil
}

// Offers is a request on TriggerSubject: at most MaxOffers attempts, each already bound in Postgres to this
// instance and this boot of it.
//
// Beat is the number of the heartbeat that the offers rely on: one that their sender had received before it bound the
// attempts. An attempt may start only while less than LeaseTTL has passed since the executor began to send that
// heartbeat. 0 means that the sender is an older server, whose offers follow the rules of the lease.
type Offers struct {
	V      int     `json:"v"`
	BootID string  `json:"boot_id"`
	Beat   int64   `json:"beat,omitempty"`
	Offers []Offer `json:"offers"`
}

// MaxOffers bounds the offers of one message.
const MaxOffers = 256

// Offer offers one attempt of one run. Bind is the counter that Postgres raised for this offer: an instance
// acts only on the highest it has seen for the attempt.
type Offer struct {
	RunID     string            `json:"run_id"`
	Attempt   int               `json:"attempt"`
	Bind      int               `json:"bind"`
	BoundAt   Time              `json:"bound_at"`
	JobID     int64             `json:"job_id"`
	JobName   string            `json:"job_name"`
	Group     string            `json:"group"`
	Handler   string            `json:"handler,omitempty"`
	Script    *Script           `json:"script,omitempty"`
	Param     string            `json:"param"`
	Cause     string            `json:"cause"`
	FireTime  Time              `json:"fire_time"`
	DueAt     Time              `json:"due_at"`
	Now       Time              `json:"now"` // the database's clock when the offer was sent
	TimeoutMS int64             `json:"timeout_ms"`
	Shard     Shard             `json:"shard"`
	Parent    *Parent           `json:"parent,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Script names the version of a script; its code is fetched by digest.
type Script struct {
	Language string `json:"language"`
	Version  int    `json:"version"`
	SHA256   string `json:"sha256"`
}

// Shard is the part of a broadcast that a run is; 0 of 1 where there is no broadcast.
type Shard struct {
	Index int `json:"index"`
	Total int `json:"total"`
}

// Parent is the run whose end caused a child run.
type Parent struct {
	RunID  string `json:"run_id"`
	Output string `json:"output"`
}

// Answer replies to Offers, with one verdict for each offer. An instance whose boot id is another than the
// offers' answers with its own boot id and refuses all of them as stale.
type Answer struct {
	V        int       `json:"v"`
	Instance string    `json:"instance"`
	BootID   string    `json:"boot_id"`
	Load     Load      `json:"load"`
	Verdicts []Verdict `json:"verdicts"`
	// Scripts are the digests of accepted scripts whose code the instance lacks: send it by op script.
	Scripts []string `json:"scripts,omitempty"`
}

// Verdict accepts or refuses one offer. Accepted means: a slot is taken, and the handler starts at the due
// instant, or now if that is past. Refused means: no slot is taken, and this offer will never start a handler.
// Ended means: this boot has already run the attempt, with the given Outcome (succeeded, failed or cancelled). Only
// offers with a Beat are answered Ended.
type Verdict struct {
	RunID   string `json:"run_id"`
	Attempt int    `json:"attempt"`
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
	Outcome string `json:"outcome,omitempty"`
}

// The verdicts, and the reasons of a refusal.
const (
	Accepted = "accepted"
	Refused  = "refused"
	Ended    = "ended"

	RefusedFull        = "full"
	RefusedDraining    = "draining"
	RefusedNoHandler   = "no_handler"
	RefusedLease       = "lease"
	RefusedStale       = "stale"
	RefusedUnsupported = "unsupported"
)

// Load is an instance's use of its slots. Seq grows with every change within one boot, so that a late message
// does not overwrite a newer one.
type Load struct {
	Capacity int   `json:"capacity"`
	Running  int   `json:"running"` // slots taken: accepted and running
	Seq      int64 `json:"seq"`
	// Draining instances take nothing more.
	Draining bool `json:"draining,omitempty"`
}

// Results is a message on ResultSubject.
type Results struct {
	V       int      `json:"v"`
	Load    Load     `json:"load"`
	Results []Result `json:"results"`
}

// MaxResults bounds the results of one message.
const MaxResults = 250

// Result says how one attempt ended.
type Result struct {
	Instance     string `json:"instance"`
	BootID       string `json:"boot_id"` // of the boot that ran it, also when a later one reports it
	RunID        string `json:"run_id"`
	Attempt      int    `json:"attempt"`
	Bind         int    `json:"bind,omitempty"` // the highest bind seen; unstarted answers that binding alone
	Outcome      string `json:"outcome"`
	Reason       string `json:"reason,omitempty"`
	Message      string `json:"message,omitempty"`
	Output       string `json:"output,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	Permanent    bool   `json:"permanent,omitempty"`
	StartedAt    Time   `json:"started_at"`
	FinishedAt   Time   `json:"finished_at"`
	LastLine     int64  `json:"last_line"` // number of the attempt's last log line, 0 if it wrote none
}

// The outcomes of a Result.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	Cancelled = "cancelled"
	Unstarted = "unstarted" // accepted, but never started: the same attempt is routed again
)

// Logs is a message on LogSubject: consecutive lines of one attempt.
type Logs struct {
	V        int       `json:"v"`
	Instance string    `json:"instance"`
	RunID    string    `json:"run_id"`
	Attempt  int       `json:"attempt"`
	Lines    []LogLine `json:"lines"`
}

// LogLine is one line; N counts from 1 within the attempt.
type LogLine struct {
	N     int64  `json:"n"`
	At    Time   `json:"at"`
	Level string `json:"level"` // debug, info, warn, error; stdout, stderr for a process's own output
	Text  string `json:"text"`
}

// Bounds of a Logs message and of a line's text, in bytes.
const (
	MaxLogLines     = 500
	MaxLogBytes     = 256 << 10
	MaxLogLineBytes = 16 << 10
)

// Heartbeat is the value of an instance's key in BucketInstances, written every HeartbeatEvery.
type Heartbeat struct {
	V         int               `json:"v"`
	Instance  string            `json:"instance"`
	Group     string            `json:"group"`
	BootID    string            `json:"boot_id"`
	Beat      int64             `json:"beat,omitempty"` // 1, 2, … within a boot; 0: an older executor's
	Handlers  []string          `json:"handlers"`
	Languages []string          `json:"script_languages"`
	Capacity  int               `json:"capacity"`
	Running   int               `json:"running"`
	Seq       int64             `json:"seq"` // as Load.Seq
	Labels    map[string]string `json:"labels,omitempty"`
	Version   string            `json:"version"`
	Host      string            `json:"host"`
	StartedAt Time              `json:"started_at"`
	Draining  bool              `json:"draining"`
}

// MaxBootID bounds a boot id, in bytes.
const MaxBootID = 64

// HeartbeatEvery is the heartbeat's period, LeaseTTL how long one lasts: the bucket forgets an instance that
// long after its last heartbeat, and the instance starts nothing once its last confirmed one is that old.
const (
	HeartbeatEvery = 3 * time.Second
	LeaseTTL       = 10 * time.Second
)

// Control is a request on ControlSubject.
type Control struct {
	V    int    `json:"v"`
	Op   string `json:"op"`
	Runs []Ref  `json:"runs,omitempty"` // kill, status, settled
	// SHA256 is the digest, in lower case hexadecimal, of the Code that op script brings.
	SHA256 string `json:"sha256,omitempty"`
	Code   []byte `json:"code,omitempty"`   // base64 in JSON
	Reason string `json:"reason,omitempty"` // of a kill: killed, covered or timeout
	JobID  int64  `json:"job_id,omitempty"` // of a ping: how many attempts of this job do you have
}

// Ref names an attempt of a run. BootID, in settled, is the boot that the settled result named.
type Ref struct {
	RunID   string `json:"run_id"`
	Attempt int    `json:"attempt"`
	BootID  string `json:"boot_id,omitempty"`
}

// The control operations.
const (
	OpPing    = "ping"
	OpStatus  = "status"  // what do you know of these attempts
	OpKill    = "kill"    // end these attempts, or bar them if they are not known yet
	OpDrain   = "drain"   // take nothing more
	OpSettled = "settled" // the results of these attempts are in Postgres: forget them
	OpScript  = "script"  // here is the code of a script
)

// ControlReply answers every Control request.
type ControlReply struct {
	V        int      `json:"v"`
	Instance string   `json:"instance"`
	BootID   string   `json:"boot_id"`
	Load     Load     `json:"load"`
	Statuses []Status `json:"statuses,omitempty"` // for status and kill, one for each Ref
	Error    string   `json:"error,omitempty"`
	// JobRuns answers a ping that names a job: how many attempts of it hold a slot. Absent where the executor does not say.
	JobRuns *int `json:"job_runs,omitempty"`
}

// Status is what an instance knows of an attempt. Result is given when Status is done and the result is still
// in the spool.
type Status struct {
	RunID   string  `json:"run_id"`
	Attempt int     `json:"attempt"`
	Status  string  `json:"status"`
	Result  *Result `json:"result,omitempty"`
	// Outcome is given when the handler has returned in this boot, also where the result is no longer kept.
	Outcome string `json:"outcome,omitempty"`
	// StartedAt is given once the handler was started.
	StartedAt Time `json:"started_at"`
}

// What an instance may know of an attempt.
const (
	StatusAccepted = "accepted" // a slot is taken, the due instant has not come
	StatusRunning  = "running"
	StatusDone     = "done"    // ended; the result is in the spool, or settled a short while ago
	StatusRefused  = "refused" // was offered, was refused
	StatusBarred   = "barred"  // a kill came before the offer: it will never start here
	StatusUnknown  = "unknown"
)

// RunChanges is a message on RunSubject. One without runs only asks whether anybody listens.
type RunChanges struct {
	V    int         `json:"v"`
	Runs []RunChange `json:"runs"`
}

// RunChange tells that a run came into a state.
type RunChange struct {
	RunID    string `json:"run_id"`
	JobID    int64  `json:"job_id"`
	JobName  string `json:"job_name"`
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
	Cause    string `json:"cause"`
	FireTime Time   `json:"fire_time"`
	Attempt  int    `json:"attempt"`
}

// DeadLetter is what DeadSubject carries: a message that could not be taken, and why.
type DeadLetter struct {
	V       int    `json:"v"`
	At      Time   `json:"at"`
	Subject string `json:"subject"`
	Error   string `json:"error"`
	Data    []byte `json:"data"` // base64 in JSON
	// Headers are the message's own, where they mean something: those of events.
	Headers map[string][]string `json:"headers,omitempty"`
	// Bytes is how long the message was, where Data is only its beginning.
	Bytes int `json:"bytes,omitempty"`
}

// Versioned is implemented by every message that carries `v`.
type Versioned interface{ version() int }

func (m *Offers) version() int       { return m.V }
func (m *Answer) version() int       { return m.V }
func (m *Results) version() int      { return m.V }
func (m *Logs) version() int         { return m.V }
func (m *Heartbeat) version() int    { return m.V }
func (m *Control) version() int      { return m.V }
func (m *ControlReply) version() int { return m.V }
func (m *RunChanges) version() int   { return m.V }

// MaxMessageBytes bounds every message that Decode reads.
const MaxMessageBytes = 1 << 20

// Decode reads a message into m and checks its version. The error is fit for a dead letter.
func Decode(data []byte, m Versioned) error {
	if len(data) > MaxMessageBytes {
		return fmt.Errorf("the message has %d bytes; at most %d are taken", len(data), MaxMessageBytes)
	}
	if c, ok := m.(canonical); !ok || !c.parse(data) {
		if err := json.Unmarshal(data, m); err != nil {
			return fmt.Errorf("decode %T: %w", m, err)
		}
	}
	if v := m.version(); v != Version {
		return fmt.Errorf("the message says version %d; this side speaks version %d", v, Version)
	}
	return nil
}

// Encode writes a message. Every message of this package can be encoded, so it has no error.
func Encode(m any) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("wire: encode %T: %v", m, err)) // a type of this package without a JSON form is a bug
	}
	return b
}
