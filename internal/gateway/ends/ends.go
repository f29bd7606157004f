// Package ends stores the ends of runs that executors report.
//
// An end is durable when Finish returns: in Postgres, or on disk while Postgres is away. While there are ends on disk, later ones go to disk as well, because the first
// end of a run counts. They are stored in Postgres when it is back.
//
// Ends that belong to no run, and those whose values Postgres refuses, become dead letters. One such end does not stop the others of its batch.
package ends

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/dispatcher/divide"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/batch"
	"github.com/belfryhq/belfry/internal/gateway/spool"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

// Store stores ends. *gateway.Store documents the method.
type Store interface {
	Finish(ctx context.Context, groups []string, ends []gateway.End) ([]gateway.Disposition, error)
}

// DeadLetter keeps data that cannot be used for people. group is one of those for which the caller may speak.
type DeadLetter func(ctx context.Context, group string, data []byte, reason error)

// Keeper stores ends. It is safe for concurrent use.
type Keeper struct {
	store  Store
	spool  *spool.Spool
	letter DeadLetter
	// stored is called with the log ids whose results are now in Postgres, so that they are published soon.
	stored func(logIDs []int64)
	log    *slog.Logger

	mu sync.Mutex
	of map[string]*batch.Batch[*report, struct{}] // guarded by mu; by the groups of the callers, of which there are as many as access tokens
}

// report is what a caller reports, and which of these ends cannot be used.
type report struct {
	ends []gateway.End
	dead []deadEnd
}

// deadEnd is an end that cannot be used: its place in the report or batch, and the reason.
type deadEnd struct {
	place int
	why   error
}

// New returns a Keeper. Its Run must run, and the spool must stay open as long.
func New(s Store, sp *spool.Spool, letter DeadLetter, stored func(logIDs []int64), log *slog.Logger) *Keeper {
	return &Keeper{store: s, spool: sp, letter: letter, stored: stored, log: log, of: make(map[string]*batch.Batch[*report, struct{}])}
}

// patience bounds a statement. Executors wait 3 s for the answer to a callback.
const patience = 2 * time.Second

// pause is the time between two attempts to store what is on disk.
const pause = time.Second

// Finish stores ends that a caller has reported for runs of groups. Each end is durable when it returns nil. Reports for the same groups that come at the same time are
// stored together, but no caller waits for the dead letters of another one.
func (k *Keeper) Finish(ctx context.Context, groups []string, ends []gateway.End) error {
	r := &report{ends: ends}
	if len(ends) == 0 {
		return nil
	}
	_, err := k.batchOf(groups).Call(r)
	k.bury(ctx, groups, ends, r.dead)
	return err
}

const (
	mostBytes = 1 << 20               // the size of a batch, about
	rest      = 15 * time.Millisecond // between two statements: many runs end at the same time, and an executor does not hurry
)

func (k *Keeper) batchOf(groups []string) *batch.Batch[*report, struct{}] {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := strings.Join(groups, " ")
	b := k.of[key]
	if b == nil {
		groups = slices.Clone(groups)
		b = batch.New(mostBytes, sizeOf, rest, func(reports []*report) (struct{}, error) { return struct{}{}, k.keep(groups, reports) })
		k.of[key] = b
	}
	return b
}

// sizeOf returns about how many bytes a report has.
func sizeOf(r *report) int {
	size := 0
	for i := range r.ends {
		size += 100 + len(r.ends[i].Result.Message) + len(r.ends[i].Result.Output)
	}
	return size
}

// keep stores reports, on disk if Postgres cannot store them now. It continues when the callers have gone, because others may wait for the same batch.
func (k *Keeper) keep(groups []string, reports []*report) error {
	b := spool.Batch{Groups: groups}
	for _, r := range reports {
		b.Ends = append(b.Ends, r.ends...)
	}
	var err error
	if k.spool.Empty() {
		var dead []deadEnd
		if dead, err = k.pass(context.Background(), b); err == nil {
			share(reports, dead)
			return nil
		}
	}
	if spoolErr := k.spool.Append(b); spoolErr != nil {
		return domain.WrapError(domain.Unavailable, "callbacks can be stored neither in Postgres nor on disk", errors.Join(err, spoolErr))
	}
	return nil
}

// share tells reports which of their ends are dead. The places count through all reports.
func share(reports []*report, dead []deadEnd) {
	for _, d := range dead {
		for _, r := range reports {
			if d.place < len(r.ends) {
				r.dead = append(r.dead, d)
				break
			}
			d.place -= len(r.ends)
		}
	}
}

// Unusable keeps a callback that cannot be read as a dead letter.
func (k *Keeper) Unusable(ctx context.Context, groups []string, item []byte, why error) {
	k.letter(ctx, groups[0], item, why)
}

// Run stores what is on disk, whenever Postgres is available, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	waiting := false
	for {
		err := k.spool.Replay(ctx, k.replay)
		switch {
		case err != nil && !waiting && ctx.Err() == nil:
			k.log.WarnContext(ctx, "cannot store callbacks, keeping them on disk", "err", err)
		case err == nil && waiting:
			k.log.InfoContext(ctx, "the callbacks on disk are stored")
		}
		waiting = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// replay stores a batch that was on disk.
func (k *Keeper) replay(ctx context.Context, b spool.Batch) error {
	if len(b.Groups) == 0 || len(b.Ends) == 0 {
		return nil
	}
	dead, err := k.pass(ctx, b)
	if err == nil {
		k.bury(ctx, b.Groups, b.Ends, dead)
	}
	return err
}

// pass stores a batch in Postgres, and returns which of its ends cannot be used. An error means that Postgres cannot store it now.
func (k *Keeper) pass(ctx context.Context, b spool.Batch) (dead []deadEnd, err error) {
	places := make([]int, len(b.Ends))
	for i := range places {
		places[i] = i
	}
	err = divide.Batch(places, domain.Refused, func(part []int) error {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		got, err := k.store.Finish(limited, b.Groups, b.Ends[part[0]:part[len(part)-1]+1])
		if err == nil {
			dead = append(dead, k.judge(b.Ends, part, got)...)
		}
		return err
	}, func(place int, err error) error {
		dead = append(dead, deadEnd{place, err})
		return nil
	})
	return dead, err
}

// judge tells which ends at places are stored, and returns those that cannot be used.
func (k *Keeper) judge(ends []gateway.End, places []int, got []gateway.Disposition) (dead []deadEnd) {
	var stored []int64
	for i, d := range got {
		id := ends[places[i]].LogID
		switch d {
		case gateway.Finished, gateway.Late:
			stored = append(stored, id)
		case gateway.NotSent:
			dead = append(dead, deadEnd{places[i], errors.New("the run was not sent to the executor under this log id")})
		case gateway.NoSend:
			dead = append(dead, deadEnd{places[i], fmt.Errorf("no run of the groups that use the access token has the log id %d, or it ended long ago", id)})
		case gateway.Repeated:
		}
	}
	if len(stored) > 0 {
		k.stored(stored)
	}
	return dead
}

// bury keeps the dead ones of the ends as dead letters.
func (k *Keeper) bury(ctx context.Context, groups []string, ends []gateway.End, dead []deadEnd) {
	for _, d := range dead {
		data, err := json.Marshal(ends[d.place])
		if err != nil {
			data = nil // numbers and texts can be encoded
		}
		k.letter(ctx, groups[0], data, d.why)
	}
}
