// Package alerts keeps alert channels, what was told, and what came of its delivery.
//
// # Secrets
//
// A channel's secrets lie apart from its settings, sealed with AES-256-GCM under the server's key if it has one
// (see seal.go), else as they are. Who asks for a channel gets them; what of it may be shown alert.Channel.Shown says.
//
// # Alerts
//
// The engine's store says what is to be told (domain.AlertNote). Compose gathers what is said of it, and RecordTx writes
// that down in the transaction that completes the asking, with one delivery for each channel. A delivery ends as
// delivered or failed, and then stays so.
//
// Every error is a domain.Error.
package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/alerts/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Config says how alerts are kept and composed.
type Config struct {
	Key        string         // of the secrets; empty: they are not sealed
	ConsoleURL string         // links begin with it; empty: there are none
	Zone       *time.Location // of schedules that name none; nil: UTC
}

// Store keeps them in Postgres. Its methods may be called by many goroutines.
type Store struct {
	pool *pgxpool.Pool
	q    *sqlcgen.Queries
	seal *seal
	url  string
	zone *time.Location
}

// New makes a Store on a pool whose connections have Belfry's schema on their search path and know run ids as uuid.
func New(pool *pgxpool.Pool, c Config) *Store {
	s := &Store{pool: pool, q: sqlcgen.New(pool), seal: newSeal(c.Key), url: strings.TrimRight(c.ConsoleURL, "/"), zone: c.Zone}
	if s.zone == nil {
		s.zone = time.UTC
	}
	return s
}

// Channels lists channels by name, after the given one, with their secrets.
func (s *Store) Channels(ctx context.Context, after string, limit int) ([]alert.Channel, error) {
	rows, err := s.q.Channels(ctx, sqlcgen.ChannelsParams{After: after, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make([]alert.Channel, len(rows))
	for i, r := range rows {
		if out[i], err = s.channel(r); err != nil {
			out[i].Description = "its secrets cannot be read: " + err.Error() // the others are still to be seen
		}
	}
	return out, nil
}

// Channel returns a channel with its secrets. NotFound: there is none.
func (s *Store) Channel(ctx context.Context, name string) (alert.Channel, error) {
	r, err := s.q.Channel(ctx, name)
	if err != nil {
		return alert.Channel{}, missing(err)
	}
	return s.channel(r)
}

func missing(err error) error {
	if err = pgerr.Translate(err); domain.CodeOf(err) == domain.NotFound {
		return domain.NewError(domain.NotFound, "there is no alert channel of this name")
	}
	return err
}

func (s *Store) channel(r sqlcgen.AlertChannel) (alert.Channel, error) {
	var c alert.Channel
	if err := json.Unmarshal(r.Settings, &c); err != nil {
		return c, domain.WrapError(domain.Internal, "a stored alert channel cannot be read", err)
	}
	c.Name, c.Kind, c.CreatedAt, c.UpdatedAt = r.Name, alert.Kind(r.Kind), domain.At(r.CreatedAt), domain.At(r.UpdatedAt)
	secrets, err := s.seal.open(r.Name, r.Secrets)
	return c.Join(secrets), err
}

// CreateChannel stores a valid channel. Conflict: the name is taken.
func (s *Store) CreateChannel(ctx context.Context, c alert.Channel) (alert.Channel, error) {
	settings, secrets, err := s.split(c)
	if err != nil {
		return c, err
	}
	r, err := s.q.InsertChannel(ctx, sqlcgen.InsertChannelParams{Name: c.Name, Kind: string(c.Kind), Settings: settings, Secrets: secrets})
	if err != nil {
		if err = pgerr.Translate(err); domain.CodeOf(err) == domain.Conflict {
			const taken = "an alert channel of this name exists"
			err = &domain.Error{Code: domain.Conflict, Message: taken, Fields: []domain.FieldError{{Location: "name", Message: taken}}}
		}
		return c, err
	}
	return s.channel(r)
}

// split makes of a channel what is stored.
func (s *Store) split(c alert.Channel) (settings, secrets []byte, err error) {
	plain, hidden := c.Split()
	if settings, err = json.Marshal(plain); err != nil { //nolint:gosec // it has no secrets any more
		return nil, nil, domain.WrapError(domain.Internal, "write the channel", err)
	}
	secrets, err = s.seal.close(c.Name, hidden)
	return settings, secrets, err
}

// UpdateChannel changes a channel by edit, which gets it with its secrets and says whether it is valid. NotFound: there is none.
func (s *Store) UpdateChannel(ctx context.Context, name string, edit func(*alert.Channel) error) (before, after alert.Channel, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		r, err := q.LockChannel(ctx, name)
		if err != nil {
			return missing(err)
		}
		if before, err = s.channel(r); err != nil {
			return err
		}
		changed := before.Join(alert.Secrets{URL: before.URL, Secret: before.Secret, Password: password(before)})
		if err := edit(&changed); err != nil {
			return err
		}
		settings, secrets, err := s.split(changed)
		if err != nil {
			return err
		}
		if r, err = q.UpdateChannel(ctx, sqlcgen.UpdateChannelParams{Name: name, Kind: string(changed.Kind), Settings: settings, Secrets: secrets}); err != nil {
			return err
		}
		after, err = s.channel(r)
		return err
	})
	return before, after, pgerr.Translate(err)
}

func password(c alert.Channel) string {
	if c.Email == nil {
		return ""
	}
	return c.Email.Password
}

// jobsNamed bounds how many jobs a Conflict names.
const jobsNamed = 10

// DeleteChannel deletes a channel. NotFound: there is none. Conflict: jobs use it, which the error names. A job that begins
// to use it at the same time holds its row, and is seen here.
func (s *Store) DeleteChannel(ctx context.Context, name string) (before alert.Channel, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		r, err := q.LockChannel(ctx, name)
		if err != nil {
			return missing(err)
		}
		before, _ = s.channel(r) // one that cannot be opened any more must be deletable
		jobs, err := q.JobsOfChannel(ctx, sqlcgen.JobsOfChannelParams{Channel: name, MaxRows: jobsNamed + 1})
		if err != nil {
			return err
		}
		if len(jobs) == 0 {
			return q.DeleteChannel(ctx, name)
		}
		names := make([]string, 0, jobsNamed)
		for _, j := range jobs[:min(len(jobs), jobsNamed)] {
			names = append(names, fmt.Sprintf("%s/%s (%d)", j.GroupName, j.Name, j.ID))
		}
		if len(jobs) > jobsNamed {
			names = append(names, "and more")
		}
		return domain.NewError(domain.Conflict, "jobs use the channel; take it out of them first: "+strings.Join(names, ", "))
	})
	return before, pgerr.Translate(err)
}
