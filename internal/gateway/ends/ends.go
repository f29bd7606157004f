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
	of map[string]*batch.Batch[[]gateway.End, struct{}] // guarded by mu; by the groups of the callers, of which there are as many as access tokens
}

// New returns a Keeper. Its Run must run, and the spool must stay open as long.
func New(s Store, sp *spool.Spool, letter DeadLetter, stored func(logIDs []int64), log *slog.Logger) *Keeper {
	return &Keeper{store: s, spool: sp, letter: letter, stored: stored, log: log, of: make(map[string]*batch.Batch[[]gateway.End, struct{}])}
}

// patience bounds a statement. Executors wait 3 s for the answer to a callback.
const patience = 2 * time.Second

// pause is the time between two attempts to store what is on disk.
const pause = time.Second

// Finish stores ends that a caller has reported for runs of groups. Each end is durable when it returns nil. What callers of the same groups report at the same time is
// stored together.
func (k *Keeper) Finish(_ context.Context, groups []string, ends []gateway.End) error {
	_, err := k.batchOf(groups).Call(ends)
	return err
}

const (
	mostBytes = 1 << 20              // the size of a batch, about
	rest      = 5 * time.Millisecond // between two statements: many runs end at the same time, and an executor does not hurry
)

func (k *Keeper) batchOf(groups []string) *batch.Batch[[]gateway.End, struct{}] {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := strings.Join(groups, " ")
	b := k.of[key]
	if b == nil {
		groups = slices.Clone(groups)
		b = batch.New(mostBytes, sizeOf, rest, func(reported [][]gateway.End) (struct{}, error) {
			return struct{}{}, k.keep(spool.Batch{Groups: groups, Ends: slices.Concat(reported...)})
		})
		k.of[key] = b
	}
	return b
}

// sizeOf returns about how many bytes ends have.
func sizeOf(ends []gateway.End) int {
	size := 0
	for i := range ends {
		size += 100 + len(ends[i].Result.Message) + len(ends[i].Result.Output)
	}
	return size
}

// keep stores a batch, on disk if Postgres cannot store it now. It continues when the callers have gone, because others may wait for the same batch.
func (k *Keeper) keep(b spool.Batch) error {
	var err error
	if k.spool.Empty() {
		if err = k.pass(context.Background(), b); err == nil {
			return nil
		}
	}
	if spoolErr := k.spool.Append(b); spoolErr != nil {
		return domain.WrapError(domain.Unavailable, "callbacks can be stored neither in Postgres nor on disk", errors.Join(err, spoolErr))
	}
	return nil
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
		err := k.spool.Replay(ctx, k.pass)
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

// pass stores a batch in Postgres. An error means that Postgres cannot store it now.
func (k *Keeper) pass(ctx context.Context, b spool.Batch) error {
	if len(b.Groups) == 0 {
		return nil
	}
	return divide.Batch(b.Ends, domain.Refused, func(part []gateway.End) error {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		got, err := k.store.Finish(limited, b.Groups, part)
		if err == nil {
			k.judge(ctx, b.Groups, part, got)
		}
		return err
	}, func(e gateway.End, err error) error {
		k.dead(ctx, b.Groups, e, err)
		return nil
	})
}

// judge acts on what became of ends.
func (k *Keeper) judge(ctx context.Context, groups []string, given []gateway.End, got []gateway.Disposition) {
	var stored []int64
	for i, d := range got {
		switch d {
		case gateway.Finished, gateway.Late:
			stored = append(stored, given[i].LogID)
		case gateway.NotSent:
			k.dead(ctx, groups, given[i], errors.New("the run was not sent to the executor under this log id"))
		case gateway.NoSend:
			k.dead(ctx, groups, given[i], fmt.Errorf("no run of the groups that use the access token has the log id %d, or it ended long ago", given[i].LogID))
		case gateway.Repeated:
		}
	}
	if len(stored) > 0 {
		k.stored(stored)
	}
}

func (k *Keeper) dead(ctx context.Context, groups []string, e gateway.End, why error) {
	data, err := json.Marshal(e)
	if err != nil {
		data = nil // numbers and texts can be encoded
	}
	k.letter(ctx, groups[0], data, why)
}
