package results

import (
	"bytes"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/executor/wire"
)

// stored is a message of a stream.
type stored struct {
	jetstream.Msg
	subject string
	data    []byte
}

func (m stored) Subject() string { return m.subject }
func (m stored) Data() []byte    { return m.data }

func messageOf(subject string, data []byte) *intake.Message {
	return &intake.Message{Msg: stored{subject: subject, data: data}, Group: "g"}
}

// Unpacking returns the messages that were packed, in order, and no packed message exceeds the maximum size.
func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(0, 2000), rapid.IntRange(0, wire.MaxMessageBytes))
		var msgs []*intake.Message
		var want [][]byte
		for range rapid.IntRange(1, 30).Draw(t, "messages") {
			data := bytes.Repeat([]byte{'x'}, size.Draw(t, "size"))
			msgs, want = append(msgs, messageOf(wire.ResultSubject("g"), data)), append(want, data)
		}
		var got [][]byte
		for len(msgs) > 0 {
			data, n := pack(msgs)
			if n < 1 || len(data) > wire.MaxMessageBytes {
				t.Fatalf("%d messages with %d bytes", n, len(data))
			}
			msgs = msgs[n:]
			got = slices.AppendSeq(got, parts(messageOf(wire.OverflowSubject("g"), data)))
		}
		if !slices.EqualFunc(got, want, bytes.Equal) {
			t.Fatalf("%d messages became %d", len(want), len(got))
		}
	})
}

// No message of an executor counts as packed, and no garbage in the overflow stops its reader.
func TestParts(t *testing.T) {
	garbage := []byte{packed, 0, 0, 0, 1, 'a', 0, 0, 0, 9, 'b'}
	if got := slices.Collect(parts(messageOf(wire.ResultSubject("g"), garbage))); len(got) != 1 || !bytes.Equal(got[0], garbage) {
		t.Errorf("from an executor: %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		data := append([]byte{packed}, rapid.SliceOf(rapid.Byte()).Draw(t, "data")...)
		total := 0
		for p := range parts(messageOf(wire.OverflowSubject("g"), data)) {
			total += len(p)
		}
		if total > len(data) {
			t.Fatalf("%d bytes became %d", len(data), total)
		}
	})
	if got := slices.Collect(parts(messageOf(wire.OverflowSubject("g"), garbage))); len(got) != 2 || string(got[0]) != "a" || string(got[1]) != "b" {
		t.Errorf("from the overflow: %q", got)
	}
}
