package cli

import (
	"strings"
	"testing"
)

func TestChange(t *testing.T) {
	long := strings.Repeat("é", 80)
	for _, test := range []struct{ from, to, want string }{
		{"3", "5", "3 → 5"},
		{"", "x", `"" → x`},
		{"a\nb\nc\n", "a\nB\nc\n", "line 2: b → B"},
		{"a\nb\nc\n", "a\nc\n", `line 2: b → ""`},
		{"a", "a\nb", `line 2: "" → b`},
		{"a\nb\nc", "a\nx\ny\nc", "line 2: b → x (and 1 more)"},
		{long + "1", long + "2", "…1 → …2"},
		{long + "é", long + "è", "…é → …è"},
		{long, long + "2", "… → …2"},
	} {
		if got := change(test.from, test.to); got != test.want {
			t.Errorf("%q, %q: got %s, want %s", test.from, test.to, got, test.want)
		}
	}
}
