package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

type versionKey struct {
	job     domain.JobID
	version int
}

// definition is a job version and its schedule, which is compiled on first use.
type definition struct {
	engine.Definition
	validFrom time.Time // when it was saved
	once      sync.Once
	schedule  *schedule.Schedule
	err       error
}

func (s *Store) compiled(d *definition) (*schedule.Schedule, error) {
	d.once.Do(func() {
		d.schedule, d.err = schedule.Compile(d.Schedule, schedule.Options{DefaultZone: s.zone, CreatedAt: d.CreatedAt})
	})
	return d.schedule, d.err
}

// Definitions returns the given versions of jobs. Versions never change, so they are kept in a bounded cache. Versions
// that do not exist are missing in the result.
func (s *Store) Definitions(ctx context.Context, runs []engine.Due) (engine.Definitions, error) {
	out := make(engine.Definitions, len(runs))
	var missing []versionKey
	for i := range runs {
		k := engine.VersionKey{Job: runs[i].JobID, Version: runs[i].JobVersion}
		if _, known := out[k]; known {
			continue
		}
		if d, ok := s.definitions.Get(versionKey{k.Job, k.Version}); ok {
			out[k] = &d.Definition
		} else {
			missing = append(missing, versionKey{k.Job, k.Version})
		}
	}
	if len(missing) == 0 {
		return out, nil
	}
	defs, err := s.load(ctx, s.q, missing)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	for k, d := range defs {
		out[engine.VersionKey{Job: k.job, Version: k.version}] = &d.Definition
	}
	return out, nil
}

// Definition returns one version of a job, or NotFound.
func (s *Store) Definition(ctx context.Context, job domain.JobID, version int) (*engine.Definition, error) {
	d, err := s.one(ctx, s.q, versionKey{job, version})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	return &d.Definition, nil
}

func (s *Store) one(ctx context.Context, q *sqlcgen.Queries, k versionKey) (*definition, error) {
	defs, err := s.load(ctx, q, []versionKey{k})
	if err != nil {
		return nil, err
	}
	d := defs[k]
	if d == nil {
		return nil, domain.NewError(domain.NotFound, fmt.Sprintf("job %d has no version %d", k.job, k.version))
	}
	return d, nil
}

// load reads definitions through the cache. Its errors are not translated.
func (s *Store) load(ctx context.Context, q *sqlcgen.Queries, keys []versionKey) (map[versionKey]*definition, error) {
	out := make(map[versionKey]*definition, len(keys))
	var ids []int64
	var versions []int32
	for _, k := range keys {
		if _, seen := out[k]; seen {
			continue
		}
		if d, ok := s.definitions.Get(k); ok {
			out[k] = d
			continue
		}
		out[k] = nil // requested once
		ids = append(ids, int64(k.job))
		versions = append(versions, int32(k.version))
	}
	if len(ids) == 0 {
		return out, nil
	}
	rows, err := q.Definitions(ctx, sqlcgen.DefinitionsParams{JobIds: ids, Versions: versions})
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		k := versionKey{domain.JobID(r.JobID), int(r.Version)}
		d := newDefinition(k, r.Spec, r.CreatedAt)
		d.validFrom = r.ValidFrom
		s.definitions.Add(k, d)
		out[k] = d
	}
	for k, d := range out {
		if d == nil {
			delete(out, k)
		}
	}
	return out, nil
}

// newDefinition decodes a version. After manual SQL or a downgrade, a version may be unreadable. It must not stop the
// other jobs of its batch, so it gets no schedule, and compiled returns the error.
func newDefinition(k versionKey, spec []byte, createdAt time.Time) *definition {
	d := &definition{Definition: engine.Definition{JobID: k.job, Version: k.version, CreatedAt: createdAt.UTC()}}
	d.JobSpec = domain.DefaultJobSpec()
	if err := domain.DecodeSpec(spec, &d.JobSpec); err != nil {
		d.once.Do(func() { d.err = fmt.Errorf("read version %d of job %d: %w", k.version, k.job, err) })
	}
	return d
}
