// Package deadletter shows the messages that could not be taken, and gives them back: to be looked at, mended for, and
// tried again. They are in a stream, so that NATS must be there; Postgres holds none of them.
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

// Box holds the dead letters. Its methods may be called by many goroutines. Errors are NotFound for a letter that is not
// there, Conflict for one that cannot be replayed, and Unavailable while NATS is away.
type Box struct{ js jetstream.JetStream }

// New returns the box behind a connection.
func New(nc *nats.Conn) (*Box, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &Box{js}, nil
}

// Kinds are the kinds of dead letters: what the message was to be.
var Kinds = append([]string{"heartbeat"}, streamed...)

// streamed are the kinds that come from a stream, and can be replayed into it.
var streamed = []string{"result", "log", "event"}

// callMax bounds what one answer of NATS is waited for.
const callMax = 5 * time.Second

// DeadLetters lists letters from the oldest on, after a sequence, of one kind or of all where that is empty. Their data
// are left out.
func (b *Box) DeadLetters(ctx context.Context, kind string, after uint64, limit int) ([]domain.DeadLetter, error) {
	subject := wire.DeadSubject(">")
	if kind != "" {
		subject = wire.DeadSubject(kind)
	}
	s, err := b.stream(ctx)
	if err != nil {
		return nil, err
	}
	letters := []domain.DeadLetter{}
	for len(letters) < limit {
		m, err := get(ctx, s, after+1, jetstream.WithGetMsgSubject(subject))
		if err != nil && domain.CodeOf(err) == domain.NotFound {
			return letters, nil //nolint:nilerr // there are no more
		}
		if err != nil {
			return nil, err
		}
		l, _ := read(m)
		l.Data, l.DataBase64 = "", nil
		letters = append(letters, l)
		after = m.Sequence
	}
	return letters, nil
}

// DeadLetter returns one letter.
func (b *Box) DeadLetter(ctx context.Context, seq uint64) (domain.DeadLetter, error) {
	s, err := b.stream(ctx)
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

// Replay publishes a letter's message again, where it came from, and takes the letter out. What it meant takes effect once,
// also if the letter is replayed twice: results and logs are known by their attempt, events by their keys.
func (b *Box) Replay(ctx context.Context, seq uint64) (domain.DeadLetter, error) {
	s, err := b.stream(ctx)
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
		return l, domain.NewError(domain.Conflict, "this is no letter of Belfry's, and says not where it came from")
	case l.Bytes > len(l.DataBase64):
		return l, domain.NewError(domain.Conflict, "only the beginning of the message was kept")
	case !replayable(l.Subject):
		return l, domain.NewError(domain.Conflict, "nobody takes messages on its subject")
	}
	again := nats.NewMsg(l.Subject)
	again.Data = l.DataBase64
	for name, values := range l.Headers {
		if !strings.HasPrefix(strings.ToLower(name), "nats-") { // those speak to JetStream
			again.Header[name] = values
		}
	}
	// What JetStream remembers of the message's id would swallow it. Two letters of one message name the same id.
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

// Delete takes a letter out.
func (b *Box) Delete(ctx context.Context, seq uint64) (domain.DeadLetter, error) {
	s, err := b.stream(ctx)
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

func (b *Box) stream(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	s, err := b.js.Stream(ctx, wire.StreamDead)
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
		return nil // somebody else did
	}
	return away(err)
}

func away(err error) error {
	if err == nil {
		return nil
	}
	return domain.WrapError(domain.Unavailable, "NATS cannot be asked for dead letters", err)
}

// replayable reports whether a message of this subject lands in a stream that a dispatcher takes it from.
func replayable(subject string) bool {
	rest, ours := strings.CutPrefix(subject, wire.Prefix)
	kind, name, _ := strings.Cut(rest, ".")
	return ours && slices.Contains(streamed, kind) && name != "" && !strings.ContainsAny(name, "*> ")
}

// read reads a letter. What is none is shown as it is, and is not readable.
func read(m *jetstream.RawStreamMsg) (l domain.DeadLetter, readable bool) {
	l = domain.DeadLetter{Seq: m.Sequence, Kind: strings.TrimPrefix(m.Subject, wire.DeadSubject("")), At: domain.At(m.Time)}
	var w wire.DeadLetter
	if err := json.Unmarshal(m.Data, &w); err != nil || w.V != wire.Version {
		l.Error, l.DataBase64 = "this is no letter of Belfry's", m.Data
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
