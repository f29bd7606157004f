package wire

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hard draws text that sometimes needs JSON escapes.
func hard() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom([]string{"", "plain", `"quoted"`, "a\nb", "<&>", "\u2028", "日本", "\xff"}), rapid.String())
}

func instants() *rapid.Generator[Time] {
	return rapid.Custom(func(t *rapid.T) Time {
		if rapid.Bool().Draw(t, "zero") {
			return Time{}
		}
		at := time.Unix(rapid.Int64Range(-62_135_596_800, 253_402_300_799).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		return Time{at.In(time.FixedZone("", rapid.IntRange(-50_000, 50_000).Draw(t, "zone")))}
	})
}

// TestAppendedAsEncoded verifies that the hand-written encoders write the same as encoding/json.
func TestAppendedAsEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string { return hard().Draw(t, name) }
		at := func(name string) Time { return instants().Draw(t, name) }
		n := func(name string) int { return rapid.Int().Draw(t, name) }
		o := Offer{
			RunID: text("run"), Attempt: n("attempt"), Bind: n("bind"), BoundAt: at("bound"), JobID: int64(n("job")), JobName: text("name"),
			Group: text("group"), Handler: text("handler"), Param: text("param"), Cause: text("cause"), FireTime: at("fire"),
			DueAt: at("due"), Now: at("now"), TimeoutMS: int64(n("timeout")), Shard: Shard{n("index"), n("total")},
		}
		if rapid.Bool().Draw(t, "more") {
			o.Script = &Script{Language: text("language"), Version: n("version"), SHA256: text("sha")}
			o.Parent = &Parent{RunID: text("parent"), Output: text("output")}
			o.Labels = map[string]string{"a": text("label")}
		}
		r := Result{
			Instance: text("instance"), BootID: text("boot"), RunID: text("run"), Attempt: n("attempt"), Bind: n("bind"), Outcome: text("outcome"),
			Reason: text("reason"), Message: text("message"), Output: text("output"), RetryAfterMS: int64(n("after")),
			Permanent: rapid.Bool().Draw(t, "permanent"), StartedAt: at("started"), FinishedAt: at("finished"), LastLine: int64(n("last")),
		}
		c := RunChange{
			RunID: text("run"), JobID: int64(n("job")), JobName: text("name"), State: text("state"), Reason: text("reason"),
			Cause: text("cause"), FireTime: at("fire"), Attempt: n("attempt"),
		}
		ref := Ref{RunID: text("run"), Attempt: n("attempt"), BootID: text("boot")}
		beat := rapid.SampledFrom([]int64{0, 1, 12_345}).Draw(t, "beat")
		load := Load{Capacity: n("capacity"), Running: n("running"), Seq: int64(n("seq")), Draining: rapid.Bool().Draw(t, "draining")}
		answer := Answer{V: Version, Instance: text("instance"), BootID: text("boot"), Load: load, Verdicts: []Verdict{}}
		for range rapid.IntRange(0, 2).Draw(t, "verdicts") {
			answer.Verdicts = append(answer.Verdicts, Verdict{RunID: text("run"), Attempt: n("attempt"), Verdict: text("verdict"), Reason: text("reason"), Outcome: text("outcome")})
		}
		if rapid.Bool().Draw(t, "scripts") {
			answer.Scripts = []string{text("digest")}
		}
		offer, result := AppendOffer(nil, &o), AppendResult(nil, &r)
		for name, pair := range map[string][2][]byte{
			"offer":   {offer, Encode(o)},
			"result":  {result, Encode(r)},
			"offers":  {offersOf(o.RunID, beat, offer, offer), Encode(Offers{V: Version, BootID: o.RunID, Beat: beat, Offers: []Offer{o, o}})},
			"results": {EncodeResults(load, [][]byte{result, result}), Encode(Results{V: Version, Load: load, Results: []Result{r, r}})},
			"answer":  {EncodeAnswer(&answer), Encode(answer)},
			"settled": {EncodeSettled([]Ref{ref, ref}), Encode(Control{V: Version, Op: OpSettled, Runs: []Ref{ref, ref}})},
			"changes": {EncodeRunChanges([]RunChange{c, c}), Encode(RunChanges{V: Version, Runs: []RunChange{c, c}})},
		} {
			if string(pair[0]) != string(pair[1]) {
				t.Fatalf("%s:\n%s\nencoding/json:\n%s", name, pair[0], pair[1])
			}
			if !json.Valid(pair[0]) {
				t.Fatalf("%s is not JSON: %s", name, pair[0])
			}
		}
	})
}

// benchOffer is an offer as a schedule makes it.
func benchOffer() Offer {
	now := Time{time.Now()}
	return Offer{
		RunID: "01a1f9bb-2df5-8ba8-ba94-ebf58858211d", Attempt: 1, Bind: 1, BoundAt: now, JobID: 4711, JobName: "orders-nightly", Group: "orders",
		Handler: "http", Param: "some param", Cause: "schedule", FireTime: now, DueAt: now, Now: now, Shard: Shard{0, 1},
	}
}

// A change of a figure is no fault, but must be meant.
func TestAllocations(t *testing.T) {
	o := benchOffer()
	r := Result{Instance: "i-1", BootID: "b", RunID: o.RunID, Attempt: 1, Bind: 1, Outcome: Succeeded, StartedAt: o.DueAt, FinishedAt: o.DueAt, LastLine: 2}
	var offers []Offer
	var results [][]byte
	for range 100 {
		offers, results = append(offers, o), append(results, AppendResult(nil, &r))
	}
	offered, reported := Encode(Offers{V: Version, BootID: "b", Offers: offers}), EncodeResults(Load{}, results)
	var buf []byte
	decode := func(data []byte, v Versioned) {
		if err := Decode(data, v); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		what string
		most float64
		do   func()
	}{
		{"append an offer", 0, func() { buf = AppendOffer(buf[:0], &o) }},
		{"append a result", 0, func() { buf = AppendResult(buf[:0], &r) }},
		{"read 100 offers", 110, func() { decode(offered, new(Offers)) }},
		{"read 100 results", 107, func() { decode(reported, new(Results)) }},
		{"write 100 results", 1, func() { buf = EncodeResults(Load{}, results) }},
	} {
		if got := testing.AllocsPerRun(100, c.do); got > c.most {
			t.Errorf("%s: %v allocations, want at most %v", c.what, got, c.most)
		}
	}
}

func BenchmarkOffer(b *testing.B) {
	o := benchOffer()
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = AppendOffer(buf[:0], &o)
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Encode(o)
		}
	})
	data := Encode(Offers{V: Version, BootID: "b", Offers: []Offer{o, o, o, o, o, o, o, o, o, o}})
	b.Run("decode-10", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m Offers
			if err := Decode(data, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func offersOf(boot string, beat int64, offers ...[]byte) []byte {
	return EndOffers(append(BeginOffers(nil, boot, beat), bytes.Join(offers, []byte(","))...))
}
