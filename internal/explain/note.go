package explain

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// Note is an explanation as it is stored: a JSON array of the code and its arguments, such as ["first",3]. Arguments at the end
// that are zero may be missing. The empty Note means that there is no explanation. Notes are comparable.
type Note string

// List is an argument of kind Lists: its items, each with its values in the order of the table.
type List [][]any

// Of returns the note of a code. The arguments are in the order of the table: int or int64, string, bool, List.
// Zero values at the end are not stored.
func Of(code Code, args ...any) Note {
	for len(args) > 0 && isZero(args[len(args)-1]) {
		args = args[:len(args)-1]
	}
	b := make([]byte, 0, 64)
	b = append(b, '[')
	b = appendValue(b, string(code))
	for _, a := range args {
		b = append(b, ',')
		b = appendValue(b, a)
	}
	return Note(append(b, ']'))
}

func isZero(v any) bool {
	switch v := v.(type) {
	case int:
		return v == 0
	case int64:
		return v == 0
	case string:
		return v == ""
	case bool:
		return !v
	case List:
		return len(v) == 0
	}
	return false
}

// appendValue writes one value. Routing makes a note for each run, so the common types avoid reflection.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		return appendText(b, v)
	case List:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, '[')
			for j, field := range item {
				if j > 0 {
					b = append(b, ',')
				}
				b = appendValue(b, field)
			}
			b = append(b, ']')
		}
		return append(b, ']')
	}
	return append(b, "null"...)
}

func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			var buf bytes.Buffer
			enc := json.NewEncoder(&buf)
			enc.SetEscapeHTML(false)
			if enc.Encode(strings.ReplaceAll(s, "\x00", "")) != nil { // Postgres stores no NUL; encoding a string cannot fail
				return append(b, `""`...)
			}
			return append(b, bytes.TrimRight(buf.Bytes(), "\n")...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// Code returns the code. It is Text if the code is unknown or the note is damaged, and "" for the empty note.
func (n Note) Code() Code {
	if n == "" {
		return ""
	}
	code, _ := n.read()
	return code
}

// English returns the sentence, "" for the empty note and for a damaged one.
func (n Note) English() string {
	if n == "" {
		return ""
	}
	code, args := n.read()
	return table[code].english(args)
}

// read returns the code and the named arguments, with the zero value for those that are not stored.
func (n Note) read() (Code, Args) {
	values, simple := n.simple()
	if !simple && json.Unmarshal([]byte(n), &values) != nil || len(values) == 0 {
		return Text, Args{}
	}
	name, _ := values[0].(string)
	e, known := table[Code(name)]
	if !known {
		return Text, Args{}
	}
	args, ok := named(e.args, values[1:])
	if !ok {
		return Text, Args{}
	}
	return Code(name), args
}

// simple reads a note of numbers and plain texts only, as most routes are. It takes half the time of package json, which
// matters because each run is stored with its sentence. It reports false for any other note.
func (n Note) simple() ([]any, bool) {
	rest, ok := strings.CutPrefix(string(n), "[")
	if !ok || strings.ContainsRune(rest, '\\') {
		return nil, false
	}
	values := make([]any, 0, 6)
	for {
		if after, quoted := strings.CutPrefix(rest, `"`); quoted {
			var text string
			if text, rest, ok = strings.Cut(after, `"`); !ok {
				return nil, false
			}
			values = append(values, text)
		} else {
			end := strings.IndexAny(rest, ",]")
			if end < 0 {
				return nil, false
			}
			number, err := strconv.ParseInt(rest[:end], 10, 32)
			if err != nil {
				return nil, false
			}
			values, rest = append(values, float64(number)), rest[end:]
		}
		switch {
		case rest == "]":
			return values, true
		case !strings.HasPrefix(rest, ","):
			return nil, false
		}
		rest = rest[1:]
	}
}

// named gives values their names. It reports false if a value has another kind than the table says. Further values
// belong to a later release and are left out.
func named(params []Param, values []any) (Args, bool) {
	args := make(Args, len(params))
	for i, p := range params {
		if i >= len(values) {
			args[p.Name] = p.Kind.zero()
			continue
		}
		v, ok := p.value(values[i])
		if !ok {
			return nil, false
		}
		args[p.Name] = v
	}
	return args, true
}

func (p *Param) value(v any) (any, bool) {
	switch p.Kind {
	case Number:
		f, ok := v.(float64)
		return int64(f), ok
	case String:
		s, ok := v.(string)
		return s, ok
	case Flag:
		b, ok := v.(bool)
		return b, ok
	case Lists:
	}
	items, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make([]Args, len(items))
	for i, item := range items {
		fields, isList := item.([]any)
		if !isList {
			return nil, false
		}
		if out[i], ok = named(p.Items, fields); !ok {
			return nil, false
		}
	}
	return out, true
}

// Explanation is an explanation as the REST API gives it.
type Explanation struct {
	Code Code   `json:"code"`
	Args Args   `json:"args" doc:"The values of the code, by name"`
	Text string `json:"text" doc:"The English sentence"`
}

// Read returns the explanation of a stored row, nil if it has none. A binary of the previous release writes only the sentence
// and leaves an older note in place. If there is a sentence, Read therefore uses the note only if the sentence is its text.
func Read(n Note, sentence string) *Explanation {
	if sentence == "" {
		if n == "" {
			return nil
		}
		return n.Explanation()
	}
	if n != "" {
		if e := n.Explanation(); e.Text == sentence {
			return e
		}
	}
	return Sentence(sentence)
}

// Current is Read for a column that is empty while there is nothing to explain: a row without a sentence has no
// explanation, even if an older note is left in it.
func Current(n Note, sentence string) *Explanation {
	if sentence == "" {
		return nil
	}
	return Read(n, sentence)
}

// Sentence returns the explanation of which only the sentence is known.
func Sentence(sentence string) *Explanation {
	return &Explanation{Code: Text, Args: Args{}, Text: sentence}
}

// Explanation returns the API's form of a note.
func (n Note) Explanation() *Explanation {
	code, args := n.read()
	return &Explanation{Code: code, Args: args, Text: table[code].english(args)}
}

// String returns the text, "" for nil.
func (e *Explanation) String() string {
	if e == nil {
		return ""
	}
	return e.Text
}

// TellsPause reports whether a reason of missed fire times names a pause of the job or its group.
func (e *Explanation) TellsPause() bool {
	return e != nil && len(e.Args.list("pauses")) > 0
}
