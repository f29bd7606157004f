package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/trace"
)

// Incoming is an event that has not been accepted yet.
type Incoming struct {
	Name    string
	Source  string // this and the next two are attributes of a CloudEvent
	Type    string
	Subject string
	Time    time.Time // when it happened; zero: unknown
	Data    []byte    // compact JSON
	Key     string    // identifies repeats of the event
	KeyKind KeyKind
	Via     Via
	SentBy  string   // the user, if known
	Only    []string // the groups whose jobs it may fire; nil: all
	Trace   string   // the trace that its runs continue, in the form of package trace; "": each begins its own
	Batch   int      // the number of events in its message, which share one budget for triggers; 0 means 1
}

// KeyKind says where an event's key comes from.
type KeyKind string

// The kinds, by precedence.
const (
	KeyIdempotency KeyKind = "idempotency_key"
	KeyCloudEvent  KeyKind = "cloudevent"
	KeyMessage     KeyKind = "nats_msg_id"
	KeyPlace       KeyKind = "place" // the message's sequence number in the stream
	KeyNone        KeyKind = ""      // no key: each delivery is a new event
)

// SetKey sets the event's key, unless key is empty.
func (in *Incoming) SetKey(kind KeyKind, key string) {
	if key != "" {
		in.Key, in.KeyKind = key, kind
	}
}

// Digest returns the value by which Postgres recognizes a repeat of the event, or nil if the event has no key. As elsewhere in
// the REST API, each user has separate idempotency keys. A user with access to some groups only cannot take the key of an
// event for all groups.
func (in *Incoming) Digest() []byte {
	if in.KeyKind == KeyNone {
		return nil
	}
	scope := ""
	if in.KeyKind == KeyIdempotency || in.Only != nil {
		scope = "user " + in.SentBy
	}
	source := ""
	if in.KeyKind == KeyCloudEvent { // the id of a CloudEvent is unique per source
		source = in.Source
	}
	h := sha256.New()
	for _, part := range []string{string(in.KeyKind), scope, in.Name, source, in.Key} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

// BodyDigest returns a digest of the data, to recognize a different body under the same key.
func (in *Incoming) BodyDigest() []byte {
	d := sha256.Sum256(in.Data)
	return d[:]
}

// The media types of CloudEvents.
const (
	typeStructured = "application/cloudevents+json"
	typeBatch      = "application/cloudevents-batch+json"
)

// MaxBatch is the maximum number of events in a batch.
const MaxBatch = 100

// maxAttributeBytes is the maximum size of each stored attribute of a CloudEvent.
const maxAttributeBytes = 1024

// ErrMediaType means that the body is neither JSON nor a CloudEvent.
var ErrMediaType = errors.New("the body must be application/json or a CloudEvent")

// Read reads the events of a message: a CloudEvent in structured or binary mode, a batch of CloudEvents, or any JSON. header
// returns a header by its lower-case name. The error is ErrMediaType, or names each faulty field.
func Read(name string, header func(name string) string, body []byte) (events []Incoming, batch bool, err error) {
	var f domain.Faults
	if !ValidName(name) {
		f.Add("name", NameRule)
	}
	mediaType := ""
	if t := header("content-type"); t != "" {
		if mediaType, _, err = mime.ParseMediaType(t); err != nil {
			return nil, false, ErrMediaType
		}
	}
	isJSON := mediaType == "" || jsonType(mediaType)
	switch {
	case mediaType == typeStructured:
		events = []Incoming{readStructured(&f, "", body)}
	case mediaType == typeBatch:
		batch = true
		events = readBatch(&f, body)
	case header("ce-specversion") != "" || header("ce-id") != "":
		if !isJSON && !strings.HasPrefix(mediaType, "text/") {
			return nil, false, ErrMediaType
		}
		events = []Incoming{readBinary(&f, header, isJSON, body)}
	case isJSON:
		events = []Incoming{{Data: readJSON(&f, "body", body)}}
	default:
		return nil, false, ErrMediaType
	}
	if err := f.Err("the event is not valid"); err != nil {
		return nil, batch, err
	}
	carried := trace.Continue(header("traceparent"))
	for i := range events {
		events[i].Name = name
		if events[i].Trace == "" { // the event's own attribute takes precedence, because it describes the event and not its transport
			events[i].Trace = carried
		}
		if batch {
			events[i].Batch = len(events)
		}
	}
	return events, batch, nil
}

// readJSON returns a JSON value without insignificant white space.
func readJSON(f *domain.Faults, at string, value []byte) []byte {
	var out bytes.Buffer
	switch {
	case !utf8.Valid(value):
		f.Add(at, "is not UTF-8")
	case len(bytes.TrimSpace(value)) == 0:
		f.Add(at, "must be JSON")
	default:
		if err := json.Compact(&out, value); err != nil {
			f.Add(at, "is not JSON: "+err.Error())
		}
	}
	return out.Bytes()
}

func readBatch(f *domain.Faults, body []byte) []Incoming {
	var list []json.RawMessage
	if err := json.Unmarshal(body, &list); err != nil {
		f.Add("body", "must be a JSON array of CloudEvents")
		return nil
	}
	if len(list) > MaxBatch {
		f.Add("body", fmt.Sprintf("has %d events; at most %d are taken at once", len(list), MaxBatch))
		return nil
	}
	events := make([]Incoming, len(list))
	for i, e := range list {
		events[i] = readStructured(f, fmt.Sprintf("[%d].", i), e)
	}
	return events
}

// readStructured reads a CloudEvent in structured mode, with all attributes in the body. It ignores attributes that Belfry does
// not use.
func readStructured(f *domain.Faults, at string, body []byte) Incoming {
	var fields map[string]json.RawMessage
	if !utf8.Valid(body) || json.Unmarshal(body, &fields) != nil || fields == nil {
		f.Add(at+"body", "must be a JSON object, a CloudEvent")
		return Incoming{}
	}
	attribute := func(name string) string {
		raw, ok := fields[name]
		if !ok || string(raw) == "null" {
			return ""
		}
		var s string
		if json.Unmarshal(raw, &s) != nil {
			f.Add(at+name, "must be a string")
		}
		return s
	}
	in := attributes(f, at, attribute)
	var traceparent string
	if json.Unmarshal(fields["traceparent"], &traceparent) == nil { // a faulty one is ignored
		in.Trace = trace.Continue(traceparent)
	}
	data, has := fields["data"]
	encoded, hasEncoded := fields["data_base64"]
	switch {
	case has && hasEncoded:
		f.Add(at+"data_base64", "must not be given together with data")
	case has:
		in.Data = readJSON(f, at+"data", data)
	case hasEncoded:
		var raw []byte
		if json.Unmarshal(encoded, &raw) != nil {
			f.Add(at+"data_base64", "is not base64")
		}
		switch mediaType, _, _ := mime.ParseMediaType(attribute("datacontenttype")); {
		case jsonType(mediaType):
			in.Data = readJSON(f, at+"data_base64", raw)
		case strings.HasPrefix(mediaType, "text/"):
			in.Data = readText(f, at+"data_base64", raw)
		default: // binary data, which filters cannot read
			in.Data = readJSON(f, at+"data_base64", encoded)
		}
	default:
		in.Data = []byte("null")
	}
	return in
}

// readBinary reads a CloudEvent in binary mode, with the attributes in headers.
func readBinary(f *domain.Faults, header func(string) string, isJSON bool, body []byte) Incoming {
	in := attributes(f, "ce-", func(name string) string {
		v := header("ce-" + name)
		if plain, err := url.PathUnescape(v); err == nil {
			return plain
		}
		return v
	})
	in.Trace = trace.Continue(header("ce-traceparent"))
	switch {
	case len(body) == 0:
		in.Data = []byte("null")
	case isJSON:
		in.Data = readJSON(f, "body", body)
	default:
		in.Data = readText(f, "body", body)
	}
	return in
}

// readText returns a text as a JSON string.
func readText(f *domain.Faults, at string, text []byte) []byte {
	if !utf8.Valid(text) {
		f.Add(at, "is not UTF-8")
		return nil
	}
	data, _ := json.Marshal(string(text)) // cannot fail for a string
	return data
}

func jsonType(mediaType string) bool {
	return mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")
}

// attributes reads the attributes of a CloudEvent that Belfry uses.
func attributes(f *domain.Faults, at string, attribute func(name string) string) Incoming {
	if v := attribute("specversion"); !strings.HasPrefix(v, "1.") {
		f.Add(at+"specversion", "must be 1.0")
	}
	value := func(name string, required bool) string {
		v := attribute(name)
		switch {
		case required && v == "":
			f.Add(at+name, "is required")
		case len(v) > maxAttributeBytes:
			f.Add(at+name, fmt.Sprintf("is over %d bytes long", maxAttributeBytes))
		case !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl):
			f.Add(at+name, "must be UTF-8 without control characters")
		}
		return v
	}
	in := Incoming{Source: value("source", true), Type: value("type", true), Subject: value("subject", false)}
	in.SetKey(KeyCloudEvent, value("id", true))
	if v := attribute("time"); v != "" {
		t, err := time.Parse(time.RFC3339, v)
		if err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
			f.Add(at+"time", "must be an instant like 2026-03-29T01:30:00Z")
		}
		in.Time = t.UTC()
	}
	return in
}
