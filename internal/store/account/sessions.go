package account

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/bearer"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Sessions keeps the log-ins of users. A log-in begins with a password, or at an identity provider.
type Sessions struct {
	pool   *pgxpool.Pool
	q      *sqlcgen.Queries
	hasher *hasher
}

// SessionLifetime is how long a log-in by password lasts. Using the session does not extend it.
const SessionLifetime = 7 * 24 * time.Hour

// Session is a log-in, without its token.
type Session struct {
	ID                               int64
	CreatedAt, ExpiresAt, LastUsedAt time.Time // LastUsedAt is exact to the minute
	Remote, Agent                    string    // the address and the client of the log-in
}

// Origin describes where a log-in comes from.
type Origin struct {
	Remote, Agent string
	// Replaces is the token of a session that ends with this log-in: the one that the client has sent; "" for none.
	Replaces string
}

// Ticket is the result of a log-in: the session's token and its end.
type Ticket struct {
	Token     string
	ExpiresAt time.Time
}

// LogIn checks a password and begins a session. The error is ErrCredentials if there is no such user and password.
func (s *Sessions) LogIn(ctx context.Context, name, password string, from Origin) (Ticket, error) {
	if strings.ContainsRune(name, 0) || !utf8.ValidString(name) {
		name = "" // matches no user; Postgres cannot store such a name
	}
	u, err := s.q.UserByName(ctx, name)
	if err = pgerr.Translate(err); err != nil && domain.CodeOf(err) != domain.NotFound {
		return Ticket{}, err
	}
	ok, stale, err := s.hasher.verify(ctx, u.PasswordHash, password)
	if err != nil {
		return Ticket{}, err
	}
	if !ok || u.Disabled || Kind(u.Kind) != Local {
		return Ticket{}, ErrCredentials
	}
	if stale {
		if hash, err := s.hasher.hash(ctx, password); err == nil {
			err = s.q.SetPasswordHash(ctx, sqlcgen.SetPasswordHashParams{ID: u.ID, PasswordHash: hash})
			if err != nil {
				return Ticket{}, pgerr.Translate(err)
			}
			u.PasswordHash = hash
		}
	}
	return s.beginSession(ctx, u, SessionLifetime, from)
}

// beginSession begins a session of the user u, unless it has changed since u was read.
func (s *Sessions) beginSession(ctx context.Context, u sqlcgen.User, lifetime time.Duration, from Origin) (t Ticket, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		t, err = insertSession(ctx, q, u.ID, u.PasswordHash, lifetime, from)
		if err != nil || !bearer.Is(from.Replaces, bearer.Session) {
			return err
		}
		_, err := q.DeleteSession(ctx, bearer.Digest(from.Replaces))
		return err
	})
	return t, credentialOr(err)
}

func insertSession(ctx context.Context, q *sqlcgen.Queries, user int64, verifiedHash string, lifetime time.Duration, from Origin) (Ticket, error) {
	token, digest := bearer.New(bearer.Session)
	expires, err := q.InsertSession(ctx, sqlcgen.InsertSessionParams{
		TokenSha256: digest, UserID: user, VerifiedHash: verifiedHash, Lifetime: lifetime, Remote: from.Remote, Agent: from.Agent,
	})
	return Ticket{Token: token, ExpiresAt: expires}, err
}

// credentialOr replaces a missing row by ErrCredentials: the user was deleted or changed meanwhile.
func credentialOr(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrCredentials
	}
	return pgerr.Translate(err)
}

// ChangePassword changes the principal's own password, ends all log-ins of the user, and begins a new one. Invalid
// means that the current password is wrong or the new one is not accepted. Conflict means that the user has no password
// here.
func (s *Sessions) ChangePassword(ctx context.Context, p Principal, current, next string, from Origin) (t Ticket, err error) {
	u, err := s.q.UserByName(ctx, p.User)
	if err != nil {
		return Ticket{}, credentialOr(err)
	}
	if Kind(u.Kind) != Local {
		return Ticket{}, noPassword()
	}
	ok, _, err := s.hasher.verify(ctx, u.PasswordHash, current)
	if err != nil {
		return Ticket{}, err
	}
	var f domain.Faults
	if !ok {
		f.Add("current_password", "is wrong")
	}
	f.AddAll("new_password", CheckPassword("new_password", u.Name, next))
	if current == next {
		f.Add("new_password", "is the current password")
	}
	if err := f.Err("the password was not changed"); err != nil {
		return Ticket{}, err
	}
	hash, err := s.hasher.hash(ctx, next)
	if err != nil {
		return Ticket{}, err
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		n, err := q.ChangePassword(ctx, sqlcgen.ChangePasswordParams{ID: u.ID, PasswordHash: hash, VerifiedHash: u.PasswordHash})
		if err != nil {
			return err
		}
		if n == 0 {
			return pgx.ErrNoRows
		}
		if _, err := q.EndSessions(ctx, u.ID); err != nil {
			return err
		}
		t, err = insertSession(ctx, q, u.ID, hash, SessionLifetime, from)
		return err
	})
	return t, credentialOr(err)
}

func noPassword() error {
	return domain.NewError(domain.Conflict, "this user logs in through the identity provider and has no password here")
}

// LogOut ends the session of the token, if there is one.
func (s *Sessions) LogOut(ctx context.Context, token string) error {
	_, err := s.q.DeleteSession(ctx, bearer.Digest(token))
	return pgerr.Translate(err)
}

// LogOutEverywhere ends all sessions of a user and returns their number.
func (s *Sessions) LogOutEverywhere(ctx context.Context, userID int64) (int64, error) {
	n, err := s.q.EndSessions(ctx, userID)
	return n, pgerr.Translate(err)
}

// Sessions lists the current sessions of a user by id, starting after the given id.
func (s *Sessions) Sessions(ctx context.Context, userID, after int64, limit int) ([]Session, error) {
	rows, err := s.q.Sessions(ctx, sqlcgen.SessionsParams{UserID: userID, After: after, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	sessions := make([]Session, len(rows))
	for i, r := range rows {
		sessions[i] = Session{ID: r.ID, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, LastUsedAt: r.LastUsedAt, Remote: r.Remote, Agent: r.Agent}
	}
	return sessions, nil
}

// EndSession ends one session of a user. The error is NotFound if there is none.
func (s *Sessions) EndSession(ctx context.Context, userID, id int64) error {
	n, err := s.q.EndSession(ctx, sqlcgen.EndSessionParams{ID: id, UserID: userID})
	if err == nil && n == 0 {
		return domain.NewError(domain.NotFound, "there is no such log-in")
	}
	return pgerr.Translate(err)
}

func (s *Sessions) principal(ctx context.Context, token string) (Principal, error) {
	r, err := s.q.PrincipalOfSession(ctx, bearer.Digest(token))
	if err != nil {
		return Principal{}, credentialError(err)
	}
	if r.Touch { // at most one write per minute, however often the session is used
		if err := touched(s.q.TouchSession(ctx, r.SessionID)); err != nil {
			return Principal{}, err
		}
	}
	return Principal{UserID: r.ID, User: r.Name, Kind: Kind(r.Kind), Role: Role(r.Role), OwnerRole: Role(r.Role), Groups: r.Groups,
		SessionID: r.SessionID, ExpiresAt: r.ExpiresAt, MustChangePassword: r.MustChangePassword}, nil
}

// Sweep deletes expired sessions and returns their number. It is called periodically. Authenticate ignores expired sessions
// even before Sweep runs.
func (s *Sessions) Sweep(ctx context.Context) (int64, error) {
	n, err := s.q.DeleteExpiredSessions(ctx)
	return n, pgerr.Translate(err)
}
