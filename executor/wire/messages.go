package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Time is an instant. Its JSON form is RFC 3339 with milliseconds in UTC.
type Time struct{ time.Time }

const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// MarshalJSON writes RFC 3339 with milliseconds in UTC. The zero time is null.
func (t Time) MarshalJSON() ([]byte, error) {
	return appendTime(make([]byte, 0, len(timeLayout)+2), t), nil
}

// UnmarshalJSON reads RFC 3339 with any fraction of a second, or null.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" || string(b) == `""` {
		t.Time = time.Time{}
		return nil
	}
	if err := t.Time.UnmarshalJSON(b); err != nil {
		return err
	}
	if year := t.UTC().Year(); year < 1 || year > 9999 { // in UTC, other years could not be read back
		return fmt.Errorf("%s lies outside the years 1 to 9999 in UTC", b)
	}
	return nil
}

// Offers is a request on TriggerSubject. It holds at most MaxOffers attempts. Each one is already bound in Postgres to
// this boot of this instance.
//
// Beat is the number of the heartbeat that the offers rely on. The sender had received that heartbeat before it bound
// the attempts. An attempt may start only while less than LeaseTTL has passed since the executor began to send that
// heartbeat. Beat is 0 if the sender is an older server. The rules of the lease apply to its offers.
type Offers struct {
	V      int     `json:"v"`
	BootID string  `json:"boot_id"`
	Beat   int64   `json:"beat,omitempty"`
	Offers []Offer `json:"offers"`
}

// MaxOffers is the maximum number of offers in one message.
const MaxOffers = 256

// Offer offers one attempt of one run. Bind is a counter that Postgres increments for each offer. An instance acts only
// on the highest Bind that it has seen for the attempt.
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

// LabelTraceparent is the label of an offer that has the W3C trace context of the attempt. Spans of the handler belong below its span.
const LabelTraceparent = "traceparent"

// Script identifies a version of a script. The executor gets its code by digest.
type Script struct {
	Language string `json:"language"`
	Version  int    `json:"version"`
	SHA256   string `json:"sha256"`
}

// Shard is a run's part of a broadcast. It is 0 of 1 without a broadcast.
type Shard struct {
	Index int `json:"index"`
	Total int `json:"total"`
}

// Parent is the run whose end caused a child run.
type Parent struct {
	RunID  string `json:"run_id"`
	Output string `json:"output"`
}

// Answer replies to Offers, with one verdict per offer. If the offers name another boot id than the instance's own, the
// instance answers with its own boot id and refuses all offers as stale.
type Answer struct {
	V        int       `json:"v"`
	Instance string    `json:"instance"`
	BootID   string    `json:"boot_id"`
	Load     Load      `json:"load"`
	Verdicts []Verdict `json:"verdicts"`
	// Scripts lists the digests of accepted scripts whose code the instance lacks. The dispatcher sends the code with
	// op script.
	Scripts []string `json:"scripts,omitempty"`
}

// Verdict is the answer to one offer.
// Accepted means that the attempt has a slot, and its handler starts when it is due, or now if that time has passed.
// Refused means that the attempt has no slot, and this offer will never start a handler.
// Ended means that this boot has already run the attempt, with the given Outcome (succeeded, failed or cancelled). Only
// offers with a Beat get the answer Ended.
type Verdict struct {
	RunID   string `json:"run_id"`
	Attempt int    `json:"attempt"`
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
	Outcome string `json:"outcome,omitempty"`
}

// The verdicts and the reasons of a refusal.
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

// Load is an instance's use of its slots. Seq grows with every change in one boot, so that a late message does not
// overwrite a newer one.
type Load struct {
	Capacity int   `json:"capacity"`
	Running  int   `json:"running"` // slots in use: accepted and running
	Seq      int64 `json:"seq"`
	// Draining instances accept no offers.
	Draining bool `json:"draining,omitempty"`
}

// Results is a message on ResultSubject.
type Results struct {
	V       int      `json:"v"`
	Load    Load     `json:"load"`
	Results []Result `json:"results"`
}

// MaxResults is the maximum number of results in one message.
const MaxResults = 250

// Result is the outcome of one attempt.
type Result struct {
	Instance     string `json:"instance"`
	BootID       string `json:"boot_id"` // the boot that ran the attempt, even if a later boot reports it
	RunID        string `json:"run_id"`
	Attempt      int    `json:"attempt"`
	Bind         int    `json:"bind,omitempty"` // the highest bind seen; an unstarted result applies only to this binding
	Outcome      string `json:"outcome"`
	Reason       string `json:"reason,omitempty"`
	Message      string `json:"message,omitempty"`
	Output       string `json:"output,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	Permanent    bool   `json:"permanent,omitempty"`
	StartedAt    Time   `json:"started_at"`
	FinishedAt   Time   `json:"finished_at"`
	LastLine     int64  `json:"last_line"` // the number of the attempt's last log line; 0 without log lines
}

// The outcomes of a Result.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	Cancelled = "cancelled"
	Unstarted = "unstarted" // accepted, but not started: the same attempt is routed again
)

// Logs is a message on LogSubject: consecutive lines of one attempt.
type Logs struct {
	V        int       `json:"v"`
	Instance string    `json:"instance"`
	RunID    string    `json:"run_id"`
	Attempt  int       `json:"attempt"`
	Lines    []LogLine `json:"lines"`
}

// LogLine is one line. N counts from 1 within the attempt.
type LogLine struct {
	N     int64  `json:"n"`
	At    Time   `json:"at"`
	Level string `json:"level"` // debug, info, warn or error; stdout or stderr for the output of a process
	Text  string `json:"text"`
}

// The limits of a Logs message and of a line's text, in bytes.
const (
	MaxLogLines     = 500
	MaxLogBytes     = 256 << 10
	MaxLogLineBytes = 16 << 10
)

// Heartbeat is the value of an instance's key in BucketInstances. The executor writes it every HeartbeatEvery.
type Heartbeat struct {
	V         int      `json:"v"`
	Instance  string   `json:"instance"`
	Group     string   `json:"group"`
	BootID    string   `json:"boot_id"`
	Beat      int64    `json:"beat,omitempty"` // 1, 2, … within a boot; 0 from an older executor
	Handlers  []string `json:"handlers"`       // AnyHandler stands for all
	Languages []string `json:"script_languages"`
	// Lacks names handlers, and scripts as script:<language>, that an instance with AnyHandler does not have. Dispatchers offer it none of them.
	Lacks     []string          `json:"lacks,omitempty"`
	Capacity  int               `json:"capacity"`
	Running   int               `json:"running"`
	Seq       int64             `json:"seq"` // as Load.Seq
	Labels    map[string]string `json:"labels,omitempty"`
	Version   string            `json:"version"`
	Host      string            `json:"host"`
	StartedAt Time              `json:"started_at"`
	Draining  bool              `json:"draining"`
	// Unfit is set while the instance takes no runs because it has reported a problem. It refuses offers as full then,
	// because older dispatchers do not know the field.
	Unfit *Unfit `json:"unfit,omitempty"`
}

// AnyHandler in Heartbeat.Handlers stands for every handler. Instances that cannot list their handlers send it, such as executors of XXL-JOB.
const AnyHandler = "*"

// Unfit says why an instance takes no runs for now. Message holds details for people, at most MaxUnfitMessage bytes.
type Unfit struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// MaxUnfitMessage is the maximum length of Unfit.Message, in bytes.
const MaxUnfitMessage = 300

// The reasons of Unfit. Dispatchers show any other reason as it is.
const (
	UnfitSpoolFull       = "spool_full"       // no room for another result on disk
	UnfitSpoolUnwritable = "spool_unwritable" // results cannot be written to disk for another reason
	UnfitOutOfFiles      = "out_of_files"     // too few file descriptors are free
)

// MaxHeartbeat is the maximum size of an encoded heartbeat. Dispatchers remove larger ones.
const MaxHeartbeat = 16 << 10

// Goodbye is the body of the message that deletes an instance's key in BucketInstances at an orderly stop. The body is optional:
// older executors send none, and older dispatchers do not read it.
type Goodbye struct {
	V int `json:"v"`
	// SettledBoot is the boot that says goodbye, if no attempt can start in it any more and all attempts that it accepted
	// are settled. It is empty otherwise. It is not named boot_id, because older dispatchers would read the message as a
	// heartbeat of that boot.
	SettledBoot string `json:"settled_boot,omitempty"`
}

// MaxBootID is the maximum length of a boot id, in bytes.
const MaxBootID = 64

// ValidBootID reports whether s is a valid boot id: UTF-8 without control characters, of 1 to MaxBootID bytes.
func ValidBootID(s string) bool {
	return s != "" && len(s) <= MaxBootID && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// HeartbeatEvery is the period of the heartbeat. LeaseTTL is how long a heartbeat is valid. The bucket deletes an
// instance's key LeaseTTL after its last heartbeat. The instance starts nothing once LeaseTTL has passed since its last
// confirmed heartbeat.
const (
	HeartbeatEvery = 3 * time.Second
	LeaseTTL       = 10 * time.Second
)

// Control is a request on ControlSubject.
type Control struct {
	V    int    `json:"v"`
	Op   string `json:"op"`
	Runs []Ref  `json:"runs,omitempty"` // for kill, status and settled
	// SHA256 is the digest of Code, in lower-case hexadecimal. Only op script has it.
	SHA256 string `json:"sha256,omitempty"`
	Code   []byte `json:"code,omitempty"`   // base64 in JSON
	Reason string `json:"reason,omitempty"` // for kill: killed, covered or timeout
	JobID  int64  `json:"job_id,omitempty"` // for ping: the executor answers with the number of its attempts of this job
	// BootID is the boot to which an overwrite request is directed.
	BootID string `json:"boot_id,omitempty"`
}

// Ref identifies an attempt of a run. In a settled request, BootID is the boot id of the settled result.
type Ref struct {
	RunID   string `json:"run_id"`
	Attempt int    `json:"attempt"`
	BootID  string `json:"boot_id,omitempty"`
}

// The control operations.
const (
	OpPing    = "ping"
	OpStatus  = "status"  // returns the states of these attempts
	OpKill    = "kill"    // ends these attempts; bars them if the executor does not know them yet
	OpDrain   = "drain"   // the executor must take no more attempts
	OpSettled = "settled" // the results of these attempts are in Postgres; the executor may delete them
	OpScript  = "script"  // carries the code of a script
	// OpOverwrite tells a boot that the bucket refuses its heartbeats because of a value that is not a heartbeat, and not because
	// another process has taken the instance's name. For LeaseTTL, the boot may write its key without a condition.
	OpOverwrite = "overwrite"
)

// ControlReply answers every Control request.
type ControlReply struct {
	V        int      `json:"v"`
	Instance string   `json:"instance"`
	BootID   string   `json:"boot_id"`
	Load     Load     `json:"load"`
	Statuses []Status `json:"statuses,omitempty"` // for status and kill, one per Ref
	Error    string   `json:"error,omitempty"`
	// JobRuns answers a ping with a job: the number of the job's attempts that hold a slot. It is absent if the
	// executor does not report it.
	JobRuns *int `json:"job_runs,omitempty"`
}

// Status is an instance's state of an attempt. Result is set if Status is done and the result is still in the spool.
type Status struct {
	RunID   string  `json:"run_id"`
	Attempt int     `json:"attempt"`
	Status  string  `json:"status"`
	Result  *Result `json:"result,omitempty"`
	// Outcome is set if the handler has returned in this boot, even if the result is no longer in the spool.
	Outcome string `json:"outcome,omitempty"`
	// StartedAt is set after the handler was started.
	StartedAt Time `json:"started_at"`
}

// The states of an attempt on an instance.
const (
	StatusAccepted = "accepted" // the attempt has a slot and is not due yet
	StatusRunning  = "running"
	StatusDone     = "done"    // ended; the result is in the spool or was settled recently
	StatusRefused  = "refused" // was offered and refused
	StatusBarred   = "barred"  // a kill came before the offer, so the attempt will never start here
	StatusUnknown  = "unknown"
)

// RunChanges is a message on RunSubject. A message without runs only checks whether there are subscribers.
type RunChanges struct {
	V    int         `json:"v"`
	Runs []RunChange `json:"runs"`
}

// RunChange reports a run's new state.
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

// DeadLetter is a message on DeadSubject. It holds a message that could not be processed, and the reason.
type DeadLetter struct {
	V       int    `json:"v"`
	At      Time   `json:"at"`
	Subject string `json:"subject"`
	Error   string `json:"error"`
	Data    []byte `json:"data"` // base64 in JSON
	// Headers holds the message's headers. Only dead letters of events can have them.
	Headers map[string][]string `json:"headers,omitempty"`
	// Bytes is the length of the message if Data holds only its beginning.
	Bytes int `json:"bytes,omitempty"`
}

// Versioned is implemented by every message that carries `v`.
type Versioned interface{ version() int }

func (m *Offers) version() int       { return m.V }
func (m *Answer) version() int       { return m.V }
func (m *Results) version() int      { return m.V }
func (m *Logs) version() int         { return m.V }
func (m *Heartbeat) version() int    { return m.V }
func (m *Goodbye) version() int      { return m.V }
func (m *Control) version() int      { return m.V }
func (m *ControlReply) version() int { return m.V }
func (m *RunChanges) version() int   { return m.V }

// MaxMessageBytes is the maximum size of a message that Decode accepts.
const MaxMessageBytes = 1 << 20

// Decode reads a message into m and checks its version. The text of the error is suitable for a dead letter.
func Decode(data []byte, m Versioned) error {
	if len(data) > MaxMessageBytes {
		return fmt.Errorf("the message has %d bytes; at most %d are allowed", len(data), MaxMessageBytes)
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

// Encode encodes a message of this package. It returns no error, because every message of this package has a JSON form.
func Encode(m any) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("wire: encode %T: %v", m, err)) // a bug in this package
	}
	return b
}
