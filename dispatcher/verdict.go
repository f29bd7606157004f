package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// judgeDeaths declares attempts lost whose boot is dead. A verdict needs, in this order:
//
//  1. that this process has heard NATS without a break for longer than a lease, so that the silence is the
//     instance's and not its own;
//  2. the list of the attempts: what is bound after it may be bound to an instance that was frozen and has woken;
//  3. a read from the bucket's leader that shows no lease, or another boot's;
//  4. that this process has received everything that the bucket held at that read, and no heartbeat of the boot in the 10 s
//     before it: see "The fence" in doc.go;
//  5. no answer to a ping, or one of another boot;
//  6. that the results which the stream held at that moment are settled: the attempt's may be among them;
//  7. where another boot of the instance lives, what its spool says.
func (d *Dispatcher) judgeDeaths(ctx context.Context) error {
	if !d.steady.forLong() {
		return nil
	}
	boots, err := d.boundBoots(ctx, lookOld)
	if err != nil {
		return err
	}
	gone := make(map[domain.BoundBoot]time.Time)
	for _, b := range boots {
		if id, alive := d.roster.Boot(b.Group, b.Instance); alive && id == b.BootID {
			continue
		}
		k := domain.BoundBoot{Group: b.Group, Instance: b.Instance, BootID: b.BootID}
		gone[k] = d.missing[k]
		if gone[k].IsZero() {
			gone[k] = time.Now()
		}
	}
	d.missing = gone
	// Side by side, as each waits for answers, and one without a verdict must not keep the others from theirs.
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	slots := make(chan struct{}, judgesMax)
	for b, since := range gone {
		if time.Since(since) < d.patient || !d.roster.Silent(b.Group, b.Instance, b.BootID, 0, time.Now()) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := d.judge(ctx, b, since); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("instance %s: %w", b.Instance, err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// judgesMax bounds the verdicts under way.
const judgesMax = 64

// lostSoonest is within which time of its death an instance is named dead without any patience: its lease, a ping,
// and the reconcilers' period.
const lostSoonest = 15 * time.Second

// errUnclearLease says that the value at an instance's key is no heartbeat: an executor can have the acknowledgement of
// a publish delivered to another one's key. A living instance writes over it within seconds. So it says nothing at
// first; where it stays, somebody keeps writing it, and after unclearMax the ping alone decides.
var errUnclearLease = errors.New("the value in the instance bucket is no heartbeat")

const unclearMax = 3 * wire.LeaseTTL

// judgedMax bounds the attempts that one verdict is about.
const judgedMax = 10_000

// judge decides about one boot that the roster does not show. An error means no verdict.
func (d *Dispatcher) judge(ctx context.Context, b domain.BoundBoot, since time.Time) error {
	for {
		runs, err := d.boundTo(ctx, b)
		if err != nil || len(runs) == 0 {
			return err
		}
		dead, successor, err := d.isDead(ctx, b, since)
		if err != nil || !dead {
			return err
		}
		ended := 0
		for part := range slices.Chunk(runs, controlBatch) {
			known := map[string]wire.Status{}
			if successor {
				reply, err := d.control(ctx, b.Group, b.Instance, wire.Control{Op: wire.OpStatus, Runs: refs(part)})
				if err != nil {
					return err
				}
				known = statuses(reply)
			}
			if !d.steady.forLong() {
				return nil // something broke while we looked
			}
			ended += d.endDead(ctx, b, part, successor, known)
		}
		if ended == 0 {
			return nil // all of it was out of date: look anew
		}
	}
}

// boundTo lists attempts that are bound to a boot, at most judgedMax.
func (d *Dispatcher) boundTo(ctx context.Context, b domain.BoundBoot) (all []domain.LiveRun, err error) {
	after := domain.NilRunID
	for len(all) < judgedMax {
		runs, err := d.store.RunsOf(ctx, b, after, controlBatch)
		if err != nil {
			return nil, err
		}
		if all = append(all, runs...); len(runs) < controlBatch {
			break
		}
		after = runs[len(runs)-1].ID
	}
	return all, nil
}

// isDead reports whether a boot that the roster does not show is dead by all evidence, and whether another boot of its instance
// lives. An error means that nothing is known.
func (d *Dispatcher) isDead(ctx context.Context, b domain.BoundBoot, since time.Time) (dead, successor bool, err error) {
	read := time.Now()
	leased, seq, err := d.readLease(ctx, b)
	if errors.Is(err, errUnclearLease) && time.Since(since) > unclearMax {
		leased, err = "", nil
	}
	if err != nil || leased == b.BootID || !d.silentBefore(ctx, b, read, seq) {
		return false, false, err
	}
	reply, err := d.control(ctx, b.Group, b.Instance, wire.Control{Op: wire.OpPing})
	if err == nil && reply.BootID == b.BootID {
		return false, false, nil // it lives, and will have a lease again
	}
	successor = err == nil
	settled, err := d.settledAll(ctx)
	return err == nil && settled, successor, err
}

// catchUpTimeout bounds how long a verdict waits for this process's watch. It has the bucket's messages within
// milliseconds; otherwise the next pass tries again.
const catchUpTimeout = time.Second

// silentBefore reports whether no heartbeat of a boot that the bucket's stream held up to seq was received in the 10 s
// before the given moment.
func (d *Dispatcher) silentBefore(ctx context.Context, b domain.BoundBoot, read time.Time, seq uint64) bool {
	for deadline := time.Now().Add(catchUpTimeout); !d.roster.CaughtUp(seq); {
		if time.Now().After(deadline) || !pause(ctx, 5*time.Millisecond) {
			return false
		}
	}
	return d.roster.Silent(b.Group, b.Instance, b.BootID, seq, read)
}

func (d *Dispatcher) endDead(ctx context.Context, b domain.BoundBoot, runs []domain.LiveRun, successor bool, known map[string]wire.Status) int {
	var ended []domain.Ended
	for _, r := range runs {
		st, said := known[r.ID.String()]
		if successor && !said {
			continue // its answer had no room for all; the rest is asked again
		}
		if st.Status == wire.StatusDone && st.Result != nil && st.Result.BootID == b.BootID {
			ended = append(ended, d.fromSpool(&r, st)...)
			continue
		}
		ended = append(ended, domain.Ended{
			RunID: r.ID, Attempt: r.Attempt, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, Outcome: domain.OutcomeFailed,
			Reason: domain.ReasonLost, Message: "instance " + b.Instance + " died", FinishedAt: d.store.Now(),
		})
	}
	d.log.WarnContext(ctx, "an instance died with runs", "group", b.Group, "instance", b.Instance, "runs", len(runs))
	return d.settleOurs(ctx, "dead_instance", ended)
}

// leasedBoot returns the boot whose lease the bucket's leader shows, "" when there is none.
func (d *Dispatcher) leasedBoot(ctx context.Context, b domain.BoundBoot) (string, error) {
	boot, _, err := d.readLease(ctx, b)
	return boot, err
}

// readLease returns the boot whose lease the bucket's leader shows, "" when there is none, and a sequence that no
// heartbeat exceeds which the stream held for the instance at that moment. It asks the stream and not a replica of the
// bucket, which may lag.
func (d *Dispatcher) readLease(ctx context.Context, b domain.BoundBoot) (boot string, seq uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	req, err := json.Marshal(map[string]string{
		"last_by_subj": wire.InstanceSubject(wire.InstanceKey(b.Group, b.Instance)),
	})
	if err != nil {
		return "", 0, err
	}
	msg, err := d.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.KV_"+wire.BucketInstances, req)
	if err != nil {
		return "", 0, err
	}
	var reply struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Seq    uint64 `json:"seq"`
			Header []byte `json:"hdrs"`
			Data   []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &reply); err != nil {
		return "", 0, fmt.Errorf("read the bucket's answer: %w", err)
	}
	switch {
	case reply.Error != nil && reply.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		// It has run out, or was purged. Asked after that, the stream's last sequence is not below that of any heartbeat before.
		s, err := d.js.Stream(ctx, "KV_"+wire.BucketInstances)
		if err != nil {
			return "", 0, err
		}
		return "", s.CachedInfo().State.LastSeq, nil
	case reply.Error != nil:
		return "", 0, reply.Error
	case reply.Message == nil:
		return "", 0, errors.New("the bucket's answer has neither a message nor an error")
	case len(reply.Message.Header) > 0 && len(reply.Message.Data) == 0:
		return "", reply.Message.Seq, nil // a goodbye
	}
	var beat wire.Heartbeat
	if err := wire.Decode(reply.Message.Data, &beat); err != nil {
		return "", reply.Message.Seq, fmt.Errorf("%w: %w", errUnclearLease, err)
	}
	return beat.BootID, reply.Message.Seq, nil
}

// settledAll reports whether the results that the stream holds now are settled within a short time.
func (d *Dispatcher) settledAll(ctx context.Context) (bool, error) {
	last, err := d.lastResult(ctx)
	if err != nil {
		return false, err
	}
	return d.settledUpTo(ctx, last)
}

// lastResult returns the sequence of the newest result in the stream.
func (d *Dispatcher) lastResult(ctx context.Context) (uint64, error) {
	s, err := d.js.Stream(ctx, wire.StreamResults)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.LastSeq, nil
}

// settledUpTo waits a little until the results up to a sequence are settled, and reports whether they are. Whoever
// settles them acknowledges them after his commit, so that a work queue without them means just that.
func (d *Dispatcher) settledUpTo(ctx context.Context, last uint64) (bool, error) {
	const tries = 20
	for range tries {
		s, err := d.js.Stream(ctx, wire.StreamResults)
		if err != nil {
			return false, err
		}
		if st := s.CachedInfo().State; st.Msgs == 0 || st.FirstSeq > last {
			return true, nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return false, nil
		}
	}
	return false, nil
}
