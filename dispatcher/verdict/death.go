package verdict

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// minLostAfter is the minimum of LostAfter. A verdict can take this long after an instance's death, because the lease has to
// expire, a ping has to time out, and the loop has a period.
const minLostAfter = 15 * time.Second

const (
	maxJudged = 64     // concurrent verdicts about instances of one group
	maxRuns   = 10_000 // attempts of one verdict
)

// judgeDeaths declares the attempts of dead boots lost. A verdict takes these steps, in this order:
//
//  1. This process has been connected to NATS for longer than a lease, without an interruption. Otherwise its own connection may be
//     the reason for the missing heartbeats.
//  2. The judge lists the attempts. The verdict does not apply to attempts that are bound later, because the instance may have
//     been frozen and may continue now.
//  3. A read from the leader of the bucket shows no lease, or the lease of another boot.
//  4. This process has received everything that the bucket held at that read, and no heartbeat of the boot in the 10.5 s
//     before the read: see "The fence" in package dispatcher.
//  5. A ping gets no answer, or the answer of another boot.
//  6. The results of the group that the streams held at that moment are settled. The attempt's result may be among them. Results
//     of other groups do not matter, so a group that floods the streams delays only verdicts about its own instances.
//  7. If another boot of the instance is alive, its spool has no result of the attempt.
//
// A boot with a record in Postgres (engine.BoundBoot.Kept) is not judged. The process that has the record reports which of its attempts are
// lost, and deletes the record at the end of the boot.
//
// While this process may have missed heartbeats, step 4 allows no verdict. Then judgeSuspects decides.
func (j *Judge) judgeDeaths(ctx context.Context) error {
	if !j.Peers.HeardForLong() {
		return nil
	}
	boots, err := j.boundBoots(ctx, recent)
	if err != nil {
		return err
	}
	gone := make(map[engine.BoundBoot]time.Time)
	for _, b := range boots {
		if id, alive := j.Roster.Boot(b.Group, b.Instance); b.Kept || alive && id == b.BootID {
			continue
		}
		k := engine.BoundBoot{Group: b.Group, Instance: b.Instance, BootID: b.BootID}
		gone[k] = j.missing[k]
		if gone[k].IsZero() {
			gone[k] = time.Now()
		}
	}
	j.missing = gone
	groups := make(map[string][]engine.BoundBoot)
	for b, since := range gone {
		if time.Since(since) < j.patient || !j.Roster.Silent(b.Group, b.Instance, b.BootID, 0, time.Now()) || !j.deaths.Idle(b.Group) {
			continue
		}
		groups[b.Group] = append(groups[b.Group], b)
	}
	for group, boots := range groups {
		j.deaths.Do(ctx, []string{group}, func() error {
			return judgeAll(boots, func(b engine.BoundBoot) error { return j.judge(ctx, b) })
		})
	}
	return nil
}

// judgeAll judges boots of one group concurrently, because a verdict waits for answers, and an unreachable instance must not delay
// the others.
func judgeAll(boots []engine.BoundBoot, judge func(engine.BoundBoot) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	slots := make(chan struct{}, maxJudged)
	for _, b := range boots {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := judge(b); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("instance %s: %w", b.Instance, err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// judge decides about one boot that the roster does not show. After an error, there is no verdict.
func (j *Judge) judge(ctx context.Context, b engine.BoundBoot) error {
	for {
		runs, err := j.runsOf(ctx, b)
		if err != nil || len(runs) == 0 {
			return err
		}
		dead, successor, err := j.isDead(ctx, b)
		if err != nil || !dead {
			return err
		}
		ended, err := j.endAll(ctx, b, runs, successor)
		if err != nil || ended == 0 {
			return err // if none ended, the cached list was out of date; the next pass reads a new one
		}
	}
}

// endAll ends attempts of a dead boot, and returns how many it ended. successor says that another boot of the instance is alive.
func (j *Judge) endAll(ctx context.Context, b engine.BoundBoot, runs []engine.LiveRun, successor bool) (ended int, err error) {
	for part := range slices.Chunk(runs, peer.ControlBatch) {
		known := map[string]wire.Status{}
		if successor {
			reply, err := j.Peers.Ask(ctx, b.Group, b.Instance, wire.Control{Op: wire.OpStatus, Runs: peer.Refs(part)})
			if err != nil {
				return ended, err
			}
			known = peer.Statuses(reply)
		}
		if !j.Peers.HeardForLong() {
			return ended, nil // the connection broke meanwhile
		}
		ended += j.endDead(ctx, b, part, successor, known)
	}
	return ended, nil
}

// runsOf lists the attempts that are bound to a boot, at most maxRuns.
func (j *Judge) runsOf(ctx context.Context, b engine.BoundBoot) (all []engine.LiveRun, err error) {
	after := domain.NilRunID
	for len(all) < maxRuns {
		runs, err := j.Store.RunsOf(ctx, b, after, peer.ControlBatch)
		if err != nil {
			return nil, err
		}
		if all = append(all, runs...); len(runs) < peer.ControlBatch {
			break
		}
		after = runs[len(runs)-1].ID
	}
	return all, nil
}

// isDead reports whether a boot that the roster does not show is dead. successor reports whether another boot of its instance is
// alive. Both are undefined after an error.
func (j *Judge) isDead(ctx context.Context, b engine.BoundBoot) (dead, successor bool, err error) {
	read := time.Now()
	lease, err := j.Peers.ReadLease(ctx, b.Group, b.Instance)
	if err != nil || lease.BootID == b.BootID || !j.silentBefore(ctx, b, read, lease.Seq) {
		return false, false, err
	}
	reply, err := j.Peers.Ask(ctx, b.Group, b.Instance, wire.Control{Op: wire.OpPing})
	if err == nil && reply.BootID == b.BootID {
		return false, false, nil // it is alive, and will have a lease again
	}
	successor = err == nil
	//sim:seam death-results
	settled, err := j.Results.AllSettled(ctx, b.Group)
	return err == nil && settled, successor, err
}

// catchUpTimeout is how long a verdict waits until this process's watch has received the bucket's messages. Usually that takes
// milliseconds. After the timeout, the next pass tries again.
const catchUpTimeout = time.Second

// silentBefore waits until this process has received the bucket's messages up to seq. It then reports whether no heartbeat of the
// boot arrived in the 10.5 s before the read. It returns false if the messages do not arrive within catchUpTimeout.
func (j *Judge) silentBefore(ctx context.Context, b engine.BoundBoot, read time.Time, seq uint64) bool {
	for deadline := time.Now().Add(catchUpTimeout); !j.Roster.CaughtUp(seq); {
		if time.Now().After(deadline) || !lifecycle.Pause(ctx, 5*time.Millisecond) {
			return false
		}
	}
	return j.Roster.Silent(b.Group, b.Instance, b.BootID, seq, read)
}

// endDead ends the attempts of a dead boot and returns how many it ended.
func (j *Judge) endDead(ctx context.Context, b engine.BoundBoot, runs []engine.LiveRun, successor bool, known map[string]wire.Status) int {
	var ended []engine.Ended
	for _, r := range runs {
		st, ok := known[r.ID.String()]
		if successor && !ok {
			continue // the answer had no room for all attempts; the next pass asks about the rest
		}
		if st.Status == wire.StatusDone && st.Result != nil && st.Result.BootID == b.BootID {
			ended = append(ended, j.Recorder.FromStatus(&r, st)...)
			continue
		}
		ended = append(ended, j.Recorder.Lost(&r, explain.Of(explain.InstanceDied, b.Instance)))
	}
	j.Log.WarnContext(ctx, "an instance died, its attempts are lost", "group", b.Group, "instance", b.Instance, "runs", len(runs))
	n, released := j.Recorder.Found(ctx, "dead_instance", ended)
	j.Firer.Release(ctx, released)
	return n
}
