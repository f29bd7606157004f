// Package jobhealth computes the health of jobs from their finished runs: durations in one byte each, counts by hour, and the streak of
// failures. It is pure. The roll-up of settled runs stores its values in the table job_health, and lists read them.
//
// A job is failing if its newest failed run is not older than its newest succeeded run. Runs are compared by the instant in their ids, which
// all shards of a broadcast share. The result does not depend on the order in which runs are settled.
package jobhealth

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	// pastHours is the number of past hours whose runs are counted.
	pastHours = 23
	// steps is the number of codes for each doubling of a duration. The last code stands for 24 days.
	steps = 8
)

// Code returns the code of a duration: 0 for less than a millisecond, otherwise 1 plus the logarithm of the milliseconds in steps of 9 percent.
func Code(d time.Duration) byte {
	if d < time.Millisecond {
		return 0
	}
	ms := float64(d) / float64(time.Millisecond)
	return byte(min(1+math.Floor(steps*math.Log2(ms)), math.MaxUint8))
}

// Milliseconds returns the middle of the durations that have a code.
func Milliseconds(code byte) int64 {
	if code == 0 {
		return 0
	}
	return int64(math.Round(math.Exp2((float64(code) - 0.5) / steps)))
}

// Quantile returns the q-quantile of durations by the nearest rank, as a code. There must be at least one.
func Quantile(durations []byte, q float64) byte {
	sorted := slices.Sorted(slices.Values(durations))
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[max(rank, 1)-1]
}

// Hour returns the number of the hour that contains an instant, counted from 1970.
func Hour(at time.Time) int32 { return int32(at.Unix() / 3600) }

// Hours counts the runs of an hour and of the 23 hours before it.
type Hours struct {
	Hour int32  // the number of the hour
	Runs int32  // in that hour
	Past []byte // in the hours before, newest first; two bytes each, at most 32,767
}

// Add counts runs of an hour. If the hour is over, the runs count in the present hour.
func (h Hours) Add(hour, runs int32) Hours {
	if hour <= h.Hour {
		h.Runs += runs
		return h
	}
	empty := min(hour-h.Hour-1, pastHours)
	past := make([]byte, 2*empty, 2*(empty+1)+int32(len(h.Past)))
	past = binary.BigEndian.AppendUint16(past, uint16(min(h.Runs, math.MaxInt16)))
	past = append(past, h.Past...)
	return Hours{hour, runs, past[:min(len(past), 2*pastHours)]}
}

// Day returns the sum of an hour and the 23 hours before it.
func (h Hours) Day(hour int32) int {
	age := int(hour - h.Hour) // hours that have passed without runs
	if age > pastHours {
		return 0
	}
	sum := int(h.Runs)
	for i := 0; i+1 < len(h.Past) && i/2+1+age <= pastHours; i += 2 {
		sum += int(binary.BigEndian.Uint16(h.Past[i:]))
	}
	return sum
}

// Run is a finished run.
type Run struct {
	ID      domain.RunID
	At      time.Time // when it finished
	Version int32     // of the job
}

// Failures is the part of a job's health that failed runs change.
type Failures struct {
	Failing   bool
	Streak    int32        // failed runs in a row, up to the newest one
	Since     time.Time    // when the first run of the streak finished
	Newest    Run          // the newest failed run; zero if none has failed
	Recovered domain.RunID // the succeeded run that ended the streak; the zero id: none
	Hours     Hours
}

// Add adds runs that failed. success is the newest run that has succeeded, or the zero id. If one of the runs belongs to the same broadcast as the
// success that has ended the streak, it has not ended the streak.
func (f Failures) Add(success domain.RunID, failed []Run, hour int32) Failures {
	f.Hours = f.Hours.Add(hour, int32(len(failed)))
	sibling := func(r Run) bool { return sameInstant(r.ID, success) && sameInstant(success, f.Recovered) }
	resumes := f.Failing || slices.ContainsFunc(failed, sibling)
	for _, r := range failed {
		if bytes.Compare(r.ID[:], f.Newest.ID[:]) > 0 {
			f.Newest = r
		}
		if f.Since.IsZero() {
			f.Since = r.At // not null
		}
		if Older(r.ID, success) {
			continue
		}
		switch {
		case !resumes:
			f.Streak, f.Since, resumes = 0, r.At, true
		case r.At.Before(f.Since):
			f.Since = r.At
		}
		f.Failing = true
		f.Streak++
	}
	return f
}

// instant is the number of the first bytes of a run's id that are its instant in milliseconds.
const instant = 6

// Older reports whether a run is older than another one by the instants in their ids.
func Older(a, b domain.RunID) bool { return bytes.Compare(a[:instant], b[:instant]) < 0 }

func sameInstant(a, b domain.RunID) bool { return bytes.Equal(a[:instant], b[:instant]) }
