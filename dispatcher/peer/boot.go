package peer

import (
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/engine"
)

// Boot identifies one process of an instance. Offers and verdicts refer to boots, because a restarted instance keeps its name
// but has none of the earlier attempts.
type Boot struct{ Group, Instance, ID string }

// BootOf returns the boot that a run is bound to.
func BootOf(r *engine.LiveRun) Boot { return Boot{r.Group, r.Instance, r.BootID} }

// ByBoot groups runs by the boot that they are bound to. Unbound runs are left out.
func ByBoot(runs []engine.LiveRun) map[Boot][]engine.LiveRun {
	count := make(map[Boot]int)
	for i := range runs {
		if r := &runs[i]; r.Instance != "" {
			count[BootOf(r)]++
		}
	}
	out := make(map[Boot][]engine.LiveRun, len(count))
	for b, n := range count {
		if n == len(runs) { // the most frequent case; runs are large to copy
			out[b] = runs
			return out
		}
		out[b] = make([]engine.LiveRun, 0, n)
	}
	for i := range runs {
		if r := &runs[i]; r.Instance != "" {
			out[BootOf(r)] = append(out[BootOf(r)], *r)
		}
	}
	return out
}

// ControlBatch is the maximum number of attempts in one control request.
const ControlBatch = 500

// Refs returns the references to the attempts of runs for a control request.
func Refs(runs []engine.LiveRun) []wire.Ref {
	out := make([]wire.Ref, len(runs))
	for i, r := range runs {
		out[i] = wire.Ref{RunID: r.ID.String(), Attempt: r.Attempt, BootID: r.BootID}
	}
	return out
}

// Statuses returns the statuses of a reply by run id.
func Statuses(reply *wire.ControlReply) map[string]wire.Status {
	out := make(map[string]wire.Status, len(reply.Statuses))
	for _, s := range reply.Statuses {
		out[s.RunID] = s
	}
	return out
}

// WireTime converts an optional instant. Nil becomes the zero value, which messages leave out.
func WireTime(t *time.Time) wire.Time {
	if t == nil {
		return wire.Time{}
	}
	return wire.Time{Time: *t}
}
