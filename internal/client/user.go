package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belfryhq/belfry/internal/domain"
)

// User is an account that can log in.
type User struct {
	ID                 int64          `json:"id"`
	Username           string         `json:"username"`
	Kind               string         `json:"kind"` // local or oidc
	Role               string         `json:"role"`
	Groups             []string       `json:"groups"`
	Disabled           bool           `json:"disabled"`
	MustChangePassword bool           `json:"must_change_password"`
	CreatedAt          domain.Instant `json:"created_at"`
}

// NewUser is the input of CreateUser.
type NewUser struct {
	Username string   `json:"username"`
	Password string   `json:"password"`
	Role     string   `json:"role"`
	Groups   []string `json:"groups,omitempty"`
	// MustChangePassword requires a new password at the first log-in.
	MustChangePassword bool `json:"must_change_password,omitempty"`
}

// UserChange holds the changes of a user. Nil fields stay unchanged.
type UserChange struct {
	Role     *string   `json:"role,omitempty"`
	Groups   *[]string `json:"groups,omitempty"`
	Disabled *bool     `json:"disabled,omitempty"`
	Password *string   `json:"password,omitempty"`
	// MustChangePassword refuses all other requests of the user until the password is changed.
	MustChangePassword *bool `json:"must_change_password,omitempty"`
}

func userPath(name string) string { return "/users/" + url.PathEscape(name) }

// Users lists up to most users.
func (c *Client) Users(ctx context.Context, most int) ([]User, error) {
	return list[User](ctx, c, "/users", nil, most)
}

// CreateUser creates a user.
func (c *Client) CreateUser(ctx context.Context, u NewUser) (User, error) {
	return answer[User](ctx, c, http.MethodPost, "/users", nil, u)
}

// ChangeUser changes a user.
func (c *Client) ChangeUser(ctx context.Context, name string, change UserChange) (User, error) {
	return answer[User](ctx, c, http.MethodPatch, userPath(name), nil, change)
}

// LogUserOut ends all log-ins of a user.
func (c *Client) LogUserOut(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodPost, userPath(name)+"/logout", nil, nil, nil)
}

// ChangePassword changes the caller's own password, ends all log-ins of the caller, and returns a new one. The client keeps its
// old token, which is no longer valid.
func (c *Client) ChangePassword(ctx context.Context, current, next string) (Session, error) {
	return answer[Session](ctx, c, http.MethodPost, "/auth/password", nil, map[string]string{"current_password": current, "new_password": next})
}

// LogOut ends the log-in of the client's token, or all log-ins of its user.
func (c *Client) LogOut(ctx context.Context, everywhere bool) error {
	path := "/auth/logout"
	if everywhere {
		path = "/auth/logout-everywhere"
	}
	return c.call(ctx, http.MethodPost, path, nil, nil, nil)
}

// DeleteUser deletes a user, with all log-ins and tokens.
func (c *Client) DeleteUser(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, userPath(name), nil, nil, nil)
}
