package account

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// EditUser changes a user by edit: its role, its groups, whether it is disabled, and whether it must change its password. If
// password is not empty, EditUser also sets the password. A user that is disabled, or whose role or password changes, is logged
// out. Changed groups apply from the next request on. Conflict means that no enabled admin would be left, or that the identity
// provider controls the changed field.
func (s *Users) User(ctx context.Context, name string) (User, error) {
	u, err := s.q.UserByName(ctx, name)
	return toUser(u), noUser(err)
}

func noUser(err error) error {
	if err = pgerr.Translate(err); err != nil && domain.CodeOf(err) == domain.NotFound {
		return domain.NewError(domain.NotFound, "there is no such user")
	}
	return err
}

// EditUser changes by edit a user's role, groups, whether it is disabled, and whether its password must be changed; if
// password is not empty, it also sets the password. A user that is disabled, or whose role or password changes, is
// logged out. Changed groups apply from the next request on. Conflict means that no enabled admin would be left, or
// that the identity provider controls the changed field.
func (s *Users) EditUser(ctx context.Context, name, password string, edit func(*User)) (before, after User, err error) {
	hash := ""
	if password != "" {
		if err := CheckPassword("password", name, password); err != nil {
			return before, after, err
		}
		if hash, err = s.hasher.hash(ctx, password); err != nil {
			return before, after, err
		}
	}
	err = s.changeUser(ctx, name, func(q *sqlcgen.Queries, u sqlcgen.User) error {
		before = toUser(u)
		next := toUser(u)
		edit(&next)
		if before.Kind == OIDC {
			if err := mayChangeOIDC(before, next, password); err != nil {
				return err
			}
		}
		row, err := q.UpdateUser(ctx, sqlcgen.UpdateUserParams{
			ID: u.ID, Role: string(next.Role), Groups: append([]string{}, next.Groups...), Disabled: next.Disabled,
			PasswordHash: hash, MustChangePassword: next.MustChangePassword,
		})
		if err != nil {
			return err
		}
		after = toUser(row)
		if hash == "" && !after.Disabled && after.Role == before.Role {
			return nil
		}
		_, err = q.EndSessions(ctx, u.ID)
		return err
	})
	return before, after, err
}

// mayChangeOIDC refuses changes that the next log-in would revert.
func mayChangeOIDC(before, next User, password string) error {
	switch {
	case password != "" || next.MustChangePassword:
		return noPassword()
	case next.Role != before.Role || !slices.Equal(next.Groups, before.Groups):
		return domain.NewError(domain.Conflict, "the identity provider sets the role and groups of this user; change them there")
	}
	return nil
}

// DeleteUser deletes a user with all its log-ins and tokens. Conflict means that no enabled admin would be left.
func (s *Users) DeleteUser(ctx context.Context, name string) (deleted User, err error) {
	err = s.changeUser(ctx, name, func(q *sqlcgen.Queries, u sqlcgen.User) error {
		deleted = toUser(u)
		return q.DeleteUser(ctx, u.ID)
	})
	return deleted, err
}

// changeUser runs change on a user, and rolls it back if no admin is left.
func (s *Users) changeUser(ctx context.Context, name string, change func(*sqlcgen.Queries, sqlcgen.User) error) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		if err := q.LockUsers(ctx); err != nil {
			return err
		}
		u, err := q.UserByName(ctx, name)
		if err != nil {
			return noUser(err)
		}
		if err := change(q, u); err != nil {
			return err
		}
		left, err := q.HasAdmin(ctx)
		if err == nil && !left {
			return domain.NewError(domain.Conflict, "this is the last admin; create another one first")
		}
		return err
	})
	return pgerr.Translate(err)
}
