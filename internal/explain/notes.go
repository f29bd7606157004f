package explain

import "strings"

// Notes are the notes of a message of a run or an attempt, one on each line. Usually there is one. An attempt that ended after
// a kill request has the note of the request, and then the note of its end. If the handler reported the end, its own words
// follow in the message and have no note. The empty Notes belong to a message that is only the handler's.
type Notes string

// between separates the parts of a message.
const between = ": "

// Join returns the notes of a message. Empty notes are left out.
func Join(notes ...Note) Notes {
	var b strings.Builder
	for _, n := range notes {
		if n != "" && b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(string(n))
	}
	return Notes(b.String())
}

// Parts returns the parts of a stored message: an explanation for each note, and the handler's own words as an explanation with
// code Text. The texts of the parts, joined by ": ", are the message. There are no parts if the notes are empty, are of a
// later release, or do not match the message, because a binary of the previous release has written the message.
func (n Notes) Parts(message string) []Explanation {
	if n == "" {
		return nil
	}
	var parts []Explanation
	for i, line := range strings.Split(string(n), "\n") {
		e := Note(line).Explanation()
		if i > 0 {
			var more bool
			if message, more = strings.CutPrefix(message, between); !more {
				return nil
			}
		}
		rest, matches := strings.CutPrefix(message, e.Text)
		if !matches || e.Text == "" || rest != "" && !strings.HasPrefix(rest, between) {
			return nil
		}
		parts, message = append(parts, *e), rest
	}
	if words, more := strings.CutPrefix(message, between); more {
		parts = append(parts, *Sentence(words))
	}
	return parts
}

// MessageIn returns a message in a language. Without parts, the message is the handler's own and is not translated.
func MessageIn(parts []Explanation, message string, language Language) string {
	if language == English || len(parts) == 0 {
		return message
	}
	texts := make([]string, len(parts))
	for i := range parts {
		texts[i] = parts[i].In(language)
	}
	return strings.Join(texts, "：")
}
