package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The headers of all requests in both directions. Executors without a token do not send HeaderToken. HeaderApp is new in 3.5.
const (
	HeaderToken = "XXL-JOB-ACCESS-TOKEN"
	HeaderApp   = "XXL-JOB-APPNAME"
)

// The codes in answers and callbacks. Executors report a timeout since 2.3.
const (
	CodeOK      = 200
	CodeFailed  = 500
	CodeTimeout = 502
)

// MaxText is the number of bytes that are kept of any text from an executor. It is the limit of a run's output.
const MaxText = 64 << 10

// Registration is the body of /registry and /registryRemove.
type Registration struct {
	App     string // the app name of the executor's group
	Address string // the executor's URL, unchanged; see ParseAddress
}

// MaxRegistration is the maximum size of a Registration's body, in bytes.
const MaxRegistration = 16 << 10

// DecodeRegistration reads the body of /registry or /registryRemove. The error says what the executor must change.
func DecodeRegistration(body []byte) (Registration, error) {
	fields, err := object(body)
	if err != nil {
		return Registration{}, fmt.Errorf("the body of a registration must be a JSON object: %w", err)
	}
	if group := text(fields["registryGroup"]); group != "EXECUTOR" {
		return Registration{}, fmt.Errorf("registryGroup must be EXECUTOR, not %q", cut(group, 64))
	}
	out := Registration{App: strings.TrimSpace(text(fields["registryKey"])), Address: strings.TrimSpace(text(fields["registryValue"]))}
	switch {
	case out.App == "":
		return Registration{}, errors.New("registryKey must be the app name of the executor (xxl.job.executor.appname)")
	case out.Address == "":
		return Registration{}, errors.New("registryValue must be the address of the executor (xxl.job.executor.address)")
	}
	return out, nil
}

// AppendReply appends the answer to a request of an executor. code is CodeOK or CodeFailed. Executors of 2.2 to 3.2 read content, later ones data.
func AppendReply(b []byte, code int, message string) []byte {
	reply, err := json.Marshal(struct {
		Code    int    `json:"code"`
		Message string `json:"msg,omitempty"`
		Content any    `json:"content"`
		Data    any    `json:"data"`
	}{Code: code, Message: message})
	if err != nil {
		panic(err) // numbers and texts can be encoded
	}
	return append(b, reply...)
}

// Run is a request to run a handler or a script once. Executors read JobID as a number of 32 bits.
type Run struct {
	JobID         int64  `json:"jobId"`
	Handler       string `json:"executorHandler"`
	Param         string `json:"executorParams"`
	Block         string `json:"executorBlockStrategy"` // BlockSerial, because Belfry decides what runs at the same time
	TimeoutS      int64  `json:"executorTimeout"`       // in seconds; 0: none
	LogID         int64  `json:"logId"`
	LogTimeMS     int64  `json:"logDateTime"` // Unix time in milliseconds; Log must repeat it
	GlueType      string `json:"glueType"`
	GlueSource    string `json:"glueSource"`
	GlueUpdatedMS int64  `json:"glueUpdatetime"` // identifies the version of the script; a new value ends the job's thread in the executor
	ShardIndex    int    `json:"broadcastIndex"`
	ShardTotal    int    `json:"broadcastTotal"`
}

// BlockSerial is the value of Run.Block.
const BlockSerial = "SERIAL_EXECUTION"

// GlueBean is the glue type of a handler.
const GlueBean = "BEAN"

// glueTypes maps Belfry's script languages to glue types.
var glueTypes = map[string]string{
	"groovy": "GLUE_GROOVY", "bash": "GLUE_SHELL", "sh": "GLUE_SHELL", "python": "GLUE_PYTHON", "node": "GLUE_NODEJS",
	"php": "GLUE_PHP", "powershell": "GLUE_POWERSHELL",
}

// GlueType returns the glue type of a script language. It is false for languages that XXL-JOB does not have.
func GlueType(language string) (string, bool) {
	t, ok := glueTypes[language]
	return t, ok
}

// object returns the fields of a JSON object.
func object(body []byte) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	err := json.Unmarshal(trim(body), &fields)
	if err == nil && fields == nil {
		err = errors.New("it is null")
	}
	return fields, err
}

// trim removes white space and a byte order mark before a JSON value.
func trim(body []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(body), []byte("\ufeff")))
}

// text returns a JSON value as text: a string as it is, null and a missing value as "", any other value as JSON.
func text(value json.RawMessage) string {
	switch v := trim(value); {
	case len(v) == 0, string(v) == "null":
		return ""
	case v[0] == '"':
		var s string
		if json.Unmarshal(v, &s) == nil {
			return s
		}
		return string(v)
	default:
		return string(v)
	}
}

// integer reads a whole number, also in quotes. It is false for every other value.
func integer(value json.RawMessage) (int64, bool) {
	s := strings.TrimSpace(text(value))
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(s, 64) // 5.0 and 5e3, as some encoders write whole numbers
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// clean returns a text that Postgres can store, of at most MaxText bytes.
func clean(s string) string {
	return cut(strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd"), MaxText)
}

// Clip returns at most n bytes of a text, in a form that Postgres can store.
func Clip(s string, n int) string { return cut(clean(s), n) }

// cut returns at most n bytes of s, without a part of a character at the end.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
