package api

import (
	"context"
	"strconv"

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
	List
	Kind string `query:"kind" enum:"result,log,event,heartbeat"`
}

func (a *API) registerDeadLetters() {
	const tag = "Dead letters"
	register(a, operation{method: "GET", path: "/dead-letters", tag: tag, summary: "List messages that could not be taken, oldest first", needs: account.Admin,
		description: "They are kept for 14 days. Their data are shown one by one only."}, a.deadLetters)
	register(a, operation{method: "GET", path: "/dead-letters/{seq}", tag: tag, summary: "Show a message that could not be taken", needs: account.Admin}, a.deadLetter)
	register(a, operation{method: "POST", path: "/dead-letters/{seq}/replay", tag: tag, summary: "Have a message taken again", needs: account.Admin, status: 202,
		description: "It is published again where it came from, and leaves the dead letters; should it still not be taken, it becomes a new one."}, a.replayDeadLetter)
	register(a, operation{method: "DELETE", path: "/dead-letters/{seq}", tag: tag, summary: "Delete a message that could not be taken", needs: account.Admin}, a.deleteDeadLetter)
}

func letterObject(seq uint64) string { return "dead-letter/" + strconv.FormatUint(seq, 10) }

func (a *API) deadLetters(ctx context.Context, _ auth.Identity, in *lettersInput) (*output[page[domain.DeadLetter]], error) {
	after, err := decodeNumberCursor("dead-letter", in.Cursor)
	if err != nil {
		return nil, err
	}
	letters, err := a.Letters.DeadLetters(ctx, in.Kind, uint64(after), in.Limit+1)
	if err != nil {
		return nil, err
	}
	return &output[page[domain.DeadLetter]]{cut(append([]domain.DeadLetter{}, letters...), in.Limit, func(l domain.DeadLetter) string {
		return numberCursor("dead-letter", int64(l.Seq))
	})}, nil
}

func (a *API) deadLetter(ctx context.Context, _ auth.Identity, in *LetterPath) (*output[domain.DeadLetter], error) {
	l, err := a.Letters.DeadLetter(ctx, in.Seq)
	return &output[domain.DeadLetter]{l}, err
}

func (a *API) replayDeadLetter(ctx context.Context, id auth.Identity, in *LetterPath) (*struct{}, error) {
	l, err := a.Letters.Replay(ctx, in.Seq)
	if err != nil {
		return nil, err
	}
	a.audit(ctx, id, "dead-letter.replay", letterObject(in.Seq), withoutData(l), nil)
	return nil, nil
}

func (a *API) deleteDeadLetter(ctx context.Context, id auth.Identity, in *LetterPath) (*struct{}, error) {
	l, err := a.Letters.Delete(ctx, in.Seq)
	if err != nil {
		return nil, err
	}
	a.audit(ctx, id, "dead-letter.delete", letterObject(in.Seq), withoutData(l), nil)
	return nil, nil
}

// withoutData is what the audit log keeps of a letter, whose data may be anything.
func withoutData(l domain.DeadLetter) domain.DeadLetter {
	l.Data, l.DataBase64, l.Headers = "", nil, nil
	return l
}
