package client

import (
	"context"
	"encoding/json"

	"github.com/belfryhq/belfry/internal/domain"
)

// Change is an entry of the change log. Before and After are null if the object did not exist.
type Change struct {
	ID     int64           `json:"id"`
	At     domain.Instant  `json:"at"`
	Actor  string          `json:"actor"`
	Remote string          `json:"remote"`
	Action string          `json:"action"`
	Object string          `json:"object"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

// ChangeFilter selects changes; an empty field selects all.
type ChangeFilter struct{ Object, Actor, Action string }

// Changes lists up to most changes, newest first.
func (c *Client) Changes(ctx context.Context, f ChangeFilter, most int) ([]Change, error) {
	return list[Change](ctx, c, "/audit", values("object", f.Object, "actor", f.Actor, "action", f.Action), most)
}
