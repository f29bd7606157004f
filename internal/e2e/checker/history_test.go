package checker

import (
	"bytes"
	"strings"
	"testing"
)

// ReadNotes reads what WriteStart and WriteEnd wrote, even if the process was killed between a start and its end.
func TestNotes(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	for i, run := range []string{"a", "b", "a"} {
		if err := WriteStart(&file, run, 1, "boot", at(float64(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteEnd(&file, "a", 1, "boot", at(5), OK); err != nil {
		t.Fatal(err)
	}
	notes, err := ReadNotes(&file, "i1")
	if err != nil {
		t.Fatal(err)
	}
	if len(notes) != 3 || notes[2].Outcome != OK || !notes[2].End.Equal(at(5)) || !notes[1].End.IsZero() || notes[0].Instance != "i1" {
		t.Errorf("read %+v", notes)
	}
	for _, bad := range []string{"nonsense", "E a 1 boot 5 ok", "S a x boot 5", "S a 1 boot y"} {
		if _, err := ReadNotes(strings.NewReader(bad+"\n"), "i1"); err == nil {
			t.Errorf("ReadNotes accepts %q", bad)
		}
	}
}
