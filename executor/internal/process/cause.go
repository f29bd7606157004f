package process

import (
	"bytes"
	"strings"
)

// maxCause is the maximum length, in bytes, of the line of stderr in the error of a failed program.
const maxCause = 500

// causeFinder finds the last line on stderr that is not empty, which usually says why a program failed. It keeps two
// lines of at most maxCause bytes.
type causeFinder struct {
	line []byte // the beginning of the current line
	last []byte // the last complete line that is not empty
}

// Write implements io.Writer.
func (f *causeFinder) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		end := bytes.IndexAny(rest, "\r\n") // programs that show their progress end lines with \r
		part := rest
		if end >= 0 {
			part = rest[:end]
		}
		if len(f.line) == 0 {
			part = bytes.TrimLeft(part, " \t") // so that a long indentation does not use up the limit
		}
		f.line = append(f.line, part[:min(len(part), maxCause-len(f.line))]...)
		if end < 0 {
			break
		}
		f.keep()
		rest = rest[end+1:]
	}
	return len(p), nil
}

// keep ends the current line.
func (f *causeFinder) keep() {
	if len(bytes.TrimSpace(f.line)) > 0 {
		f.last = append(f.last[:0], f.line...)
	}
	f.line = f.line[:0]
}

// cause returns the last line that is not empty, as one line of valid text. It ends the current line.
func (f *causeFinder) cause() string {
	f.keep()
	// The limit may have cut a character.
	return strings.TrimSpace(strings.ToValidUTF8(string(f.last), ""))
}
