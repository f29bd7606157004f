package verdict

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// enough is how long the judge must know the attempts of a suspect, and how long the suspect must have given no sign of life. It exceeds
// LeaseTTL by half a second, because the clocks of two machines do not run at exactly the same rate.
const enough = wire.LeaseTTL + 500*time.Millisecond

// pingWait is how long a suspect has to answer a ping. It gets about ten of them.
const pingWait = 500 * time.Millisecond

// suspect is a boot whose heartbeats are overdue at a time when missing heartbeats prove nothing: Roster.Doubtful.
//
// The judge pings it again and again, and listens to the heartbeats that the bucket may refuse. If there was no sign of life for long
// enough, the boot counts as dead. Its attempts are lost as soon as the judge has known them for long enough, each in its present bind: see
// "The fence" in package dispatcher. Only the goroutine that works for the boot's group uses since and known.
type suspect struct {
	heard atomic.Bool // a heartbeat was published since the last look
	stop  func()      // ends listening

	since time.Time             // when the first ping was sent since the last sign of life; zero before that
	known map[binding]time.Time // since when the judge knows each binding to the boot
}

// binding is one binding of an attempt.
type binding struct {
	run           domain.RunID
	attempt, bind int
}

// note records that the runs are bound to the boot now, and forgets all others.
func (s *suspect) note(runs []engine.LiveRun, now time.Time) {
	known := make(map[binding]time.Time, len(runs))
	for i := range runs {
		k := binding{runs[i].ID, runs[i].Attempt, runs[i].Bind}
		if known[k] = s.known[k]; known[k].IsZero() {
			known[k] = now
		}
	}
	s.known = known
}

// knownForLong returns the runs whose binding to the boot the judge has known for long enough.
func (s *suspect) knownForLong(runs []engine.LiveRun, now time.Time) (old []engine.LiveRun) {
	for i := range runs {
		since, ok := s.known[binding{runs[i].ID, runs[i].Attempt, runs[i].Bind}]
		if ok && now.Sub(since) >= enough {
			old = append(old, runs[i])
		}
	}
	return old
}

// judgeSuspects declares attempts of suspects lost. Its verdicts take the steps 1, 2, 3, 5, 6 and 7 of judgeDeaths. Instead of step 4, the
// boot must have given no sign of life for 10.5 s, and the judge must have known the binding of the attempt for 10.5 s. Other clients
// can postpone neither of them.
func (j *Judge) judgeSuspects(ctx context.Context) error {
	if !j.Peers.Connected() {
		j.keepSuspects(nil) // there is no sign of life because NATS is not available
		return nil
	}
	boots, err := j.boundBoots(ctx, recent)
	if err != nil {
		return err
	}
	suspects := make(map[engine.BoundBoot]*suspect)
	groups := make(map[string][]engine.BoundBoot)
	for _, b := range boots {
		if b.Kept || !j.Roster.Doubtful(b.Group, b.Instance, b.BootID) {
			continue
		}
		k := engine.BoundBoot{Group: b.Group, Instance: b.Instance, BootID: b.BootID}
		if suspects[k] = j.suspects[k]; suspects[k] == nil {
			s := &suspect{}
			if s.stop, err = j.Peers.Listen(b.Group, b.Instance, b.BootID, func() { s.heard.Store(true) }); err != nil {
				return err
			}
			suspects[k] = s
			j.suspects[k] = s
		}
		if j.doubts.Idle(b.Group) {
			groups[b.Group] = append(groups[b.Group], k)
		}
	}
	j.keepSuspects(suspects)
	for group, boots := range groups {
		j.doubts.Do(ctx, []string{group}, func() error {
			return judgeAll(boots, func(b engine.BoundBoot) error { return j.judgeSuspect(ctx, b, suspects[b]) })
		})
	}
	return nil
}

// keepSuspects makes the given boots the only suspects.
func (j *Judge) keepSuspects(suspects map[engine.BoundBoot]*suspect) {
	for b, s := range j.suspects {
		if suspects[b] == nil {
			s.stop()
			delete(j.suspects, b)
		}
	}
}

// judgeSuspect asks a suspect once, and gives a verdict if the time has come.
func (j *Judge) judgeSuspect(ctx context.Context, b engine.BoundBoot, s *suspect) error {
	runs, err := j.runsOf(ctx, b)
	if err != nil || len(runs) == 0 {
		return err
	}
	s.note(runs, time.Now())
	asked := time.Now()
	reply, err := j.pingSuspect(ctx, b)
	if s.heard.Swap(false) || (err == nil && reply.BootID == b.BootID) {
		s.since, s.known = time.Time{}, nil
		return nil // it is alive
	}
	if s.since.IsZero() {
		s.since = asked
	}
	now := time.Now()
	old := s.knownForLong(runs, now)
	if len(old) == 0 || now.Sub(s.since) < enough+j.patient {
		return nil
	}
	lease, leaseErr := j.Peers.ReadLease(ctx, b.Group, b.Instance)
	if leaseErr != nil || lease.BootID == b.BootID {
		return leaseErr
	}
	settled, settledErr := j.Results.AllSettled(ctx, b.Group)
	if settledErr != nil || !settled || !j.Peers.HeardForLong() || !j.Roster.Doubtful(b.Group, b.Instance, b.BootID) {
		return settledErr
	}
	_, err = j.endAll(ctx, b, old, err == nil)
	return err
}

func (j *Judge) pingSuspect(ctx context.Context, b engine.BoundBoot) (*wire.ControlReply, error) {
	ctx, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	return j.Peers.Ask(ctx, b.Group, b.Instance, wire.Control{Op: wire.OpPing})
}
