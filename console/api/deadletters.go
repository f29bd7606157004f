package api

import (
	"context"
	"strconv"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// DeadLetters holds the messages that could not be taken. It is of NATS: all of it is Unavailable without.
type DeadLetters interface {
	DeadLetters(ctx context.Context, kind string, after uint64, limit int) ([]domain.DeadLetter, error)
	DeadLetter(ctx context.Context, seq uint64) (domain.DeadLetter, error)
	// Replay publishes the message again and takes the letter out. Conflict: it cannot be.
	Replay(ctx context.Context, seq uint64) (domain.DeadLetter, error)
	Delete(ctx context.Context, seq uint64) (domain.DeadLetter, error)
}

// LetterPath names a dead letter in the path.
type LetterPath struct {
	Seq uint64 `path:"seq" minimum:"1"`
}

type lettersInput struct {
	rest.List
	Kind string `query:"kind" enum:"result,log,event,heartbeat"`
}

func (a *API) registerDeadLetters() {
	const tag = "Dead letters"
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/dead-letters", Tag: tag, Summary: "List messages that could not be taken, oldest first", Needs: account.Admin,
		Description: "They are kept for 14 days. Their data are shown one by one only."}, a.deadLetters)
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/dead-letters/{seq}", Tag: tag, Summary: "Show a message that could not be taken", Needs: account.Admin}, a.deadLetter)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/dead-letters/{seq}/replay", Tag: tag, Summary: "Have a message taken again", Needs: account.Admin, Status: 202,
		Description: "It is published again where it came from, and leaves the dead letters; should it still not be taken, it becomes a new one."}, a.replayDeadLetter)
	rest.Register(a.rest, rest.Operation{Method: "DELETE", Path: "/dead-letters/{seq}", Tag: tag, Summary: "Delete a message that could not be taken", Needs: account.Admin}, a.deleteDeadLetter)
}

func letterObject(seq uint64) string { return "dead-letter/" + strconv.FormatUint(seq, 10) }

func (a *API) deadLetters(ctx context.Context, _ auth.Identity, in *lettersInput) (*rest.Output[rest.Page[domain.DeadLetter]], error) {
	after, err := rest.DecodeNumberCursor("dead-letter", in.Cursor)
	if err != nil {
		return nil, err
	}
	letters, err := a.Letters.DeadLetters(ctx, in.Kind, uint64(after), in.Limit+1)
	if err != nil {
		return nil, err
	}
	return rest.Answer(rest.Cut(append([]domain.DeadLetter{}, letters...), in.Limit, func(l domain.DeadLetter) string {
		return rest.NumberCursor("dead-letter", int64(l.Seq))
	})), nil
}

func (a *API) deadLetter(ctx context.Context, _ auth.Identity, in *LetterPath) (*rest.Output[domain.DeadLetter], error) {
	l, err := a.Letters.DeadLetter(ctx, in.Seq)
	return rest.Answer(l), err
}

func (a *API) replayDeadLetter(ctx context.Context, id auth.Identity, in *LetterPath) (*struct{}, error) {
	l, err := a.Letters.Replay(ctx, in.Seq)
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "dead-letter.replay", letterObject(in.Seq), withoutData(l), nil)
	return nil, nil
}

func (a *API) deleteDeadLetter(ctx context.Context, id auth.Identity, in *LetterPath) (*struct{}, error) {
	l, err := a.Letters.Delete(ctx, in.Seq)
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "dead-letter.delete", letterObject(in.Seq), withoutData(l), nil)
	return nil, nil
}

// withoutData is what the audit log keeps of a letter, whose data may be anything.
func withoutData(l domain.DeadLetter) domain.DeadLetter {
	l.Data, l.DataBase64, l.Headers = "", nil, nil
	return l
}
