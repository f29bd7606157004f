package verdict

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belfryhq/belfry/dispatcher/offer"
	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/settle"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

const (
	answerWait   = 2500 * time.Millisecond // longer than the 2 s that the sender waits for an answer to an offer
	silentBatch  = 500                     // runs in one round of questions
	silentRounds = 10                      // rounds in one pass
)

// silentAfter returns how long an attempt of a group must be without news before the judge asks its instance. While results of the
// group have to wait, the time is longer: most such attempts have their results among them, and asking would slow settling down.
func (j *Judge) silentAfter(group string) time.Duration {
	if age, behind := j.Results.Backlog(group); behind {
		return answerWait + age
	}
	return settle.LongRun
}

// leastSilent returns the smallest silentAfter of the boots' groups.
func (j *Judge) leastSilent(boots []engine.BoundBoot) time.Duration {
	least := time.Duration(0)
	for _, b := range boots {
		if after := j.silentAfter(b.Group); least == 0 || after < least {
			least = after
		}
	}
	return max(least, settle.LongRun)
}

// bundle is groups whose silent runs are read with one query.
type bundle struct {
	groups []string
	runs   int
	after  time.Duration // the longest silentAfter of the groups
}

// bundles divides groups, given with their numbers of silent runs, so that a query has room for all runs of a bundle. A group with
// more runs is alone in its bundle, and so keeps no other group's runs out. Groups whose results have to wait are not mixed with
// the others, which would have to wait as long.
func bundles(runs map[string]int, after func(group string) time.Duration) (out []bundle) {
	for _, late := range []bool{false, true} {
		first := len(out)
		for _, group := range slices.Sorted(maps.Keys(runs)) {
			n, own := runs[group], after(group)
			if (own > settle.LongRun) != late {
				continue
			}
			if last := len(out) - 1; last >= first && out[last].runs+n <= silentBatch {
				b := &out[last]
				b.groups, b.runs, b.after = append(b.groups, group), b.runs+n, max(b.after, own)
				continue
			}
			out = append(out, bundle{[]string{group}, n, own})
		}
	}
	return out
}

// askSilent asks instances about attempts whose offer has no recorded answer, or was never sent. Running attempts are recorded
// as running, ended attempts are settled, and unknown attempts are offered again.
func (j *Judge) askSilent(ctx context.Context) error {
	//sim:seam ask-silent
	if !j.Peers.Connected() {
		return nil
	}
	boots, err := j.boundBoots(ctx, 0)
	if err != nil {
		return err
	}
	silent := counted(boots, func(b engine.BoundBoot) int { return b.Silent })
	maps.DeleteFunc(silent, func(group string, _ int) bool { return !j.silent.Idle(group) })
	after := make(map[string]time.Duration, len(silent))
	for group := range silent {
		after[group] = j.silentAfter(group)
	}
	for _, b := range bundles(silent, func(group string) time.Duration { return after[group] }) {
		j.silent.Do(ctx, b.groups, func() error { return j.askSilentOf(ctx, b) })
	}
	return nil
}

// askSilentOf is askSilent for some groups.
func (j *Judge) askSilentOf(ctx context.Context, of bundle) error {
	for range silentRounds {
		runs, err := j.Store.Silent(ctx, of.groups, of.after, silentBatch)
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		for b, runs := range peer.ByBoot(runs) {
			wg.Go(func() { j.ask(ctx, b, runs, true) })
		}
		wg.Wait()
		if len(runs) < silentBatch {
			break
		}
	}
	return nil
}

// askRunning asks live instances about the attempts that are recorded as running on them. Otherwise a run would stay running if
// its result was lost and its instance no longer knows the attempt.
func (j *Judge) askRunning(ctx context.Context) error {
	if !j.Peers.HeardForLong() {
		return nil
	}
	boots, err := j.boundBoots(ctx, recent)
	if err != nil {
		return err
	}
	groups := make(map[string][]engine.BoundBoot)
	for _, b := range boots {
		if id, alive := j.Roster.Boot(b.Group, b.Instance); b.Running == 0 || !alive || id != b.BootID || !j.running.Idle(b.Group) {
			continue // there is nothing to ask about, or the boot may be dead, or the last pass still asks
		}
		groups[b.Group] = append(groups[b.Group], b)
	}
	for group, boots := range groups {
		j.running.Do(ctx, []string{group}, func() error {
			for _, b := range boots {
				if err := j.askRunningOn(ctx, b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return nil
}

// askRunningOn is askRunning for one boot.
func (j *Judge) askRunningOn(ctx context.Context, b engine.BoundBoot) error {
	var after domain.RunID
	for {
		runs, err := j.Store.RunsOf(ctx, b, after, peer.ControlBatch)
		if err != nil {
			return err
		}
		var running []engine.LiveRun
		for _, r := range runs {
			if r.State == domain.Running {
				running = append(running, r)
			}
		}
		if len(running) > 0 {
			j.ask(ctx, peer.Boot{Group: b.Group, Instance: b.Instance, ID: b.BootID}, running, false)
		}
		if len(runs) < peer.ControlBatch {
			return nil
		}
		after = runs[len(runs)-1].ID
	}
}

// findings groups the attempts that an instance was asked about by the action that the judge takes.
type findings struct {
	running []engine.Started
	ended   []engine.Ended
	again   []engine.LiveRun // to be offered again
	refused []engine.LiveRun // to be routed again
}

// ask asks an instance about attempts that are bound to its boot, and acts on the answer. If silent is true, the database does
// not know whether the instance accepted the attempts. Otherwise they are recorded as running.
func (j *Judge) ask(ctx context.Context, b peer.Boot, runs []engine.LiveRun, silent bool) {
	reply, err := j.Peers.Ask(ctx, b.Group, b.Instance, wire.Control{Op: wire.OpStatus, Runs: peer.Refs(runs)})
	if err != nil || reply.BootID != b.ID {
		return // no answer, or the boot may be dead: judgeDeaths decides
	}
	j.Roster.Load(b.Group, b.Instance, b.ID, reply.Load)
	var f findings
	kind := "unknown_to_instance"
	if silent {
		kind = "unanswered_offer"
		f = j.readSilent(runs, peer.Statuses(reply))
	} else {
		f = j.readRunning(runs, peer.Statuses(reply))
	}
	_, released := j.Recorder.Found(ctx, kind, f.ended)
	j.Firer.Release(ctx, released)
	j.Recorder.Started(ctx, f.running)
	if len(f.refused) > 0 {
		j.Recorder.Reconciled(kind, len(f.refused))
		j.Sender.Refused(ctx, f.refused, func(domain.RunID) explain.Note { return explain.Of(explain.NotStarted, b.Instance) }, true)
		j.Waiting.Wake()
	}
	if len(f.again) > 0 {
		j.Recorder.Reconciled(kind, len(f.again))
		j.offerAgain(ctx, b, f.again)
	}
}

// readSilent interprets the statuses of attempts that the database does not know to be accepted.
func (j *Judge) readSilent(runs []engine.LiveRun, statuses map[string]wire.Status) (f findings) {
	waited := j.Store.Now().Add(-answerWait)
	for _, r := range runs {
		st := statuses[r.ID.String()]
		early := r.BoundAt == nil || !r.BoundAt.Before(waited) || !r.DueAt.Before(waited)
		if early && st.Status != wire.StatusRunning {
			continue // its offer, the answer, or its result is in flight
		}
		switch st.Status {
		case wire.StatusRunning:
			if !early {
				j.Recorder.Reconciled("unanswered_offer", 1)
			}
			f.running = append(f.running, j.Recorder.StartedOf(&r, st))
		case wire.StatusDone:
			if st.Result != nil {
				f.ended = append(f.ended, j.Recorder.FromStatus(&r, st)...)
				continue
			}
			f.again = append(f.again, r) // the instance may have accepted an earlier round and reported it as unstarted
		case wire.StatusBarred:
			f.refused = append(f.refused, r)
		case wire.StatusRefused, wire.StatusUnknown:
			// The refusal may belong to an earlier round, while the offer of this round is still in flight. Only the answer to
			// a new round is conclusive.
			f.again = append(f.again, r)
		}
	}
	return f
}

// readRunning interprets the statuses of attempts that are recorded as running.
func (j *Judge) readRunning(runs []engine.LiveRun, statuses map[string]wire.Status) (f findings) {
	for _, r := range runs {
		switch st := statuses[r.ID.String()]; st.Status {
		case wire.StatusDone:
			switch {
			case st.Result != nil:
				f.ended = append(f.ended, j.Recorder.FromStatus(&r, st)...)
			case st.Outcome != "":
				// The instance has deleted the result, so it was notified that the result is committed. The database has lost
				// that commit, or the run is now in a later attempt. In the second case, settling changes nothing.
				f.ended = append(f.ended, j.Recorder.EndedBefore(&r, st.Outcome))
			default:
				f.ended = append(f.ended, j.Recorder.Lost(&r, explain.Of(explain.ResultLost)))
			}
		case wire.StatusBarred:
			f.ended = append(f.ended, j.Recorder.Lost(&r, explain.Of(explain.StartBarred)))
		case wire.StatusRefused, wire.StatusUnknown:
			f.ended = append(f.ended, j.Recorder.Lost(&r, explain.Of(explain.AttemptUnknown)))
		}
	}
	return f
}

// offerAgain offers attempts to their boot again, in a new round.
func (j *Judge) offerAgain(ctx context.Context, b peer.Boot, runs []engine.LiveRun) {
	// The beat is read before RaiseBinds, because an offer must not rely on a heartbeat that was sent after the binding.
	beat, fresh := j.Roster.Beat(b.Group, b.Instance, b.ID)
	if !fresh {
		return // the next pass has a newer heartbeat, or the instance is dead
	}
	raised, err := j.Store.RaiseBinds(ctx, runs)
	if err != nil {
		if ctx.Err() == nil {
			j.Log.WarnContext(ctx, "cannot offer attempts again, retrying", "runs", len(runs), "err", err)
		}
		return
	}
	j.Sender.Send(ctx, raised, offer.Beats{b: beat}, false)
}
