package explain

import (
	"fmt"
	"strconv"
	"strings"
)

// Language is a language of the texts that Belfry makes. The zero Language is English.
type Language int

// The languages.
const (
	English Language = iota
	Chinese          // simplified
)

// Preferred returns the language that a reader prefers, from the header Accept-Language. Languages other than English and Chinese
// do not count. Of two with the same weight, the first one counts. The default is English.
func Preferred(accepted string) Language {
	best, language := 0.0, English
	for _, part := range strings.Split(accepted, ",") {
		tag, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		primary, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(tag)), "-")
		weight := 1.0
		if q, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
			var err error
			if weight, err = strconv.ParseFloat(q, 64); err != nil {
				continue
			}
		}
		if (primary == "zh" || primary == "en") && weight > best {
			best, language = weight, English
			if primary == "zh" {
				language = Chinese
			}
		}
	}
	return language
}

// Text returns the one of the two texts that is in the language.
func (l Language) Text(english, chinese string) string {
	if l == Chinese {
		return chinese
	}
	return english
}

// Format formats the arguments with the format of the language. A format that needs another order uses indexes, such as %[2]s.
func (l Language) Format(english, chinese string, args ...any) string {
	return fmt.Sprintf(l.Text(english, chinese), args...)
}
