package logchunk

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestRoundTrip(t *testing.T) {
	at := domain.At(time.Date(2026, 3, 29, 1, 30, 0, 123e6, time.UTC))
	want := []domain.LogLine{
		{N: 1, At: at, Level: "info", Text: "plain"},
		{N: 2, At: at, Level: "stderr", Text: "two\nlines, <html> & \x00 \u2028 öäü"},
		{N: 3, At: at, Level: "stdout", Text: strings.Repeat("x", 16<<10)},
		{N: 4, At: at, Level: "warn", Text: ""},
	}
	chunk := Encode(want)
	got, err := Decode(chunk)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("came back as %v", got)
	}
	if len(chunk) > 1<<10 {
		t.Errorf("the chunk has %d bytes; repeated text should fold", len(chunk))
	}
}

func TestDecodeDamaged(t *testing.T) {
	chunk := Encode([]domain.LogLine{{N: 1, Level: "info", Text: "a"}})
	for name, b := range map[string][]byte{
		"cut": chunk[:len(chunk)-2], "no zstd": []byte("hello"), "no json": encoder().EncodeAll([]byte("{"), nil),
	} {
		if _, err := Decode(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if lines, err := Decode(Encode(nil)); err != nil || len(lines) != 0 {
		t.Errorf("empty: %v, %v", lines, err)
	}
}
