// Package deadletter lists the messages that could not be processed, and replays them after their cause was fixed. The messages
// are kept in two streams, so NATS is required; Postgres holds none of them. Events have a stream of their own, with higher
// sequences. Those of older releases are in the other stream.
package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// Box accesses the dead letters. It is safe for concurrent use. Errors are NotFound for a missing letter, Conflict for
// a letter that cannot be replayed, and Unavailable while NATS is unreachable.
type Box struct{ js jetstream.JetStream }

// New returns a Box that uses the connection.
func New(nc *nats.Conn) (*Box, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &Box{js}, nil
}

// Kinds lists the kinds of dead letters, named after what the messages should have been.
var Kinds = append([]string{"callback", "heartbeat"}, streamed...)

// streamed lists the kinds of messages that come from a stream and can be replayed into it.
var streamed = []string{"result", "log", "event"}

// callMax bounds the wait for one answer of NATS.
const callMax = 5 * time.Second

// DeadLetters lists letters in the order of their sequences, starting after the given sequence. If kind is not empty, it lists
// only those of the kind, and if group is not empty, only those of the group. For events, the group is the event's name. The
// letters' data is left out.
func (b *Box) DeadLetters(ctx context.Context, kind, group string, after uint64, limit int) ([]domain.DeadLetter, error) {
	letters := []domain.DeadLetter{}
	for _, part := range []struct {
		seq      uint64 // one of the stream
		subjects []string
	}{{0, subjectsOf(kind, group)}, {wire.FirstDeadEvent, eventSubjectsOf(kind, group)}} {
		if len(part.subjects) == 0 || len(letters) == limit || part.seq == 0 && after >= wire.FirstDeadEvent {
			continue
		}
		s, err := b.stream(ctx, part.seq)
		if err != nil {
			return nil, err
		}
		if letters, err = list(ctx, s, part.subjects, max(after, max(part.seq, 1)-1), limit, letters); err != nil {
			return nil, err
		}
	}
	return letters, nil
}

// list appends the letters of one stream on some subjects, up to the limit.
func list(ctx context.Context, s jetstream.Stream, subjects []string, after uint64, limit int, letters []domain.DeadLetter) ([]domain.DeadLetter, error) {
	next := make([]*jetstream.RawStreamMsg, len(subjects)) // the next letter on each subject, nil if there is none
	advance := func(i int, after uint64) error {
		m, err := get(ctx, s, after+1, jetstream.WithGetMsgSubject(subjects[i]))
		if err != nil && domain.CodeOf(err) == domain.NotFound {
			err = nil
		}
		next[i] = m
		return err
	}
	for i := range subjects {
		if err := advance(i, after); err != nil {
			return nil, err
		}
	}
	for len(letters) < limit {
		first := -1
		for i, m := range next {
			if m != nil && (first < 0 || m.Sequence < next[first].Sequence) {
				first = i
			}
		}
		if first < 0 {
			return letters, nil
		}
		m := next[first]
		if len(letters) < limit-1 {
			if err := advance(first, m.Sequence); err != nil {
				return nil, err
			}
		}
		l, _ := read(m)
		l.Data, l.DataBase64 = "", nil
		letters = append(letters, l)
	}
	return letters, nil
}

// subjectsOf returns the subjects of letters in StreamDead. Older releases used one subject for all letters of a kind.
func subjectsOf(kind, group string) []string {
	switch {
	case kind == "" && group == "":
		return []string{wire.DeadSubject(">", "")}
	case kind == "":
		return []string{wire.DeadSubject("*", group)}
	case group == "":
		return []string{wire.DeadSubject(kind, ""), wire.DeadSubject(kind, ">")}
	}
	return []string{wire.DeadSubject(kind, group)}
}

// eventSubjectsOf returns the subjects of letters in StreamDeadEvents.
func eventSubjectsOf(kind, group string) []string {
	switch {
	case kind != "" && kind != "event":
		return nil
	case group == "":
		return []string{wire.DeadEventSubject(">")}
	}
	return []string{wire.DeadEventSubject(group)}
}

// CountDeadLetters counts the letters of all kinds.
func (b *Box) CountDeadLetters(ctx context.Context) (out domain.DeadLetterCount, err error) {
	for _, seq := range []uint64{0, wire.FirstDeadEvent} {
		s, err := b.stream(ctx, seq)
		if err != nil {
			return out, err
		}
		call, cancel := context.WithTimeout(ctx, callMax)
		info, err := s.Info(call)
		cancel()
		if err != nil {
			return out, away(err)
		}
		state := info.State
		out.Letters += state.Msgs
		out.Newest += state.LastSeq
		if state.Msgs > 0 && (out.Since.IsZero() || state.FirstTime.Before(out.Since)) {
			out.Since = state.FirstTime.UTC()
		}
	}
	return out, nil
}

// DeadLetter returns one letter.
func (b *Box) DeadLetter(ctx context.Context, seq uint64) (domain.DeadLetter, error) {
	s, err := b.stream(ctx, seq)
	if err != nil {
		return domain.DeadLetter{}, err
	}
	m, err := get(ctx, s, seq)
	if err != nil {
		return domain.DeadLetter{}, err
	}
	l, _ := read(m)
	return l, nil
}

// Replay publishes a letter's message again to its original subject, and deletes the letter. The message takes effect
// once, even if the letter is replayed twice: results and logs are identified by their attempt, events by their keys.
func (b *Box) Replay(ctx context.Context, seq uint64) (domain.DeadLetter, error) {
	s, err := b.stream(ctx, seq)
	if err != nil {
		return domain.DeadLetter{}, err
	}
	m, err := get(ctx, s, seq)
	if err != nil {
		return domain.DeadLetter{}, err
	}
	l, readable := read(m)
	switch {
	case !readable:
		return l, domain.NewError(domain.Conflict, "this is not a dead letter of Belfry, so its subject is unknown")
	case l.Bytes > len(l.DataBase64):
		return l, domain.NewError(domain.Conflict, "only the beginning of the message was kept")
	case !replayable(l.Subject):
		return l, domain.NewError(domain.Conflict, "no stream takes messages on its subject")
	}
	again := nats.NewMsg(l.Subject)
	again.Data = l.DataBase64
	for name, values := range l.Headers {
		if !strings.HasPrefix(strings.ToLower(name), "nats-") { // these headers control JetStream
			again.Header[name] = values
		}
	}
	// JetStream would drop the message if it still remembers its id. Two letters of one message have the same id.
	if id := http.Header(l.Headers).Get(nats.MsgIdHdr); id != "" {
		again.Header.Set(wire.HeaderMessageID, id)
	} else if again.Header.Get(wire.HeaderMessageID) == "" {
		again.Header.Set(wire.HeaderMessageID, fmt.Sprintf("dead letter %d of %s", seq, m.Time.UTC().Format(time.RFC3339Nano)))
	}
	call, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	if _, err := b.js.PublishMsg(call, again); err != nil {
		return l, away(err)
	}
	return l, remove(ctx, s, seq)
}

// Delete deletes a letter and returns it.
func (b *Box) Delete(ctx context.Context, seq uint64) (domain.DeadLetter, error) {
	s, err := b.stream(ctx, seq)
	if err != nil {
		return domain.DeadLetter{}, err
	}
	m, err := get(ctx, s, seq)
	if err != nil {
		return domain.DeadLetter{}, err
	}
	l, _ := read(m)
	return l, remove(ctx, s, seq)
}

// stream returns the stream that holds the letter with a sequence.
func (b *Box) stream(ctx context.Context, seq uint64) (jetstream.Stream, error) {
	name := wire.StreamDead
	if seq >= wire.FirstDeadEvent {
		name = wire.StreamDeadEvents
	}
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	s, err := b.js.Stream(ctx, name)
	return s, away(err)
}

func get(ctx context.Context, s jetstream.Stream, seq uint64, options ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	m, err := s.GetMsg(ctx, seq, options...)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, domain.WrapError(domain.NotFound, "there is no such dead letter", err)
	}
	return m, away(err)
}

func remove(ctx context.Context, s jetstream.Stream, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	err := s.DeleteMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) || errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // another call deleted it
	}
	return away(err)
}

func away(err error) error {
	if err == nil {
		return nil
	}
	return domain.WrapError(domain.Unavailable, "cannot read dead letters from NATS", err)
}

// replayable reports whether a message on this subject reaches a stream that a dispatcher consumes.
func replayable(subject string) bool {
	rest, ours := strings.CutPrefix(subject, wire.Prefix)
	kind, name, _ := strings.Cut(rest, ".")
	return ours && slices.Contains(streamed, kind) && name != "" && !strings.ContainsAny(name, "*> ")
}

// read decodes a letter. Any other message is returned as it is, and is not readable.
func read(m *jetstream.RawStreamMsg) (l domain.DeadLetter, readable bool) {
	kind, group, _ := strings.Cut(strings.TrimPrefix(m.Subject, wire.DeadSubject("", "")), ".")
	if name, ok := strings.CutPrefix(m.Subject, wire.DeadEventSubject("")); ok {
		kind, group = "event", name
	}
	l = domain.DeadLetter{Seq: m.Sequence, Kind: kind, Group: group, At: domain.At(m.Time)}
	var w wire.DeadLetter
	if err := json.Unmarshal(m.Data, &w); err != nil || w.V != wire.Version {
		l.Error, l.DataBase64 = "this is not a dead letter of Belfry", m.Data
	} else {
		readable = true
		l.At, l.Subject, l.Error, l.DataBase64, l.Headers = domain.At(w.At.Time), w.Subject, w.Error, w.Data, w.Headers
	}
	l.Bytes = max(w.Bytes, len(l.DataBase64))
	if utf8.Valid(l.DataBase64) {
		l.Data = string(l.DataBase64)
	}
	return l, readable
}
