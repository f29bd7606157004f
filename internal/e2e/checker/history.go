// Package checker checks the history of a Belfry cluster under faults. It computes from the versions of the jobs when each job
// should have fired, and compares that with the runs, the missed ledger, the notes of the handlers, and the injected faults.
// Jepsen's checker for Chronos works in the same way. The package shares no code with the engine except the values of package
// domain. It evaluates schedules with its own code, which knows only the kinds of schedules that the fault test uses.
//
// If an edit or a jitter leaves open whether a fire time belongs to a version, a rule accepts both results. In all other cases
// it accepts only one. All instants come from the clock of one machine. The database, the faults and the handlers' notes use
// that clock, even if the handler's process has a shifted clock. If the database has another clock, History.Clocks converts between
// them. Near a step of that clock, rules about the order of two instants allow for the size of the step.
package checker

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// History is what is known at the end, after all faults were healed and no work was left.
type History struct {
	Versions []Version // by job, then number
	Runs     []Run
	Attempts []Attempt // without the last attempt of each run, which is in Run
	Ledger   []Drop
	Late     []Late // results that arrived after their attempt had ended
	Notes    []Note
	Faults   []Fault
	Acks     []Ack
	Kills    map[string]bool // runs with a kill request
	Crowded  bool            // other tests used the machine at the same time; RuleLate does not apply
	Stalls   []Stall         // of the machine

	Schedulers []string // the targets of faults that are schedulers
	Volatile   []string // instances that keep results only in memory, so that a kill loses the results that are not settled
	KillWins   []string // instances that report a killed run as killed, even if its handler has succeeded
	Clocks     []Clock  // of the database, by From; empty if it is the machine's clock
}

// Stall is a slow step of the pulse of package rig. On a quiet machine a step takes some milliseconds. The start of a run may wait
// for ten such steps, one after the other.
type Stall struct {
	From time.Time
	Took time.Duration
}

// Version is a version of a job and the period during which it was in force.
type Version struct {
	Job       int64
	Number    int
	Spec      domain.JobSpec
	CreatedAt time.Time // of the job
	From      time.Time
	To        time.Time // zero: still in force
	Change    string
}

func (v *Version) enabled() bool { return v.Spec.Enabled && v.Change != "deleted" }

// Run is a run as the database has it at the end.
type Run struct {
	ID           string
	Job          int64
	Version      int
	Group        string
	Cause        domain.Cause
	State        domain.State
	Reason       domain.Reason
	Attempt      int
	Param        string
	FireTime     time.Time
	DueAt        time.Time // when the last attempt was due, or when the run was released from the hold
	CreatedAt    time.Time
	DispatchedAt time.Time
	StartedAt    time.Time
	FinishedAt   time.Time
	LatenessMS   *int64
	Instance     string
	ShardIndex   int
	ShardTotal   int    // 0: no shard
	Broadcast    string // "" for none
	Parent       string // "" for none
}

func (r *Run) scheduled() bool {
	return r.Cause == domain.CauseSchedule || r.Cause == domain.CauseMisfire
}

// Attempt is an ended attempt. History.Attempts has those after which the run continued or was to continue.
type Attempt struct {
	Run          string
	Attempt      int
	Instance     string
	DispatchedAt time.Time
	StartedAt    time.Time
	FinishedAt   time.Time
	Outcome      string
	Reason       domain.Reason

	last bool // made from Run: the run's last attempt
}

// Drop is an entry of the missed ledger.
type Drop struct {
	Job         int64
	First, Last time.Time
	Count       int
	Policy      domain.Misfire
	At          time.Time
	Why         explain.Note
}

// Late is a result that arrived after its attempt had ended, and changed no state.
type Late struct {
	Run     string
	Attempt int
	Outcome string
}

// Ack is a change that REST acknowledged.
type Ack struct {
	What    string // "version" or "trigger"
	Job     int64
	Version int       // of "version"
	At      time.Time // of "version": when the answer arrived
	Run     string    // of "trigger"
	Tag     string    // of "trigger": the param, different for each trigger
	Again   bool      // of "trigger": the request was repeated under its idempotency key, because the first one got no answer
}

// Note is what a handler wrote to its file about one call.
type Note struct {
	Run      string
	Attempt  int
	Instance string
	Boot     string
	Start    time.Time
	End      time.Time // zero: the handler did not end
	Outcome  string    // one of the constants; "" without an end

	began, ended time.Time // Start and End by the machine's clock; set by Check
}

// The outcomes that handlers write.
const (
	OK        = "ok"
	Error     = "error"
	Permanent = "permanent"
	Panic     = "panic"
	Cancelled = "cancelled" // its context was cancelled
)

// WriteStart appends a line for the start of a call, in one write.
func WriteStart(w io.Writer, run string, attempt int, boot string, at time.Time) error {
	_, err := io.WriteString(w, fmt.Sprintf("S %s %d %s %d\n", run, attempt, boot, at.UnixNano()))
	return err
}

// WriteEnd appends a line for the end of a call, in one write.
func WriteEnd(w io.Writer, run string, attempt int, boot string, at time.Time, outcome string) error {
	_, err := io.WriteString(w, fmt.Sprintf("E %s %d %s %d %s\n", run, attempt, boot, at.UnixNano(), outcome))
	return err
}

// ReadNotes reads the lines that an instance's handlers wrote with WriteStart and WriteEnd.
func ReadNotes(r io.Reader, instance string) ([]Note, error) {
	type call struct {
		run, boot string
		attempt   int
	}
	var notes []Note
	open := make(map[call]int)
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		f := strings.Fields(lines.Text())
		if len(f) != 5 && len(f) != 6 {
			return notes, fmt.Errorf("line %d of %s is not a note: %q", n, instance, lines.Text())
		}
		attempt, err := strconv.Atoi(f[2])
		if err != nil {
			return notes, fmt.Errorf("line %d of %s: %w", n, instance, err)
		}
		nanos, err := strconv.ParseInt(f[4], 10, 64)
		if err != nil {
			return notes, fmt.Errorf("line %d of %s: %w", n, instance, err)
		}
		at, c := time.Unix(0, nanos).UTC(), call{f[1], f[3], attempt}
		if f[0] == "S" {
			open[c] = len(notes)
			notes = append(notes, Note{Run: c.run, Attempt: attempt, Instance: instance, Boot: c.boot, Start: at})
			continue
		}
		i, found := open[c]
		if f[0] != "E" || len(f) != 6 || !found {
			return notes, fmt.Errorf("line %d of %s is an end without a start: %q", n, instance, lines.Text())
		}
		notes[i].End, notes[i].Outcome = at, f[5]
	}
	return notes, lines.Err()
}

// Fault is an injected fault of a process or a server.
type Fault struct {
	Kind   string // "kill executor", "cut nats", …
	Target string // "s1", "r2", "postgres", …
	From   time.Time
	To     time.Time // when the fault was healed; for a kill, when the process was started again
}

// stops reports whether the fault can stop the attempts of an executor or its messages.
func (f *Fault) stops() bool {
	for _, verb := range []string{"kill ", "stop ", "replace ", "freeze ", "cut nats", "blackhole nats"} {
		if strings.HasPrefix(f.Kind, verb) {
			return true
		}
	}
	return false
}

// attacks reports whether the fault is an attack by a group.
func (f *Fault) attacks() bool { return strings.HasPrefix(f.Kind, "attack ") }

// ends reports whether the fault ends the process.
func (f *Fault) ends() bool { return strings.HasPrefix(f.Kind, "kill ") || f.terminates() }

// terminates reports whether the fault sends SIGTERM to the process.
func (f *Fault) terminates() bool {
	return strings.HasPrefix(f.Kind, "stop ") || strings.HasPrefix(f.Kind, "replace ")
}
