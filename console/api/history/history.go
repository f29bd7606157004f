// Package history is the REST API of the audit log, for admins.
package history

import (
	"context"
	"encoding/json"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/auditlog"
)

// API serves the audit log. All fields must be set.
type API struct {
	Store Store
}

// Store reads the audit log.
type Store interface {
	Audit(ctx context.Context, f auditlog.Filter, limit int) ([]auditlog.Change, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Users and tokens"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/audit", Tag: tag, Summary: "List changes, newest first", Needs: account.Admin}, a.list)
}

type change struct {
	ID     int64           `json:"id"`
	At     domain.Instant  `json:"at"`
	Actor  string          `json:"actor"`
	Remote string          `json:"remote" doc:"The client's address"`
	Action string          `json:"action" example:"job.update"`
	Object string          `json:"object" example:"job/7"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

type auditInput struct {
	rest.List
	Object string `query:"object" doc:"The changed resource, such as job/7"`
	Actor  string `query:"actor"`
	Action string `query:"action" doc:"The kind of change, such as job.update"`
}

func (a *API) list(ctx context.Context, _ auth.Identity, in *auditInput) (*rest.Output[rest.Page[change]], error) {
	before, err := rest.DecodeNumberCursor("audit", in.Cursor)
	if err != nil {
		return nil, err
	}
	f := auditlog.Filter{Object: in.Object, Actor: in.Actor, Action: in.Action, Before: before}
	rows, err := a.Store.Audit(ctx, f, in.Limit+1)
	if err != nil {
		return nil, err
	}
	items := rest.Each(rows, func(c auditlog.Change) change {
		return change{c.ID, domain.At(c.At), c.Actor, c.Remote, c.Action, c.Object, orNull(c.Before), orNull(c.After)}
	})
	return rest.Answer(rest.Cut(items, in.Limit, func(c change) string { return rest.NumberCursor("audit", c.ID) })), nil
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}
