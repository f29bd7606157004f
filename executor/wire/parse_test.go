package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sameAsJSON parses data by hand and requires that encoding/json reads the same. It reports whether data could be
// parsed by hand.
func sameAsJSON[T any, P interface {
	*T
	canonical
}](t interface{ Fatalf(string, ...any) }, data []byte) bool {
	var byHand, byJSON T
	if !P(&byHand).parse(data) {
		if !reflect.ValueOf(byHand).IsZero() {
			t.Fatalf("a failed parse by hand left %+v", byHand)
		}
		return false
	}
	if err := json.Unmarshal(data, &byJSON); err != nil {
		t.Fatalf("parsed by hand, but encoding/json returns %v: %s", err, data)
	}
	if !reflect.DeepEqual(byHand, byJSON) {
		t.Fatalf("%s\nby hand:       %+v\nencoding/json: %+v", data, byHand, byJSON)
	}
	return true
}

func readAll(t interface{ Fatalf(string, ...any) }, data []byte) (n int) {
	for _, read := range []bool{
		sameAsJSON[Offers](t, data), sameAsJSON[Results](t, data), sameAsJSON[Answer](t, data), sameAsJSON[Control](t, data),
	} {
		if read {
			n++
		}
	}
	return n
}

// ordinary returns messages as they are sent for nearly every run.
func ordinary() [][]byte {
	now := Time{time.Date(2026, 2, 28, 23, 59, 58, 7e6, time.UTC)}
	offer := AppendOffer(nil, &Offer{
		RunID: "01a1f9bb-2df5-8ba8-ba94-ebf58858211d", Attempt: 1, Bind: 2, BoundAt: now, JobID: 4711, JobName: "nightly", Group: "orders",
		Handler: "http", Param: "{}", Cause: "schedule", FireTime: now, DueAt: now, Now: now, TimeoutMS: 1500, Shard: Shard{0, 1},
	})
	traced := AppendOffer(nil, &Offer{
		RunID: "01a1f9bb-2df5-8ba8-ba94-ebf58858211d", Attempt: 1, Handler: "http", Cause: "api", Shard: Shard{0, 1},
		Labels: map[string]string{LabelTraceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
	})
	labelled := AppendOffer(nil, &Offer{Handler: "http", Shard: Shard{0, 1}, Labels: map[string]string{"a": "", "b": "c"}})
	result := Result{
		Instance: "host-1", BootID: "b", RunID: "r", Attempt: 1, Bind: 2, Outcome: Failed, Reason: "handler_error", Message: "no", Output: "out",
		RetryAfterMS: 5, Permanent: true, StartedAt: now, FinishedAt: now, LastLine: 3,
	}
	load := Load{Capacity: 256, Running: 3, Seq: 99, Draining: true}
	return [][]byte{
		offersOf("boot", 41, offer, offer),
		offersOf("boot", 0, offer),
		offersOf("boot", 41, traced, offer, labelled),
		bytes.Replace(offersOf("boot", 41, offer), []byte("nightly"), []byte("<a> & b"), 1), // as other languages may write it
		EncodeResults(load, [][]byte{AppendResult(nil, &result), AppendResult(nil, &Result{Outcome: Succeeded})}),
		Encode(Answer{V: 1, Instance: "host-1", BootID: "b", Load: load, Verdicts: []Verdict{
			{RunID: "r", Attempt: 1, Verdict: Accepted}, {RunID: "s", Attempt: 2, Verdict: Refused, Reason: RefusedFull}, {RunID: "t", Attempt: 1, Verdict: Ended, Outcome: Succeeded}}}),
		EncodeSettled([]Ref{{RunID: "r", Attempt: 1, BootID: "b"}, {RunID: "s", Attempt: 2}}),
	}
}

func TestParsed(t *testing.T) {
	for _, data := range ordinary() {
		if readAll(t, data) != 1 {
			t.Errorf("not parsed by hand: %s", data)
		}
	}
}

// For every mutation of a message, the hand-written parser and encoding/json agree.
func TestParsedAsDecoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SampledFrom(ordinary()).Draw(t, "message")
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			i := rapid.IntRange(0, len(data)-1).Draw(t, "at")
			with := rapid.SampledFrom([]string{"", " ", "0", "9", "-", `"`, `\`, "\x00", "é", "null", "1e3", "3", "1", ",", "}", "]"}).Draw(t, "with")
			data = append(append(append([]byte{}, data[:i]...), with...), data[i+rapid.IntRange(0, 1).Draw(t, "instead"):]...)
		}
		readAll(t, data)
	})
}

func FuzzParse(f *testing.F) {
	for _, data := range ordinary() {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { readAll(t, data) })
}

// A message that reuses an earlier message's memory keeps none of its values.
func TestOffersReadInPlace(t *testing.T) {
	at := Time{Time: time.UnixMilli(1_790_000_000_123).UTC()}
	whole := AppendOffer(nil, &Offer{RunID: "r", Attempt: 7, Bind: 2, BoundAt: at, JobName: "j", Handler: "h", Param: "p", DueAt: at, Shard: Shard{Total: 1}})
	sparse := []byte(`{"attempt":1,"run_id":"s"}`)
	var m Offers
	if err := Decode(offersOf("b", 3, whole, whole, whole), &m); err != nil || len(m.Offers) != 3 {
		t.Fatal(m, err)
	}
	room := &m.Offers[0]
	m = Offers{Offers: m.Offers[:0]}
	if err := Decode(offersOf("b", 0, sparse, sparse), &m); err != nil || len(m.Offers) != 2 {
		t.Fatal(m, err)
	}
	if &m.Offers[0] != room {
		t.Error("the memory was not reused")
	}
	if want := (Offer{RunID: "s", Attempt: 1}); !reflect.DeepEqual(m.Offers[1], want) {
		t.Errorf("read %+v, want %+v", m.Offers[1], want)
	}
}
