package protocol

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// End is what a callback says about its run.
type End string

// The ends. Executors can report more than they know: see docs/xxl-job.md.
const (
	EndSucceeded   End = "succeeded"
	EndTimedOut    End = "timed_out"
	EndFailed      End = "failed"
	EndKilled      End = "killed"       // the executor ended the thread of the job while the handler ran; it may have succeeded or may still run
	EndNotExecuted End = "not_executed" // the run waited in the executor's queue and was removed; its handler surely did not run
)

// Callback is one item of a batch of /callback.
type Callback struct {
	LogID   int64
	Code    int
	End     End
	Message string // at most MaxText bytes of valid UTF-8 without NUL
}

// MaxCallbacks is the maximum size of a body of /callback, in bytes. Executors up to 3.3 put everything that waits into one body, and repeat a
// refused body forever.
const MaxCallbacks = 64 << 20

// maxItem is how many bytes of one callback are read. Java sends at most 50,000 characters of message. The rest of a longer one is skipped.
const maxItem = 1 << 20

// ItemError means that one callback of a batch cannot be used. Item is its beginning, at most 16 KiB.
type ItemError struct {
	Item []byte
	why  string
}

func (e *ItemError) Error() string { return "a callback " + e.why }

// Callbacks reads a body of /callback: an array of callbacks, or an object with the array callbackList as in 3.5. Items come in the order of the
// body. An unusable item is yielded as an *ItemError, and reading continues. Any other error ends the sequence: the body is
// not such a list, ends early, or cannot be read. The items before it are valid.
func Callbacks(r io.Reader) iter.Seq2[Callback, error] {
	return func(yield func(Callback, error) bool) {
		s := splitter{r: bufio.NewReaderSize(r, 32<<10)}
		if err := s.open(); err != nil {
			yield(Callback{}, err)
			return
		}
		for {
			item, whole, err := s.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Callback{}, err)
				return
			}
			c, err := callback(item, whole)
			if !yield(c, err) {
				return
			}
		}
	}
}

// callback reads one item. If it is not whole, the fields at its beginning must suffice.
func callback(item []byte, whole bool) (Callback, error) {
	fields, err := object(item)
	if err != nil && whole {
		return Callback{}, unusable(item, "is not a JSON object")
	}
	if err != nil {
		fields = fieldsOf(item)
	}
	id, ok := integer(fields["logId"])
	if !ok || id <= 0 {
		return Callback{}, unusable(item, "has no valid logId")
	}
	code, message := codeAndMessage(fields)
	if code == 0 {
		return Callback{}, unusable(item, "has no valid handleCode")
	}
	return Callback{LogID: id, Code: code, End: endOf(code, message), Message: clean(message)}, nil
}

func unusable(item []byte, why string) error {
	return &ItemError{Item: bytes.Clone(item[:min(len(item), 16<<10)]), why: why}
}

// fieldsOf returns the fields at the beginning of an object whose end is missing.
func fieldsOf(item []byte) map[string]json.RawMessage {
	fields := make(map[string]json.RawMessage)
	d := json.NewDecoder(bytes.NewReader(item))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return fields
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return fields
		}
		if key, ok := name.(string); ok {
			fields[key] = value
		}
	}
	return fields
}

// codeAndMessage returns the result in a callback. Versions before 2.3 have executeResult only. A code of 0 means that there is none.
func codeAndMessage(fields map[string]json.RawMessage) (int, string) {
	code, ok := integer(fields["handleCode"])
	if ok && code > 0 && code < 1e6 {
		return int(code), text(fields["handleMsg"])
	}
	result, err := object(fields["executeResult"])
	if err != nil {
		return 0, ""
	}
	if code, ok = integer(result["code"]); !ok || code <= 0 || code >= 1e6 {
		return 0, ""
	}
	message := text(result["msg"])
	if message == "" {
		message = text(result["content"])
	}
	return int(code), message
}

// endOf decides what a callback says. A handler can write any message, so a success stays one whatever its text.
func endOf(code int, message string) End {
	m := strings.TrimSpace(message)
	switch {
	case code == CodeOK:
		return EndSucceeded
	case code == CodeTimeout, m == pythonTimedOut:
		return EndTimedOut
	case strings.Contains(m, notExecuted) && strings.HasSuffix(m, "]"):
		return EndNotExecuted
	case strings.HasSuffix(m, killedRunning), m == pythonKilled:
		return EndKilled
	}
	return EndFailed
}

// splitter cuts a JSON array into its items. It looks only at brackets and strings, so that an item with a fault does not hide the next one.
type splitter struct {
	r     *bufio.Reader
	buf   []byte
	began bool // an item was read
}

var (
	errNoList = errors.New("the body must be a JSON array of callbacks, or an object with the array callbackList")
	errShort  = errors.New("the body ends before the list of callbacks does")
)

// open reads up to the begin of the array.
func (s *splitter) open() error {
	b, err := s.skip()
	if err != nil {
		return begins(err)
	}
	if b == '[' {
		return nil
	}
	if b != '{' {
		return errNoList
	}
	return s.find("callbackList")
}

// find reads the fields of an object up to the value of the named one, which must be an array.
func (s *splitter) find(name string) error {
	for {
		b, err := s.skip()
		if err != nil {
			return begins(err)
		}
		if b == ',' {
			continue
		}
		if b != '"' {
			return errNoList
		}
		key, _, err := s.value(b)
		if err != nil {
			return begins(err)
		}
		if b, err = s.skip(); err != nil || b != ':' {
			return begins(err)
		}
		if b, err = s.skip(); err != nil {
			return begins(err)
		}
		if text(key) == name {
			if b != '[' {
				return errNoList
			}
			return nil
		}
		if _, _, err := s.value(b); err != nil {
			return begins(err)
		}
	}
}

func begins(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, errShort) {
		return errNoList
	}
	return fmt.Errorf("read the body: %w", err)
}

// next returns the next item until the array ends with io.EOF. The bytes are valid until the next call. whole is false if the item was longer than maxItem.
func (s *splitter) next() (item []byte, whole bool, err error) {
	b, err := s.skip()
	for err == nil && b == ',' && s.began {
		b, err = s.skip()
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil, false, errShort
	case err != nil:
		return nil, false, fmt.Errorf("read the body: %w", err)
	case b == ']':
		return nil, false, io.EOF
	}
	s.began = true
	if item, whole, err = s.value(b); err != nil && !errors.Is(err, errShort) {
		err = fmt.Errorf("read the body: %w", err)
	}
	return item, whole, err
}

// skip returns the next byte that is not white space.
func (s *splitter) skip() (byte, error) {
	for {
		b, err := s.r.ReadByte()
		if err != nil || b != ' ' && b != '\t' && b != '\r' && b != '\n' && b != 0xef && b != 0xbb && b != 0xbf { // the last three are a byte order mark
			return b, err
		}
	}
}

// value reads a value whose first byte is b. It ends before a comma or a bracket of the enclosing value.
func (s *splitter) value(b byte) (value []byte, whole bool, err error) {
	s.buf = s.buf[:0]
	depth, inString, escaped := 0, false, false
	for size := 1; ; size++ {
		if size <= maxItem {
			s.buf = append(s.buf, b)
		}
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = b == '\\', b != '"'
		case b == '"':
			inString = true
		case b == '{', b == '[':
			depth++
		case b == '}', b == ']':
			depth--
		}
		if depth == 0 && !inString && (b == '"' || b == '}' || b == ']') {
			return s.buf, size <= maxItem, nil
		}
		if inString && !escaped {
			size += s.text(maxItem - size)
		}
		if b, err = s.r.ReadByte(); err != nil {
			if errors.Is(err, io.EOF) {
				err = errShort
			}
			return nil, false, err
		}
		if depth == 0 && !inString && (b == ',' || b == ']' || b == '}' || b == ':') { // a number or a word
			return s.buf, size <= maxItem, s.r.UnreadByte()
		}
	}
}

// text reads the buffered bytes of a string up to its end or a backslash, keeps at most room of them, and returns their number. Most bytes of a body are in
// long messages.
func (s *splitter) text(room int) int {
	buffered, _ := s.r.Peek(s.r.Buffered()) // they are there
	n := len(buffered)
	if i := bytes.IndexByte(buffered, '"'); i >= 0 {
		n = i
	}
	if i := bytes.IndexByte(buffered[:n], '\\'); i >= 0 {
		n = i
	}
	s.buf = append(s.buf, buffered[:min(n, max(room, 0))]...)
	_, _ = s.r.Discard(n)
	return n
}
