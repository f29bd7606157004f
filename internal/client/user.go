package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belfryhq/belfry/internal/domain"
)

// User is somebody who can log in.
type User struct {
	ID        int64          `json:"id"`
	Username  string         `json:"username"`
	Role      string         `json:"role"`
	Groups    []string       `json:"groups"`
	Disabled  bool           `json:"disabled"`
	CreatedAt domain.Instant `json:"created_at"`
}

// NewUser is what a user is made of.
type NewUser struct {
	Username string   `json:"username"`
	Password string   `json:"password"`
	Role     string   `json:"role"`
	Groups   []string `json:"groups,omitempty"`
}

// UserChange is what is to change of a user; nil fields stay.
type UserChange struct {
	Role     *string   `json:"role,omitempty"`
	Groups   *[]string `json:"groups,omitempty"`
	Disabled *bool     `json:"disabled,omitempty"`
	Password *string   `json:"password,omitempty"`
}

func userPath(name string) string { return "/users/" + url.PathEscape(name) }

// Users lists up to most users.
func (c *Client) Users(ctx context.Context, most int) ([]User, error) {
	return list[User](ctx, c, "/users", nil, most)
}

// CreateUser makes a user.
func (c *Client) CreateUser(ctx context.Context, u NewUser) (User, error) {
	return answer[User](ctx, c, http.MethodPost, "/users", nil, u)
}

// ChangeUser changes a user.
func (c *Client) ChangeUser(ctx context.Context, name string, change UserChange) (User, error) {
	return answer[User](ctx, c, http.MethodPatch, userPath(name), nil, change)
}

// DeleteUser deletes a user, with all log-ins and tokens.
func (c *Client) DeleteUser(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, userPath(name), nil, nil, nil)
}
