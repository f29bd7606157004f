package view

import (
	"context"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// ScriptVersions lists the versions of a job's script without their code, newest first, before the given version (0:
// starting with the newest).
func (s *Store) ScriptVersions(ctx context.Context, job domain.JobID, before, limit int) ([]domain.ScriptVersion, error) {
	rows, err := s.q.ScriptVersions(ctx, sqlcgen.ScriptVersionsParams{JobID: int64(job), BeforeVersion: int32(before), MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make([]domain.ScriptVersion, len(rows))
	for i, r := range rows {
		out[i] = domain.ScriptVersion{
			JobID: job, Version: int(r.Version), JobVersion: int(r.JobVersion), Language: r.Language, Bytes: int(r.Bytes), SHA256: r.Sha256,
			Remark: r.Remark, Author: r.CreatedBy, CreatedAt: domain.At(r.CreatedAt),
		}
	}
	return out, nil
}

// ScriptVersion returns one version of a job's script, or NotFound.
func (s *Store) ScriptVersion(ctx context.Context, job domain.JobID, version int) (domain.ScriptVersion, error) {
	r, err := s.q.ScriptVersion(ctx, sqlcgen.ScriptVersionParams{JobID: int64(job), Version: int32(version)})
	if err != nil {
		return domain.ScriptVersion{}, pgerr.Translate(err)
	}
	return domain.ScriptVersion{
		JobID: job, Version: int(r.Version), JobVersion: int(r.JobVersion), Language: r.Language, Bytes: int(r.Bytes), SHA256: r.Sha256,
		Remark: r.Remark, Author: r.CreatedBy, CreatedAt: domain.At(r.CreatedAt), Code: r.Code,
	}, nil
}
