package domain

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

var instant = time.Date(2026, 3, 29, 1, 30, 0, 123_456_789, time.UTC)

func TestRunIDText(t *testing.T) {
	id := NewRunID(instant)
	back, err := ParseRunID(id.String())
	if err != nil || back != id {
		t.Fatalf("%s: %s, %v", id, back, err)
	}
	body, err := json.Marshal(map[RunID]RunID{id: id})
	if err != nil {
		t.Fatal(err)
	}
	var m map[RunID]RunID
	if err := json.Unmarshal(body, &m); err != nil || m[id] != id {
		t.Errorf("%s: %v, %v", body, m, err)
	}
	for _, bad := range []string{
		"", "x", "019a9d2c7b40800080000123456789ab", "019a9d2c-7b40-8000-8000-0123456789a", "019a9d2c-7b40-8000-8000-0123456789abc",
		"019a9d2c-7b40-8000-8000-0123456789ag", "019a9d2c_7b40_8000_8000_0123456789ab", "019a9d2c-7b40-8000-8000-0123456789\x00b",
		"-19a9d2c-7b40-8000-8000-0123456789ab ",
	} {
		if id, err := ParseRunID(bad); err == nil || !id.IsZero() {
			t.Errorf("%q is read as %s", bad, id)
		}
	}
}

// The ids of scheduled runs, shards and children are stored: the same input must give the same id in every version.
func TestComputedIDsNeverChange(t *testing.T) {
	first := ScheduledRunID(7, instant, 0)
	for name, got := range map[string]RunID{
		"019d3736-523b-8b68-9de6-8e218b4653e9": first,
		"019d3736-523b-840f-88a9-e9465981e35e": ShardRunID(first, 3),
		"019d3736-523b-8f3d-8961-3c52986f5ce9": ChildRunID(first, 8, instant),
	} {
		if got.String() != name {
			t.Errorf("%s, was %s", got, name)
		}
	}
	if ShardRunID(first, 0) != first {
		t.Error("the id of shard 0 differs from the broadcast's")
	}
}

func TestComputedIDsDiffer(t *testing.T) {
	seen := make(map[RunID]string)
	add := func(what string, id RunID) {
		if before := seen[id]; before != "" {
			t.Errorf("%s and %s have the id %s", before, what, id)
		}
		seen[id] = what
		if id[6]>>4 != 8 || id[8]>>6 != 2 {
			t.Errorf("%s: %s is not a version 8 UUID", what, id)
		}
		if !id.Time().Equal(instant.Truncate(time.Millisecond)) {
			t.Errorf("%s: its time is %s", what, id.Time())
		}
	}
	a, b := ScheduledRunID(7, instant, 0), ScheduledRunID(8, instant, 0)
	add("job 7", a)
	add("job 8", b)
	add("job 7, shard 1", ScheduledRunID(7, instant, 1))
	add("shard 1 of job 7's", ShardRunID(a, 1))
	add("shard 2 of job 7's", ShardRunID(a, 2))
	add("shard 1 of job 8's", ShardRunID(b, 1))
	add("child 1", ChildRunID(a, 1, instant))
	add("child 2", ChildRunID(a, 2, instant))
	add("child 1 of another", ChildRunID(b, 1, instant))
	add("event, trigger 1", EventRunID(a, 1))
	add("event, trigger 2", EventRunID(a, 2))
	add("another event, trigger 1", EventRunID(b, 1))
	if ScheduledRunID(7, instant, 0) != ScheduledRunID(7, instant.Truncate(time.Millisecond).In(time.FixedZone("x", 3600)), 0) {
		t.Error("the id depends on the time zone or on fractions of a millisecond")
	}
}

func TestRunIDsSortByTime(t *testing.T) {
	var ids []RunID
	for i := range 100 {
		at := instant.Add(time.Duration(i) * time.Millisecond)
		first := FirstRunID(at)
		for _, id := range []RunID{NewRunID(at), ScheduledRunID(JobID(i), at, 0)} {
			if slices.Compare(first[:], id[:]) > 0 || !id.Time().Equal(first.Time()) {
				t.Errorf("%s comes before the first id of its instant, %s", id, first)
			}
		}
		ids = append(ids, NewRunID(at))
	}
	if !slices.IsSortedFunc(ids, func(a, b RunID) int { return slices.Compare(a[:], b[:]) }) {
		t.Error("ids do not sort by time")
	}
	if v := ids[0][6] >> 4; v != 7 {
		t.Errorf("a random id has version %d", v)
	}
}
