// Package checker judges the history of a Belfry under faults: from the versions of its jobs it computes when each
// should have fired, and matches that with the runs, the missed ledger, what the handlers themselves wrote down, and the
// faults that were done to it. It is to the engine what Jepsen's Chronos checker is to Chronos, and shares no code with
// what it judges but the values of package domain: schedules are evaluated here once more, as far as the fault test uses
// them.
//
// Where a rule cannot tell, because an edit, a jitter and a fire time fell together, it takes either answer; everywhere
// else it takes one. All instants come from one machine's clock: that of the database, of the handlers' notes (which
// ignore what clocks their process was given) and of the faults.
package checker

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// History is all that is known after the end, when every fault was healed and all has become quiet.
type History struct {
	Versions []Version // by job, then number
	Runs     []Run
	Attempts []Attempt // earlier ones, beside the last, which is in the run
	Ledger   []Drop
	Late     []Late // results of attempts that had ended without them
	Notes    []Note
	Faults   []Fault
	Acks     []Ack
	Kills    map[string]bool // runs that somebody asked to kill
	Crowded  bool            // other tests had the machine as well: how late a run started is not judged
	Stalls   []Stall         // of the machine
}

// Stall is a moment in which the machine took long for a step that usually takes a millisecond. Ten such steps, one after
// the other, are what a run may wait for: see package rig.
type Stall struct {
	From time.Time
	Took time.Duration
}

// Version is a version of a job, and from when to when it held.
type Version struct {
	Job       int64
	Number    int
	Spec      domain.JobSpec
	CreatedAt time.Time // the job's
	From      time.Time
	To        time.Time // zero: it holds
	Change    string
}

func (v *Version) enabled() bool { return v.Spec.Enabled && v.Change != "deleted" }

// Run is a run at the end.
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
	DueAt        time.Time // of its last attempt, or of its release
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

// Attempt is an ended attempt after which its run went on, or was to.
type Attempt struct {
	Run          string
	Attempt      int
	Instance     string
	DispatchedAt time.Time
	StartedAt    time.Time
	FinishedAt   time.Time
	Outcome      string
	Reason       domain.Reason

	last bool // it stands in its run
}

// Drop is an entry of the missed ledger.
type Drop struct {
	Job         int64
	First, Last time.Time
	Count       int
	Policy      domain.Misfire
	At          time.Time
	Why         string
}

// unexplained begins the reason of an entry for what the engine's own audit found to have been forgotten.
const unexplained = "unexplained:"

// Late is a result that changed no state.
type Late struct {
	Run     string
	Attempt int
	Outcome string
}

// Ack is what REST said that it had done.
type Ack struct {
	What    string // "version" or "trigger"
	Job     int64
	Version int       // of "version"
	At      time.Time // of "version": when the answer was there
	Run     string    // of "trigger"
	Tag     string    // of "trigger": the param, which no other trigger had
	Again   bool      // of "trigger": it was asked for more than once, under one key, as the first time was not answered
}

// Note is what a handler wrote down about one call of it.
type Note struct {
	Run      string
	Attempt  int
	Instance string
	Boot     string
	Start    time.Time
	End      time.Time // zero: it never came to its end
	Outcome  string    // see the constants; "" without an end
}

// The outcomes that handlers note.
const (
	OK        = "ok"
	Error     = "error"
	Permanent = "permanent"
	Panic     = "panic"
	Cancelled = "cancelled" // its context was
)

// WriteStart notes the start of a call, in one write.
func WriteStart(w io.Writer, run string, attempt int, boot string, at time.Time) error {
	_, err := io.WriteString(w, fmt.Sprintf("S %s %d %s %d\n", run, attempt, boot, at.UnixNano()))
	return err
}

// WriteEnd notes its end, in one write.
func WriteEnd(w io.Writer, run string, attempt int, boot string, at time.Time, outcome string) error {
	_, err := io.WriteString(w, fmt.Sprintf("E %s %d %s %d %s\n", run, attempt, boot, at.UnixNano(), outcome))
	return err
}

// ReadNotes reads what an instance's handlers wrote with WriteStart and WriteEnd.
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
			return notes, fmt.Errorf("line %d of %s ends what had no start: %q", n, instance, lines.Text())
		}
		notes[i].End, notes[i].Outcome = at, f[5]
	}
	return notes, lines.Err()
}

// Fault is something that was done to a process or a server.
type Fault struct {
	Kind   string // "kill executor", "cut nats", …
	Target string // "s1", "r2", "postgres", …
	From   time.Time
	To     time.Time // when it was healed; of a kill, when the process was started again
}

// stops reports whether the fault can have stopped an executor's attempts, or silenced it.
func (f *Fault) stops() bool {
	for _, verb := range []string{"kill ", "stop ", "freeze ", "cut nats", "blackhole nats"} {
		if strings.HasPrefix(f.Kind, verb) {
			return true
		}
	}
	return false
}

// ends reports whether the fault ended the process.
func (f *Fault) ends() bool {
	return strings.HasPrefix(f.Kind, "kill ") || strings.HasPrefix(f.Kind, "stop ")
}
