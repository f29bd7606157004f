package words_test

import (
	"fmt"
	"testing"

	"github.com/belfryhq/belfry/internal/words"
)

func TestWords(t *testing.T) {
	for _, c := range []struct{ name, split, starts string }{
		{"", "[]", "[]"},
		{" -_/.", "[]", "[]"},
		{"Nightly Backup_of-DB v2", "[nightly backup of db v2]", "[nightly backup of db v2]"},
		{"a.a/A", "[a a a]", "[a]"},
		{"Ärger ΣΟΦΙΑ Ёлка×2", "[ärger σοφια ёлка 2]", "[ärger σοφια ёлка 2]"},
		{"数据库备份v2", "[数据库备份 v2]", "[数据库备份 据库备份 库备份 备份 份 v2]"},
		{"「日报」", "[日报]", "[日报 报]"},
		{"abcdefghijklmnopqrstuvwxyz", "[abcdefghijklmnopqrstuvwxyz]", "[abcdefghijklmnopqrstuvwx]"},
		{"ok🔔ok2", "[ok ok2]", "[ok ok2]"},
	} {
		if got := fmt.Sprint(words.Split(c.name)); got != c.split {
			t.Errorf("Split(%q) is %s, want %s", c.name, got, c.split)
		}
		if got := fmt.Sprint(words.Starts(c.name)); got != c.starts {
			t.Errorf("Starts(%q) is %s, want %s", c.name, got, c.starts)
		}
	}
}

func TestBegin(t *testing.T) {
	got := words.Begin(words.Split("bac 备 ightly abcdefghijklmnopqrstuvwxyz 份"), "Nightly-Backup 数据库备份 abcdefghijklmnopqrstuvwxyz1")
	if want := []bool{true, true, false, true, true}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
