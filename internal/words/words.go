// Package words splits names into words, so that they can be searched by the beginnings of their words.
//
// Letters and digits form words, and everything else separates them. Upper and lower case of Latin, Greek and Cyrillic letters are equal.
// East Asian text is written without spaces, so each of its characters begins a word: "备份" is found in "数据库备份".
//
// The function word_starts in Postgres follows the same rules. A test compares both.
package words

import "strings"

// MaxStart is the maximum length of a beginning of a word, in characters. Longer words are found by their first characters.
const MaxStart = 24

// Split returns the words of a search text. East Asian text is one word until another character follows.
func Split(text string) []string {
	var found []string
	each([]rune(text), func(word []rune, _ bool) { found = append(found, string(word)) })
	return found
}

// Starts returns what a word of a search text can be the beginning of: the words of a name, and the rest of its East Asian text after each
// character, each cut to MaxStart characters. No beginning appears twice.
func Starts(name string) []string {
	seen := map[string]bool{}
	var found []string
	each([]rune(name), func(word []rune, eastAsian bool) {
		for {
			start := string(word[:min(len(word), MaxStart)])
			if !seen[start] {
				seen[start] = true
				found = append(found, start)
			}
			if word = word[1:]; !eastAsian || len(word) == 0 {
				return
			}
		}
	})
	return found
}

// Begin reports for each word of a search text whether a word of the name begins with it.
func Begin(search []string, name string) []bool {
	found := make([]bool, len(search))
	each([]rune(name), func(word []rune, eastAsian bool) {
		for len(word) > 0 {
			for i, s := range search {
				found[i] = found[i] || strings.HasPrefix(string(word), s)
			}
			if word = word[1:]; !eastAsian {
				return
			}
		}
	})
	return found
}

// each calls do with each word in lower case.
func each(text []rune, do func(word []rune, eastAsian bool)) {
	begin := 0
	for i := range text {
		text[i] = lower(text[i])
	}
	for i := 0; i <= len(text); i++ {
		if i < len(text) && i > begin && kindOf(text[i]) == kindOf(text[begin]) {
			continue
		}
		if i > begin && kindOf(text[begin]) != separator {
			do(text[begin:i], kindOf(text[begin]) == eastAsianText)
		}
		begin = i
	}
}

type kind int

const (
	separator kind = iota
	letter         // or digit
	eastAsianText
)

// span is a range of characters.
type span struct{ first, last rune }

// eastAsian has the scripts that are written without spaces: Chinese characters, kana, hangul.
var eastAsian = []span{{0x2E80, 0x2FDF}, {0x3005, 0x3007}, {0x3040, 0x318F}, {0x31A0, 0x31FF}, {0x3400, 0x4DBF}, {0x4E00, 0x9FFF},
	{0xAC00, 0xD7AF}, {0xF900, 0xFAFF}, {0xFF66, 0xFF9F}, {0x20000, 0x3FFFF}}

// separators has the punctuation, symbols and control characters.
var separators = []span{{0, '/'}, {':', '`'}, {'{', 0xA9}, {0xAB, 0xB4}, {0xB6, 0xB9}, {0xBB, 0xBF}, {0xD7, 0xD7}, {0xF7, 0xF7},
	{0x2000, 0x206F}, {0x20A0, 0x20CF}, {0x2100, 0x2E7F}, {0x3000, 0x303F}, {0xE000, 0xF8FF}, {0xFE10, 0xFE1F}, {0xFE30, 0xFE6F},
	{0xFF00, 0xFF0F}, {0xFF1A, 0xFF20}, {0xFF3B, 0xFF40}, {0xFF5B, 0xFF65}, {0xFFE0, 0xFFFF}, {0x1F000, 0x1FAFF}}

func kindOf(c rune) kind {
	switch {
	case among(c, eastAsian):
		return eastAsianText
	case among(c, separators):
		return separator
	}
	return letter
}

func among(c rune, spans []span) bool {
	for _, s := range spans {
		if c >= s.first && c <= s.last {
			return true
		}
	}
	return false
}

// lower returns the lower case of a Latin, Greek or Cyrillic letter, without regard to any locale.
func lower(c rune) rune {
	switch {
	case c >= 'A' && c <= 'Z', c >= 'À' && c <= 'Þ' && c != '×', c >= 'Α' && c <= 'Ω' && c != 0x3A2, c >= 'А' && c <= 'Я':
		return c + ('a' - 'A')
	case c == 'Ё':
		return 'ё'
	}
	return c
}
