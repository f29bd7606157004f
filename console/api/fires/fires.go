// Package fires is the REST API of the fire check. It explains what happened to each fire time.
package fires

import (
	"context"
	"encoding/json"
	"time"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

// API explains fire times. All fields must be set.
type API struct {
	Store Store
}

// Store explains fire times.
type Store interface {
	// Page explains fire times after a cursor, as many as possible in about a second.
	Page(ctx context.Context, scope view.FireScope, from firecheck.Cursor) (page firecheck.Page, next firecheck.Cursor, done bool, err error)
	// Why explains one instant of a job. Invalid: at is not an instant.
	Why(ctx context.Context, id domain.JobID, at string, language explain.Language) (firecheck.Why, error)
	// FireSubject returns the group of a job, also of a deleted one. NotFound: the job never existed.
	FireSubject(ctx context.Context, id domain.JobID) (group string, err error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	rest.Register(r, rest.Operation{Method: "GET", Path: "/audit/fires", Tag: "Jobs", Summary: "Explain every fire time of a span", Needs: account.Viewer,
		Description: "Recomputes the fire times from all versions of the jobs, and compares them with the runs and the missed ledgers. " +
			"Each page counts fire times by their fate, and has an item for each series of consecutive fire times whose fate is not ran. " +
			"A page covers as much as possible in about a second: continue until next_cursor is empty."}, a.audit)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/jobs/{id}/why", Tag: "Jobs", Summary: "Explain whether a job ran at an instant", Needs: account.Viewer,
		Description: "The instant need not be a fire time, and the job may be deleted."}, a.why)
}

// auditReach is the default span of a request.
const auditReach = 24 * time.Hour

type fireCheckInput struct {
	rest.Reader
	Since  domain.Instant `query:"since" doc:"Fire times that are due after this instant; default: 24 hours before until"`
	Until  domain.Instant `query:"until" doc:"Fire times that are due by this instant; default: now"`
	JobID  domain.JobID   `query:"job_id" minimum:"1"`
	Cursor string         `query:"cursor" doc:"next_cursor of the previous page; since and until must be those of its answer"`
}

// mayAsk returns nil for a job that the caller may see, also a deleted one, and NotFound for any other.
func (a *API) mayAsk(ctx context.Context, id auth.Identity, job domain.JobID) error {
	group, err := a.Store.FireSubject(ctx, job)
	if domain.CodeOf(err) == domain.NotFound {
		return domain.WrapError(domain.NotFound, visible.NoJob, err)
	}
	if err != nil {
		return err
	}
	return visible.Check(id, group, visible.NoJob)
}

func (a *API) audit(ctx context.Context, id auth.Identity, in *fireCheckInput) (*rest.Output[firecheck.Page], error) {
	scope := view.FireScope{Only: id.Only(), Job: in.JobID, Since: in.Since.Time, Until: in.Until.Time, Language: in.Language()}
	now := time.Now().UTC().Truncate(time.Millisecond)
	if scope.Until.IsZero() || scope.Until.After(now) {
		scope.Until = now // future fire times have no runs yet
	}
	if scope.Since.IsZero() {
		scope.Since = scope.Until.Add(-auditReach)
	}
	var f domain.Faults
	if !scope.Since.Before(scope.Until) {
		f.Add("since", "must be before until and in the past")
	}
	if err := f.Err("the request is not valid"); err != nil {
		return nil, err
	}
	if in.JobID != 0 {
		if err := a.mayAsk(ctx, id, in.JobID); domain.CodeOf(err) == domain.NotFound && err != nil {
			return nil, problem.Invalid("job_id", visible.NoJob)
		} else if err != nil {
			return nil, err
		}
	}
	from, err := decodeFireCursor(in.Cursor)
	if err != nil {
		return nil, err
	}
	page, next, done, err := a.Store.Page(ctx, scope, from)
	if err == nil && !done {
		page.Next = encodeFireCursor(next)
	}
	return rest.Answer(page), err
}

func encodeFireCursor(c firecheck.Cursor) string {
	b, _ := json.Marshal(fireCursor{c.Job, domain.AtPtr(c.Due)}) // numbers and instants can be encoded
	return rest.EncodeCursor("fires", string(b))
}

type fireCursor struct {
	Job domain.JobID    `json:"job"`
	Due *domain.Instant `json:"due,omitempty"`
}

func decodeFireCursor(cursor string) (firecheck.Cursor, error) {
	key, err := rest.DecodeCursor("fires", cursor)
	if err != nil || key == "" {
		return firecheck.Cursor{}, err
	}
	var c fireCursor
	if err := json.Unmarshal([]byte(key), &c); err != nil || c.Job < 1 {
		return firecheck.Cursor{}, rest.BadCursor()
	}
	out := firecheck.Cursor{Job: c.Job}
	if c.Due != nil {
		out.Due = c.Due.Time
	}
	return out, nil
}

func (a *API) why(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.Reader
	At string `query:"at" required:"true" maxLength:"64" doc:"RFC 3339, or a local time in the job's zone such as 2026-03-29T02:30"`
}) (*rest.Output[firecheck.Why], error) {
	if err := a.mayAsk(ctx, id, in.ID); err != nil {
		return nil, err
	}
	w, err := a.Store.Why(ctx, in.ID, in.At, in.Language())
	return rest.Answer(w), err
}
