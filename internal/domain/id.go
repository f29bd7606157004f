package domain

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"
)

// JobID identifies a job. Postgres assigns it.
type JobID int64

// RunID identifies a run. It is a UUID whose first 48 bits are Unix milliseconds, so that ids sort by time and determine the day
// partition of the history table.
type RunID [16]byte

// NilRunID is the zero id. No run has it.
var NilRunID RunID

var errBadRunID = errors.New("a run id is a UUID such as 019a9d2c-7b40-8000-8000-0123456789ab")

// ParseRunID reads the canonical text form of a UUID.
func ParseRunID(s string) (RunID, error) {
	var id RunID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, errBadRunID
	}
	compact := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(id[:], []byte(compact)); err != nil {
		return NilRunID, errBadRunID
	}
	return id, nil
}

// String returns the canonical text form.
func (id RunID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], id[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], id[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], id[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], id[10:16])
	return string(b[:])
}

// MarshalText writes the canonical text form.
func (id RunID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the canonical text form.
func (id *RunID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseRunID(string(b))
	return err
}

// IsZero reports whether the id is NilRunID.
func (id RunID) IsZero() bool { return id == NilRunID }

// Time returns the instant in the id's first 48 bits.
func (id RunID) Time() time.Time {
	var b [8]byte
	copy(b[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b[:]))).UTC()
}

// ScheduledRunID computes the id of the run for a job's fire time and shard. Because the id is computed, the primary key of the
// run tables prevents a second run for the same fire time and shard, whichever scheduler plans it.
func ScheduledRunID(job JobID, fireTime time.Time, shard int) RunID {
	return hashedRunID(fireTime, "schedule", uint64(job), uint64(fireTime.UnixMilli()), uint64(shard))
}

// ShardRunID computes the id of shard index of the broadcast whose shard 0 is first.
func ShardRunID(first RunID, index int) RunID {
	if index == 0 {
		return first
	}
	hi, lo := first.words()
	return hashedRunID(first.Time(), "shard", hi, lo, uint64(index))
}

// ChildRunID computes the id of the child run that a parent's end at endedAt causes. A follow-up that is processed twice
// therefore creates one run.
func ChildRunID(parent RunID, child JobID, endedAt time.Time) RunID {
	hi, lo := parent.words()
	return hashedRunID(endedAt, "child", hi, lo, uint64(child))
}

func (id RunID) words() (hi, lo uint64) {
	return binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
}

// hashedRunID returns a version 8 UUID (RFC 9562) from an instant and a hash.
func hashedRunID(at time.Time, kind string, words ...uint64) RunID {
	hashed := append(make([]byte, 0, 64), kind...)
	for _, w := range words {
		hashed = binary.BigEndian.AppendUint64(hashed, w)
	}
	sum := sha256.Sum256(hashed)
	var id RunID
	copy(id[6:], sum[:])
	return id.stamp(at, 8)
}

// EventRunID computes the id of the run that an event causes through a trigger. An event that is processed twice therefore
// creates one run. The run's id begins with the same time as the event's id.
func EventRunID(event RunID, trigger int64) RunID {
	hi, lo := event.words()
	return hashedRunID(event.Time(), "event", hi, lo, uint64(trigger))
}

// NewRunID returns a random version 7 UUID, for a run whose id no fire time, parent or event determines.
func NewRunID(now time.Time) RunID {
	var id RunID
	rand.Read(id[6:]) // documented to never fail
	return id.stamp(now, 7)
}

// FirstRunID returns the smallest id of the instant. It is the boundary of a history day or of a cursor.
func FirstRunID(at time.Time) RunID {
	var id RunID
	putMillis(&id, at)
	return id
}

func (id RunID) stamp(at time.Time, version byte) RunID {
	putMillis(&id, at)
	id[6] = id[6]&0x0f | version<<4
	id[8] = id[8]&0x3f | 0x80
	return id
}

func putMillis(id *RunID, at time.Time) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(at.UnixMilli()))
	copy(id[:6], b[2:])
}
