package store

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// firstScript sets the version of a new job's script.
func firstScript(spec *domain.JobSpec) {
	if spec.Script != nil {
		spec.Script.Version = 1
	}
}

// insertScript stores a script as the next version of the job's script and sets its Version.
func insertScript(ctx context.Context, q *sqlcgen.Queries, job domain.JobID, jobVersion int, script *domain.Script, now time.Time, by string) error {
	version, err := q.InsertScript(ctx, sqlcgen.InsertScriptParams{
		JobID: int64(job), JobVersion: int32(jobVersion), Language: script.Language, Code: script.Code, Bytes: int32(len(script.Code)),
		Sha256: script.SHA256, Remark: script.Remark, Now: now, CreatedBy: by,
	})
	script.Version = int(version)
	return err
}

// encodeSpec encodes a spec as the job stores it (whole) and as its version stores it (lean): without the script's
// code, which is stored with the script's versions.
func encodeSpec(spec *domain.JobSpec) (whole, lean []byte, err error) {
	if whole, err = domain.EncodeSpec(spec); err != nil {
		return nil, nil, fmt.Errorf("write the job: %w", err)
	}
	if spec.Script == nil {
		return whole, whole, nil
	}
	bare := spec.WithoutCode()
	if lean, err = domain.EncodeSpec(&bare); err != nil {
		return nil, nil, fmt.Errorf("write the job: %w", err)
	}
	return whole, lean, nil
}

// ScriptCode returns the code of one version of a job's script, or NotFound. The code of a version never changes.
func (s *Store) ScriptCode(ctx context.Context, job domain.JobID, version int) (string, error) {
	code, err := s.q.ScriptCode(ctx, sqlcgen.ScriptCodeParams{JobID: int64(job), Version: int32(version)})
	return code, pgerr.Translate(err)
}
