package roster

import (
	"strings"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/explain"
)

func (i *instance) draining() bool { return i.load.Draining || i.beat.Draining }

// notOffered explains why Candidates leaves the instance out for every target, or why it has no room. It returns nil if
// the instance gets offers. Of several reasons, it gives the one that lasts longest.
func (i *instance) notOffered(now time.Time) *explain.Explanation {
	switch {
	case i.draining():
		return explain.Of(explain.InstanceDraining).Explanation()
	case len(i.beat.Handlers)+len(i.beat.Languages) == 0:
		return explain.Of(explain.InstanceOffersNothing).Explanation()
	case !i.fresh():
		return explain.Of(explain.InstanceSilent, now.Sub(i.seen).Milliseconds()).Explanation()
	case i.beat.Unfit != nil:
		return trouble(i.beat.Unfit).Explanation()
	case i.load.Running+i.offered >= i.load.Capacity:
		return explain.Of(explain.InstanceFull, i.load.Running+i.offered, i.load.Capacity).Explanation()
	case now.Before(i.shunned):
		return explain.Of(explain.InstanceRefused, i.refused).Explanation()
	}
	return nil
}

// reasonMax bounds the reason that an executor gives, in bytes.
const reasonMax = 63

// trouble explains what an instance reports about itself. Its texts come from a tenant, so they are bounded.
func trouble(u *wire.Unfit) explain.Note {
	message := bounded(u.Message, wire.MaxUnfitMessage)
	switch u.Reason {
	case wire.UnfitOutOfFiles:
		return explain.Of(explain.InstanceOutOfFiles, message)
	case wire.UnfitSpoolFull:
		return explain.Of(explain.InstanceSpoolFull, message)
	case wire.UnfitSpoolUnwritable:
		return explain.Of(explain.InstanceSpoolUnwritable, message)
	}
	return explain.Of(explain.InstanceUnfit, bounded(u.Reason, reasonMax), message)
}

func bounded(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "")
}
