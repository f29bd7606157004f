// Package deadletters is the REST API of messages that dispatchers could not process.
package deadletters

import (
	"context"
	"strconv"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// API serves dead letters. All fields must be set.
type API struct {
	Store Store
	Audit *rest.Audit
}

// Store keeps dead letters in NATS. While NATS is unavailable, every method returns Unavailable.
type Store interface {
	DeadLetters(ctx context.Context, kind, group string, after uint64, limit int) ([]domain.DeadLetter, error)
	DeadLetter(ctx context.Context, seq uint64) (domain.DeadLetter, error)
	// Replay publishes the message again and removes the letter. Conflict: the message cannot be published.
	Replay(ctx context.Context, seq uint64) (domain.DeadLetter, error)
	Delete(ctx context.Context, seq uint64) (domain.DeadLetter, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Dead letters"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/dead-letters", Tag: tag, Summary: "List messages that could not be processed, events last, otherwise oldest first", Needs: account.Admin,
		Description: "Dead letters are kept for 14 days, at most 1,000 of each kind and group. The list leaves out their data."}, a.list)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/dead-letters/{seq}", Tag: tag, Summary: "Show a message that could not be processed", Needs: account.Admin}, a.show)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/dead-letters/{seq}/replay", Tag: tag, Summary: "Process a message again", Needs: account.Admin, Status: 202,
		Description: "Publishes the message again on its original subject, and removes the dead letter. If the message still cannot be processed, it becomes a new dead letter."}, a.replay)
	rest.Register(r, rest.Operation{Method: "DELETE", Path: "/dead-letters/{seq}", Tag: tag, Summary: "Delete a message that could not be processed", Needs: account.Admin}, a.remove)
}

// LetterPath names a dead letter in the path.
type LetterPath struct {
	Seq uint64 `path:"seq" minimum:"1"`
}

type lettersInput struct {
	rest.List
	Kind  string `query:"kind" enum:"result,log,event,callback,heartbeat"`
	Group string `query:"group" maxLength:"255" pattern:"^[^*> ]*$" patternDescription:"a group, or the name of an event" doc:"Only letters of this group. For events, the name of the event."`
}

func letterObject(seq uint64) string { return "dead-letter/" + strconv.FormatUint(seq, 10) }

func (a *API) list(ctx context.Context, _ auth.Identity, in *lettersInput) (*rest.Output[rest.Page[domain.DeadLetter]], error) {
	after, err := rest.DecodeNumberCursor("dead-letter", in.Cursor)
	if err != nil {
		return nil, err
	}
	letters, err := a.Store.DeadLetters(ctx, in.Kind, in.Group, uint64(after), in.Limit+1)
	if err != nil {
		return nil, err
	}
	return rest.Answer(rest.Cut(append([]domain.DeadLetter{}, letters...), in.Limit, func(l domain.DeadLetter) string {
		return rest.NumberCursor("dead-letter", int64(l.Seq))
	})), nil
}

func (a *API) show(ctx context.Context, _ auth.Identity, in *LetterPath) (*rest.Output[domain.DeadLetter], error) {
	l, err := a.Store.DeadLetter(ctx, in.Seq)
	return rest.Answer(l), err
}

func (a *API) replay(ctx context.Context, id auth.Identity, in *LetterPath) (*struct{}, error) {
	l, err := a.Store.Replay(ctx, in.Seq)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "dead-letter.replay", letterObject(in.Seq), withoutData(l), nil)
	return nil, nil
}

func (a *API) remove(ctx context.Context, id auth.Identity, in *LetterPath) (*struct{}, error) {
	l, err := a.Store.Delete(ctx, in.Seq)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "dead-letter.delete", letterObject(in.Seq), withoutData(l), nil)
	return nil, nil
}

// withoutData returns the letter without its data, for the audit log, because the data may be secret or large.
func withoutData(l domain.DeadLetter) domain.DeadLetter {
	l.Data, l.DataBase64, l.Headers = "", nil, nil
	return l
}
