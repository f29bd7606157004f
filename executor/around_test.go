package executor

import (
	"context"
	"errors"
	"testing"

	"github.com/belfryhq/belfry/executor/wire"
)

// Config.Around is called instead of the handler, with the labels of the offer. The handler gets the context that Around passes on, and the
// error that Around returns is the attempt's.
func TestAround(t *testing.T) {
	type key struct{}
	for _, handled := range []error{nil, errors.New("no such customer")} {
		now := instant{wall: epoch}
		x := newStillEngine(&now)
		x.nextBeat()
		label, carried := "", any(nil)
		x.around = func(ctx context.Context, run Run, handle func(context.Context) error) error {
			label = run.Label(wire.LabelTraceparent)
			return handle(context.WithValue(ctx, key{}, "carried"))
		}
		x.handlers["h"] = newRegistered(HandlerFunc(func(ctx context.Context, _ Run) error { carried = ctx.Value(key{}); return handled }))
		at := wire.Time{Time: now.wall}
		x.answerOffers(&wire.Offers{V: 1, BootID: "boot", Beat: 1, Offers: []wire.Offer{{
			RunID: "r", Attempt: 1, Bind: 1, BoundAt: at, Now: at, DueAt: at, Handler: "h", Labels: map[string]string{wire.LabelTraceparent: "00-a-b-01"},
		}}}, 1, now)
		batch, _, _ := x.begin()
		if len(batch) != 1 {
			t.Fatalf("%d attempts begin", len(batch))
		}
		x.perform(batch[0])
		res, _ := x.reports.result(attemptKey{"r", 1})
		if label != "00-a-b-01" || carried != "carried" {
			t.Errorf("Around saw label %q, the handler saw %v", label, carried)
		}
		if (res.Outcome == wire.Succeeded) != (handled == nil) || (handled != nil && res.Message != handled.Error()) {
			t.Errorf("the handler returned %v: %+v", handled, res)
		}
	}
}
