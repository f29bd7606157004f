package outbound

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// wireIDs caches the ids that jobs have for executors. An id never changes.
type wireIDs struct {
	source  WireIDs
	records Records
	cache   *lru.Cache[jobKey, int64]
}

type jobKey struct {
	group string
	job   domain.JobID
}

// mostIDs bounds the cache.
const mostIDs = 50_000

func newWireIDs(source WireIDs, records Records) *wireIDs {
	cache, err := lru.New[jobKey, int64](mostIDs)
	if err != nil {
		panic(err) // the size is positive
	}
	return &wireIDs{source, records, cache}
}

// of returns the wire id of a job of a group.
func (w *wireIDs) of(ctx context.Context, group string, job int64) (int64, error) {
	k := jobKey{group, domain.JobID(job)}
	if id, ok := w.cache.Get(k); ok {
		return id, nil
	}
	id, err := w.source.WireID(ctx, group, k.job)
	if err == nil {
		w.cache.Add(k, id)
	}
	return id, err
}

// read reads the wire ids of a message's jobs into the cache with one query, because a process that has just taken an address over has none of them. The method of
// reads those that are still missing.
func (w *wireIDs) read(ctx context.Context, group string, offers []wire.Offer) {
	var jobs []domain.JobID
	for i := range offers {
		if job := domain.JobID(offers[i].JobID); !w.cache.Contains(jobKey{group, job}) {
			jobs = append(jobs, job)
		}
	}
	if len(jobs) < 2 {
		return
	}
	ids, err := w.records.WireIDs(ctx, group, jobs)
	if err != nil {
		return
	}
	for job, id := range ids {
		w.cache.Add(jobKey{group, job}, id)
	}
}
