package api

import (
	"context"
	"slices"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

type userChange struct {
	Role               *account.Role `json:"role,omitempty" enum:"admin,operator,viewer"`
	Groups             *[]string     `json:"groups,omitempty" doc:"Of operators and viewers"`
	Disabled           *bool         `json:"disabled,omitempty" doc:"Who is disabled cannot log in, and has no use of tokens"`
	Password           *string       `json:"password,omitempty" format:"password" doc:"At least 10 characters; ends the user's log-ins"`
	MustChangePassword *bool         `json:"must_change_password,omitempty" doc:"Make the user change the password before anything else is done with a log-in"`
}

// UserPath names a user in the path.
type UserPath struct {
	Username string `path:"username"`
}

func (a *API) registerUserChanges() {
	const tag = "Users and tokens"
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/users/{username}", Tag: tag, Summary: "Show a user", Needs: account.Admin}, a.user)
	rest.Register(a.rest, rest.Operation{Method: "PATCH", Path: "/users/{username}", Tag: tag, Summary: "Change a user", Needs: account.Admin,
		Description: "Absent fields stay. Another role or password ends the user's log-ins. The last admin cannot be disabled or made less (409).",
		Body:        rest.BodyOf[userChange]()}, a.changeUser)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/users/{username}/logout", Tag: tag, Summary: "Log a user out everywhere", Needs: account.Admin,
		Description: "Ends all log-ins of the user at once. API tokens stay."}, a.logUserOut)
	rest.Register(a.rest, rest.Operation{Method: "DELETE", Path: "/users/{username}", Tag: tag, Summary: "Delete a user", Needs: account.Admin,
		Description: "With all log-ins and tokens. The last admin cannot be deleted (409)."}, a.deleteUser)
}

func (a *API) user(ctx context.Context, _ auth.Identity, in *UserPath) (*rest.Output[user], error) {
	u, err := a.Accounts.User(ctx, in.Username)
	return rest.Answer(toUser(u)), err
}

func (a *API) changeUser(ctx context.Context, id auth.Identity, in *struct {
	UserPath
	rest.JSONBody
}) (*rest.Output[user], error) {
	present, err := a.Accounts.User(ctx, in.Username)
	if err != nil {
		return nil, err
	}
	var b userChange
	shape := in.Decode(&b)
	if err := strict.AlsoFaulty(shape, b.check()); err != nil {
		return nil, err
	}
	if b.Groups != nil {
		if err := a.checkGroupsExist(ctx, *b.Groups, present.Groups); err != nil {
			return nil, err
		}
	}
	password := ""
	if b.Password != nil {
		password = *b.Password
	}
	before, after, err := a.Accounts.EditUser(ctx, in.Username, password, b.apply)
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "user.update", "user/"+after.Name, toUser(before), changedUser{toUser(after), password != ""})
	return rest.Answer(toUser(after)), nil
}

// changedUser is what the audit log says of a change; the password itself is nowhere.
type changedUser struct {
	user
	PasswordChanged bool `json:"password_changed"`
}

func (b *userChange) check() error {
	var f domain.Faults
	if b.Role != nil && !slices.Contains(account.Roles, *b.Role) {
		f.Add("role", "must be one of admin, operator, viewer")
	}
	if b.Groups != nil {
		checkGroups(&f, *b.Groups)
	}
	if b.Password != nil {
		f.AddAll("password", account.CheckPassword("password", *b.Password))
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
	if b.Disabled != nil {
		u.Disabled = *b.Disabled
	}
	if b.MustChangePassword != nil {
		u.MustChangePassword = *b.MustChangePassword
	}
}

func (a *API) logUserOut(ctx context.Context, id auth.Identity, in *UserPath) (*struct{}, error) {
	u, err := a.Accounts.User(ctx, in.Username)
	if err != nil {
		return nil, err
	}
	return nil, a.endSessions(ctx, id, u.ID, u.Name)
}

func (a *API) deleteUser(ctx context.Context, id auth.Identity, in *UserPath) (*struct{}, error) {
	u, err := a.Accounts.DeleteUser(ctx, in.Username)
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "user.delete", "user/"+u.Name, toUser(u), nil)
	return nil, nil
}
