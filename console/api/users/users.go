// Package users is the REST API of users, for admins.
//
// Changes of users need a session. Otherwise an attacker with a leaked API token of an admin could change passwords or create
// another admin, and keep these rights after the token is deleted.
package users

import (
	"context"
	"fmt"
	"slices"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// API serves users. All fields must be set.
type API struct {
	Store    Store
	Sessions Sessions
	Groups   Groups
	Audit    *rest.Audit
}

// Store keeps users. Conflict: the name is taken, or the last admin would lose that role.
type Store interface {
	Users(ctx context.Context, after int64, limit int) ([]account.User, error)
	CreateUser(ctx context.Context, n account.NewUser) (account.User, error)
	User(ctx context.Context, name string) (account.User, error)
	EditUser(ctx context.Context, name, password string, edit func(*account.User)) (before, after account.User, err error)
	DeleteUser(ctx context.Context, name string) (account.User, error)
}

// Groups lists groups by name.
type Groups interface {
	Groups(ctx context.Context, only []string, after string, limit int) ([]domain.Group, error)
}

// Sessions ends the sessions of a user.
type Sessions interface {
	LogOutEverywhere(ctx context.Context, userID int64) (int64, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Users and tokens"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/users", Tag: tag, Summary: "List users", Needs: account.Admin}, a.list)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/users", Tag: tag, Summary: "Create a user", Needs: account.Admin, LogIn: true,
		Status: 201, Body: rest.BodyOf[userBody]()}, a.create)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/users/{username}", Tag: tag, Summary: "Show a user", Needs: account.Admin}, a.show)
	rest.Register(r, rest.Operation{Method: "PATCH", Path: "/users/{username}", Tag: tag, Summary: "Change a user", Needs: account.Admin, LogIn: true,
		Description: "Absent fields stay as they are. A new role or password ends the user's sessions. The last admin cannot be disabled or get another role (409).",
		Body:        rest.BodyOf[userChange]()}, a.change)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/users/{username}/logout", Tag: tag, Summary: "Log a user out everywhere", Needs: account.Admin, LogIn: true,
		Description: "Ends all sessions of the user at once. API tokens stay valid."}, a.logOut)
	rest.Register(r, rest.Operation{Method: "DELETE", Path: "/users/{username}", Tag: tag, Summary: "Delete a user", Needs: account.Admin, LogIn: true,
		Description: "This ends the user's sessions and deletes the user's tokens. The last admin cannot be deleted (409)."}, a.remove)
}

// User is a user as the API shows it.
type User struct {
	ID                 int64          `json:"id"`
	Username           string         `json:"username"`
	Kind               account.Kind   `json:"kind" enum:"local,oidc" doc:"local: a user with a password in Belfry. oidc: a user of the identity provider, which defines the role and the groups"`
	Role               account.Role   `json:"role" enum:"admin,operator,viewer"`
	Groups             []string       `json:"groups" nullable:"false"`
	Disabled           bool           `json:"disabled"`
	MustChangePassword bool           `json:"must_change_password" doc:"Whether the user must change the password before doing anything else"`
	CreatedAt          domain.Instant `json:"created_at"`
}

type userBody struct {
	Username           string       `json:"username"`
	Password           string       `json:"password" format:"password" doc:"At least 10 characters"`
	Role               account.Role `json:"role" enum:"admin,operator,viewer"`
	Groups             []string     `json:"groups,omitempty" doc:"For operators and viewers: the groups that they may see"`
	MustChangePassword bool         `json:"must_change_password,omitempty" doc:"Whether the user must change the password at the first log-in"`
}

type userChange struct {
	Role               *account.Role `json:"role,omitempty" enum:"admin,operator,viewer"`
	Groups             *[]string     `json:"groups,omitempty" doc:"For operators and viewers: the groups that they may see"`
	Disabled           *bool         `json:"disabled,omitempty" doc:"A disabled user cannot log in, and the user's tokens do not work"`
	Password           *string       `json:"password,omitempty" format:"password" doc:"At least 10 characters; ends the user's sessions"`
	MustChangePassword *bool         `json:"must_change_password,omitempty" doc:"Whether the user must change the password before doing anything else"`
}

// UserPath names a user in the path.
type UserPath struct {
	Username string `path:"username"`
}

func (a *API) list(ctx context.Context, _ auth.Identity, in *struct{ rest.List }) (*rest.Output[rest.Page[User]], error) {
	after, err := rest.DecodeNumberCursor("user", in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := a.Store.Users(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return rest.Answer(rest.Cut(rest.Each(rows, Of), in.Limit, func(u User) string { return rest.NumberCursor("user", u.ID) })), nil
}

func (a *API) show(ctx context.Context, _ auth.Identity, in *UserPath) (*rest.Output[User], error) {
	u, err := a.Store.User(ctx, in.Username)
	return rest.Answer(Of(u)), err
}

func (a *API) create(ctx context.Context, id auth.Identity, in *struct{ rest.JSONBody }) (*rest.Output[User], error) {
	var b userBody
	shape := in.Decode(&b)
	var f domain.Faults
	if !domain.ValidGroupName(b.Username) {
		f.Add("username", "must be 1 to 63 characters, a-z, 0-9, _ or -, and start with a letter or digit")
	}
	f.AddAll("password", account.CheckPassword("password", b.Username, b.Password))
	if !b.Role.AtLeast(account.Viewer) {
		f.Add("role", "must be one of admin, operator, viewer")
	}
	CheckGroups(&f, b.Groups)
	if b.Role == account.Admin && len(b.Groups) > 0 {
		f.Add("groups", adminGroups)
	}
	if err := strict.AlsoFaulty(shape, f.Err("the user is not valid")); err != nil {
		return nil, err
	}
	if err := CheckGroupsExist(ctx, a.Groups, b.Groups, nil); err != nil {
		return nil, err
	}
	u, err := a.Store.CreateUser(ctx, account.NewUser{Name: b.Username, Password: b.Password, Role: b.Role, Groups: b.Groups,
		MustChangePassword: b.MustChangePassword})
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "user.create", "user/"+u.Name, nil, Of(u))
	return rest.Answer(Of(u)), nil
}

func (a *API) change(ctx context.Context, id auth.Identity, in *struct {
	UserPath
	rest.JSONBody
}) (*rest.Output[User], error) {
	present, err := a.Store.User(ctx, in.Username)
	if err != nil {
		return nil, err
	}
	var b userChange
	shape := in.Decode(&b)
	if err := strict.AlsoFaulty(shape, b.check(present)); err != nil {
		return nil, err
	}
	if b.Groups != nil {
		if err := CheckGroupsExist(ctx, a.Groups, *b.Groups, present.Groups); err != nil {
			return nil, err
		}
	}
	password := ""
	if b.Password != nil {
		password = *b.Password
	}
	before, after, err := a.Store.EditUser(ctx, in.Username, password, b.apply)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "user.update", "user/"+after.Name, Of(before), changedUser{Of(after), password != ""})
	return rest.Answer(Of(after)), nil
}

// changedUser is the form of a changed user in the audit log, without the password.
type changedUser struct {
	User
	PasswordChanged bool `json:"password_changed"`
}

// adminGroups is the error text for an admin with groups.
const adminGroups = "have no effect on an admin; leave them out, or use the role operator"

func (b *userChange) check(present account.User) error {
	var f domain.Faults
	role := present.Role
	if b.Role != nil {
		role = *b.Role
	}
	if role == account.Admin && b.Groups != nil && len(*b.Groups) > 0 {
		f.Add("groups", adminGroups)
	}
	if b.Role != nil && !slices.Contains(account.Roles, *b.Role) {
		f.Add("role", "must be one of admin, operator, viewer")
	}
	if b.Groups != nil {
		CheckGroups(&f, *b.Groups)
	}
	if b.Password != nil {
		f.AddAll("password", account.CheckPassword("password", present.Name, *b.Password))
	}
	return f.Err("the user is not valid")
}

func (b *userChange) apply(u *account.User) {
	if b.Role != nil {
		u.Role = *b.Role
	}
	if b.Groups != nil {
		u.Groups = *b.Groups
	}
	if u.Role == account.Admin && u.Kind == account.Local { // an operator who becomes admin is not confined any more
		u.Groups = nil
	}
	if b.Disabled != nil {
		u.Disabled = *b.Disabled
	}
	if b.MustChangePassword != nil {
		u.MustChangePassword = *b.MustChangePassword
	}
}

func (a *API) logOut(ctx context.Context, id auth.Identity, in *UserPath) (*struct{}, error) {
	u, err := a.Store.User(ctx, in.Username)
	if err != nil {
		return nil, err
	}
	return nil, EndSessions(ctx, a.Sessions, a.Audit, id, u.ID, u.Name)
}

func (a *API) remove(ctx context.Context, id auth.Identity, in *UserPath) (*struct{}, error) {
	u, err := a.Store.DeleteUser(ctx, in.Username)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "user.delete", "user/"+u.Name, Of(u), nil)
	return nil, nil
}

// Of returns a user as the API shows it.
func Of(u account.User) User {
	return User{ID: u.ID, Username: u.Name, Kind: u.Kind, Role: u.Role, Groups: append([]string{}, u.Groups...), Disabled: u.Disabled,
		MustChangePassword: u.MustChangePassword, CreatedAt: domain.At(u.CreatedAt)}
}

// CheckGroups adds a fault for each invalid group name, and for too many names.
func CheckGroups(f *domain.Faults, groups []string) {
	for i, g := range groups {
		if !domain.ValidGroupName(g) {
			f.Add(fmt.Sprintf("groups[%d]", i), domain.GroupNameRule)
		}
	}
	if len(groups) > 100 {
		f.Add("groups", "at most 100 are allowed")
	}
}

// CheckGroupsExist refuses groups that do not exist. It accepts the groups in has, which the user or the caller already has,
// because they existed once.
func CheckGroupsExist(ctx context.Context, store Groups, groups, has []string) error {
	asked := slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return slices.Contains(has, g) })
	if len(asked) == 0 {
		return nil
	}
	found, err := store.Groups(ctx, asked, "", len(asked))
	if err != nil {
		return err
	}
	var f domain.Faults
	for i, g := range groups {
		known := slices.ContainsFunc(found, func(k domain.Group) bool { return k.Name == g })
		if !known && !slices.Contains(has, g) {
			f.Add(fmt.Sprintf("groups[%d]", i), fmt.Sprintf("there is no group %q", g))
		}
	}
	return f.Err("some groups do not exist")
}

// EndSessions ends all sessions of a user.
func EndSessions(ctx context.Context, store Sessions, audit *rest.Audit, id auth.Identity, userID int64, name string) error {
	n, err := store.LogOutEverywhere(ctx, userID)
	if err == nil {
		audit.Record(ctx, id, "auth.logout_everywhere", "user/"+name, nil, map[string]int64{"sessions": n})
	}
	return err
}
