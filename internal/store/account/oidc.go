package account

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/bearer"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Claimed holds an identity provider's claims about a user: its permanent identity (issuer and subject), its name, and
// its role and groups from now on. An empty role means no access.
type Claimed struct {
	Issuer, Subject, Name string
	Role                  Role
	Groups                []string
}

// OIDCLogIn is the result of a log-in through an identity provider.
type OIDCLogIn struct {
	Ticket
	Before *User // nil: the user was created by this log-in
	After  User
}

// ErrNoAccess means that the identity provider authenticated the user but gives it no role here.
var ErrNoAccess = errors.New("the identity provider gives the user no role")

// LogInOIDC begins a session of a user that an identity provider authenticated. It creates the user at the first
// log-in, and sets role and groups as claimed; groups that do not exist are left out. A changed role ends the user's
// other sessions. ErrNoAccess means that there is no role; a user that had one loses it, and all sessions.
// ErrCredentials means that the user is disabled here. Conflict means that another user has the name. Along with
// ErrNoAccess, the result holds what was changed.
//
// A log-in is accepted even if no admin is left, because the provider decides about its users.
func (s *Sessions) LogInOIDC(ctx context.Context, c Claimed, lifetime time.Duration, from Origin) (in OIDCLogIn, err error) {
	role, groups := c.Role, c.Groups
	if role == "" {
		role, groups = Viewer, nil // sees nothing, because it is in no group
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		if err := q.LockUsers(ctx); err != nil {
			return err
		}
		existing, err := q.ExistingGroups(ctx, append([]string{}, groups...))
		if err != nil {
			return err
		}
		groups = append([]string{}, existing...)
		u, err := q.UserBySubject(ctx, sqlcgen.UserBySubjectParams{Issuer: &c.Issuer, Subject: &c.Subject})
		switch {
		case errors.Is(err, pgx.ErrNoRows) && c.Role == "":
			return nil
		case errors.Is(err, pgx.ErrNoRows):
			u, err = q.InsertOIDCUser(ctx, sqlcgen.InsertOIDCUserParams{Name: c.Name, Role: string(role), Groups: groups, Issuer: &c.Issuer, Subject: &c.Subject})
		case err == nil && u.Disabled:
			return ErrCredentials
		case err == nil:
			before := toUser(u)
			in.Before = &before
			u, err = updateClaimed(ctx, q, u, role, groups, c.Role == "")
		}
		if err != nil {
			return err
		}
		in.After = toUser(u)
		if c.Role == "" {
			return nil
		}
		if in.Ticket, err = insertSession(ctx, q, u.ID, u.PasswordHash, lifetime, from); err != nil || !bearer.Is(from.Replaces, bearer.Session) {
			return err
		}
		_, err = q.DeleteSession(ctx, bearer.Digest(from.Replaces))
		return err
	})
	switch {
	case errors.Is(err, ErrCredentials):
		return in, ErrCredentials
	case err != nil:
		return in, nameTaken(pgerr.Translate(err))
	case c.Role == "":
		return in, ErrNoAccess
	}
	return in, nil
}

func nameTaken(err error) error {
	if domain.CodeOf(err) == domain.Conflict {
		return domain.WrapError(domain.Conflict, "another user already has this name", err)
	}
	return err
}

func updateClaimed(ctx context.Context, q *sqlcgen.Queries, u sqlcgen.User, role Role, groups []string, lost bool) (sqlcgen.User, error) {
	if lost || Role(u.Role) != role {
		if _, err := q.EndSessions(ctx, u.ID); err != nil {
			return u, err
		}
	}
	if Role(u.Role) == role && slices.Equal(u.Groups, groups) {
		return u, nil
	}
	return q.UpdateUser(ctx, sqlcgen.UpdateUserParams{ID: u.ID, Role: string(role), Groups: groups, Disabled: u.Disabled})
}
