package outbound

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/belfryhq/belfry/internal/domain"
)

// wireIDs caches the ids that jobs have for executors. An id never changes.
type wireIDs struct {
	source WireIDs
	cache  *lru.Cache[jobKey, int64]
}

type jobKey struct {
	group string
	job   domain.JobID
}

// mostIDs bounds the cache.
const mostIDs = 50_000

func newWireIDs(source WireIDs) *wireIDs {
	cache, err := lru.New[jobKey, int64](mostIDs)
	if err != nil {
		panic(err) // the size is positive
	}
	return &wireIDs{source, cache}
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
