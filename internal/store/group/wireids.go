package group

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/group/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// WireIDs lists the wire ids of a group in ascending order, starting after the given one.
func (s *Store) WireIDs(ctx context.Context, group string, after int64, limit int) ([]domain.WireID, error) {
	rows, err := s.q.WireIDs(ctx, sqlcgen.WireIDsParams{GroupName: group, After: after, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make([]domain.WireID, len(rows))
	for i, r := range rows {
		out[i] = domain.WireID{WireID: r.WireID, JobID: domain.JobID(r.JobID), JobDeleted: r.JobDeleted, Source: r.Source, Imported: json.RawMessage(r.Imported)}
	}
	return out, nil
}

// SetWireID gives a wire id of the group to a job, or changes what is known of its import. Conflict: the id belongs to another job, or the
// job has another id. The id of a deleted job is free.
func (s *Store) SetWireID(ctx context.Context, group string, w domain.WireID) error {
	n, err := s.q.SetWireID(ctx, sqlcgen.SetWireIDParams{GroupName: group, WireID: w.WireID, JobID: int64(w.JobID), Source: w.Source, Imported: w.Imported})
	if err != nil || n > 0 {
		return pgerr.Translate(err)
	}
	holder, err := s.q.WireIDHolder(ctx, sqlcgen.WireIDHolderParams{GroupName: group, WireID: w.WireID})
	if err != nil {
		return pgerr.Translate(err)
	}
	text := fmt.Sprintf("wire id %d of the group belongs to job %d", w.WireID, holder.JobID)
	if holder.Source != "" {
		text += ", which was imported from " + holder.Source
	}
	return domain.NewError(domain.Conflict, text)
}

// WireID returns the wire id of a job. A job without one gets the next free id from 10^9.
func (s *Store) WireID(ctx context.Context, group string, job domain.JobID) (int64, error) {
	id, err := s.q.WireID(ctx, sqlcgen.WireIDParams{GroupName: group, JobID: int64(job)})
	if err = pgerr.Translate(err); err == nil || domain.CodeOf(err) != domain.NotFound {
		return id, err
	}
	if err := s.q.AssignWireID(ctx, sqlcgen.AssignWireIDParams{GroupName: group, JobID: int64(job)}); err != nil {
		return 0, pgerr.Translate(err)
	}
	id, err = s.q.WireID(ctx, sqlcgen.WireIDParams{GroupName: group, JobID: int64(job)})
	return id, pgerr.Translate(err)
}
