package wire

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files; a released field must not change in them")

var at = Time{time.Date(2026, 3, 29, 1, 30, 0, 123_000_000, time.UTC)}

var (
	load   = Load{Capacity: 256, Running: 3, Seq: 42, Draining: true}
	result = Result{
		Instance: "i1", BootID: "b1", RunID: "019d374d-0a3b-8d92-ad39-c2af5d4cc99d", Attempt: 2, Bind: 3, Outcome: Failed,
		Reason: "handler_error", Message: "boom", Output: "{}", RetryAfterMS: 1500, Permanent: true, StartedAt: at, FinishedAt: at, LastLine: 9,
	}
)

// messages holds all messages of version 1, with every field set. Messages with optional fields are also included
// without them.
var messages = map[string]any{
	"offers": &Offers{V: 1, BootID: "b1", Beat: 12, Offers: []Offer{{
		RunID: result.RunID, Attempt: 2, Bind: 3, BoundAt: at, JobID: 7, JobName: "n", Group: "g", Handler: "echo", Param: "p",
		Cause: "child", FireTime: at, DueAt: at, Now: at, TimeoutMS: 60_000, Shard: Shard{1, 3},
		Parent: &Parent{RunID: result.RunID, Output: "o"}, Labels: map[string]string{"k": "v"},
	}, {
		RunID: result.RunID, Attempt: 1, Bind: 1, Group: "g", Script: &Script{Language: "sh", Version: 4, SHA256: "ab"}, Shard: Shard{0, 1},
	}}},
	"answer": &Answer{V: 1, Instance: "i1", BootID: "b1", Load: load, Verdicts: []Verdict{
		{RunID: result.RunID, Attempt: 2, Verdict: Accepted}, {RunID: result.RunID, Attempt: 2, Verdict: Refused, Reason: RefusedFull},
		{RunID: result.RunID, Attempt: 1, Verdict: Ended, Outcome: Succeeded},
	}},
	"results":        &Results{V: 1, Load: load, Results: []Result{result, {Instance: "i1", BootID: "b1", RunID: "x", Attempt: 1, Outcome: Succeeded}}},
	"logs":           &Logs{V: 1, Instance: "i1", RunID: result.RunID, Attempt: 2, Lines: []LogLine{{N: 1, At: at, Level: "info", Text: "t"}}},
	"heartbeat":      &Heartbeat{V: 1, Instance: "i1", Group: "g", BootID: "b1", Beat: 12, Handlers: []string{"echo"}, Languages: []string{"sh"}, Capacity: 256, Running: 3, Seq: 42, Labels: map[string]string{"k": "v"}, Version: "1.0", Host: "h", StartedAt: at, Draining: true, Unfit: &Unfit{Reason: UnfitOutOfFiles, Message: "60 of 64 file descriptors are open"}},
	"goodbye":        &Goodbye{V: 1, SettledBoot: "b1"},
	"control":        &Control{V: 1, Op: OpKill, Runs: []Ref{{RunID: result.RunID, Attempt: 2, BootID: "b1"}}, SHA256: "ab", Reason: "killed"},
	"control_ping":   &Control{V: 1, Op: OpPing},
	"control_script": &Control{V: 1, Op: OpScript, SHA256: "ab", Code: []byte("true")},
	"answer_script":  &Answer{V: 1, Instance: "i1", BootID: "b1", Load: load, Verdicts: []Verdict{{RunID: result.RunID, Attempt: 2, Verdict: Accepted}}, Scripts: []string{"ab"}},
	"control_reply":  &ControlReply{V: 1, Instance: "i1", BootID: "b1", Load: load, Statuses: []Status{{RunID: result.RunID, Attempt: 2, Status: StatusDone, Result: &result, StartedAt: at}}, Error: "e"},
	"run_changes":    &RunChanges{V: 1, Runs: []RunChange{{RunID: result.RunID, JobID: 7, JobName: "n", State: "failed", Reason: "timeout", Cause: "schedule", FireTime: at, Attempt: 2}}},
	"dead_letter":    &DeadLetter{V: 1, At: at, Subject: "belfry.v1.result.g", Error: "e", Data: []byte("{")},
}

// TestGolden compares every message with its released form, and decodes that form.
func TestGolden(t *testing.T) {
	for name, m := range messages {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".json")
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, Encode(m), "", "  "); err != nil {
				t.Fatal(err)
			}
			pretty.WriteByte('\n')
			if *update {
				if err := os.WriteFile(file, pretty.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if pretty.String() != string(want) {
				t.Errorf("%s\nis now\n%s", want, pretty.String())
			}
			back := reflect.New(reflect.TypeOf(m).Elem()).Interface()
			if err := json.Unmarshal(want, back); err != nil || !reflect.DeepEqual(back, m) {
				t.Errorf("read back: %+v, %v", back, err)
			}
			v, ok := back.(Versioned)
			if !ok {
				return // a dead letter is never decoded
			}
			if err := Decode(want, v); err != nil {
				t.Error(err)
			}
			later := bytes.Replace(want, []byte(`"v": 1`), []byte(`"v": 1, "from_the_future": {"a": [1]}`), 1)
			if err := Decode(later, v); err != nil {
				t.Errorf("an unknown field: %v", err)
			}
			if err := Decode(bytes.Replace(want, []byte(`"v": 1`), []byte(`"v": 2`), 1), v); err == nil || !strings.Contains(err.Error(), "version 2") {
				t.Errorf("another version: %v", err)
			}
		})
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) != len(messages) {
		t.Errorf("%d golden files for %d messages, %v", len(files), len(messages), err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, data := range map[string]string{
		"nothing": "", "null": "null", "no version": "{}", "a list": "[]", "cut off": `{"v": 1, "results": [`, "a wrong type": `{"v": 1, "results": 7}`,
		"a bad instant":    `{"v": 1, "results": [{"started_at": "yesterday"}]}`,
		"no UTC year":      `{"v": 1, "results": [{"started_at": "9999-12-31T23:59:59-01:00"}]}`,
		"a huge number":    `{"v": 1, "results": [{"attempt": 1e400}]}`,
		"deep nesting":     strings.Repeat("[", 100_000),
		"two messages":     `{"v": 1}{"v": 1}`,
		"over the maximum": `{"v": 1, "x": "` + strings.Repeat("x", MaxMessageBytes) + `"}`,
	} {
		if err := Decode([]byte(data), new(Results)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range messages {
		f.Add(Encode(m))
	}
	f.Add([]byte(`{"v":1,"results":[{"started_at":null,"finished_at":""}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, m := range messages {
			v, ok := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Versioned)
			if !ok || Decode(data, v) != nil {
				continue
			}
			again := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Versioned)
			first := Encode(v) // a decoded message can be encoded and decodes to the same value
			if err := Decode(first, again); err != nil && len(first) <= MaxMessageBytes {
				t.Fatalf("%T: %q was accepted, but %q is not: %v", v, data, first, err)
			} else if err == nil && string(Encode(again)) != string(first) {
				t.Fatalf("%T: %q became %q", v, first, Encode(again))
			}
		}
	})
}

func TestTime(t *testing.T) {
	for in, want := range map[string]string{
		`"2026-03-29T03:30:00.123456+02:00"`: `"2026-03-29T01:30:00.123Z"`, `null`: `null`, `""`: `null`,
	} {
		var v Time
		if err := json.Unmarshal([]byte(in), &v); err != nil || string(Encode(v)) != want {
			t.Errorf("%s: %s, %v", in, Encode(v), err)
		}
	}
}

func TestSubjects(t *testing.T) {
	for got, want := range map[string]string{
		TriggerSubject("g", "i"): "belfry.v1.trigger.g.i", ControlSubject("g", "i"): "belfry.v1.control.g.i", ResultSubject("g"): "belfry.v1.result.g",
		LogSubject("g"): "belfry.v1.log.g", RunSubject("g"): "belfry.v1.run.g", EventSubject("a.b"): "belfry.v1.event.a.b", DeadSubject("log", ""): "belfry.v1.dead.log",
		DeadSubject("log", "g"): "belfry.v1.dead.log.g", OverflowSubject("g"): "belfry.v1.overflow.result.g",
		GroupOfSubject("belfry.v1.result.g"): "g", InstanceKey("g", "i"): "g.i",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if g, i, ok := SplitInstanceKey("g.i"); g != "g" || i != "i" || !ok {
		t.Error("SplitInstanceKey")
	}
	for _, bad := range []string{"", "g", "g.", ".i", "g.i.x", "."} {
		if _, _, ok := SplitInstanceKey(bad); ok {
			t.Errorf("the key %q is accepted", bad)
		}
	}
	for name, want := range map[string]bool{
		"i": true, "Host-1_a": true, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false,
		"": false, "-a": false, "a.b": false, "*": false, ">": false, "a b": false, "a\n": false, "ä": false,
	} {
		if ValidInstance(name) != want {
			t.Errorf("instance %q: %v", name, !want)
		}
	}
}

func TestValidBootID(t *testing.T) {
	for id, want := range map[string]bool{
		"5f0c8a1e9d3b4c67": true, "ä b.*": true, strings.Repeat("a", MaxBootID): true, strings.Repeat("a", MaxBootID+1): false,
		"": false, "a\x00": false, "a\n": false, "a\u0085": false, "a\xff": false,
	} {
		if ValidBootID(id) != want {
			t.Errorf("boot id %q: %v", id, !want)
		}
	}
}
