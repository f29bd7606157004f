// Package alerts keeps alert channels, alerts, and the results of their delivery.
//
// # Secrets
//
// A channel's secrets are stored separately from its settings. If the server has a key, they are sealed with
// AES-256-GCM (package seal), otherwise they are stored unencrypted. Channel returns them; alert.Channel.Shown removes
// what must not be displayed.
//
// # Alerts
//
// The engine's store decides which alerts are sent (engine.AlertNote). Compose gathers the content, and RecordTx stores
// it in the transaction that completes the follow-up, with one delivery for each channel. A delivery ends as delivered
// or failed and then does not change.
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
	"github.com/belfryhq/belfry/internal/store/seal"
)

// Config holds the settings of a Store.
type Config struct {
	Key        string         // seals the secrets; empty: they are not sealed
	ConsoleURL string         // the base URL of links; empty: no links
	TraceURL   string         // the template of links to traces, as for trace.URL; empty: no such links
	Zone       *time.Location // for schedules without a time zone; nil: UTC
}

// Store keeps channels and alerts in Postgres. It is safe for concurrent use.
type Store struct {
	pool *pgxpool.Pool
	q    *sqlcgen.Queries
	seal sealed
	url  string

	traceURL string
	zone     *time.Location
}

// New returns a Store on a pool whose connections have Belfry's schema on their search path and map run ids to uuid.
func New(pool *pgxpool.Pool, c Config) *Store {
	s := &Store{pool: pool, q: sqlcgen.New(pool), seal: sealed{seal.New(c.Key, "the channel's secrets")}, url: strings.TrimRight(c.ConsoleURL, "/"), traceURL: c.TraceURL, zone: c.Zone}
	if s.zone == nil {
		s.zone = time.UTC
	}
	return s
}

// Channels lists channels by name, starting after the given name, with their secrets.
func (s *Store) Channels(ctx context.Context, after string, limit int) ([]alert.Channel, error) {
	rows, err := s.q.Channels(ctx, sqlcgen.ChannelsParams{After: after, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make([]alert.Channel, len(rows))
	for i, r := range rows {
		if out[i], err = s.channel(r); err != nil {
			out[i].Description = "its secrets cannot be read: " + err.Error() // the other channels are still listed
		}
	}
	return out, nil
}

// Channel returns a channel with its secrets, or NotFound.
func (s *Store) Channel(ctx context.Context, name string) (alert.Channel, error) {
	r, err := s.q.Channel(ctx, name)
	if err != nil {
		return alert.Channel{}, missing(err)
	}
	return s.channel(r)
}

// ChannelsFor returns those of the named channels that operators may give to jobs of the group.
func (s *Store) ChannelsFor(ctx context.Context, group string, names []string) (usable []string, err error) {
	rows, err := s.q.ChannelSettings(ctx, names)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	for _, r := range rows {
		var c alert.Channel
		if err := json.Unmarshal(r.Settings, &c); err != nil {
			return nil, domain.WrapError(domain.Internal, "a stored alert channel cannot be read", err)
		}
		if c.For(group) {
			usable = append(usable, r.Name)
		}
	}
	return usable, nil
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
	c.Normalize() // channels of earlier versions have no groups
	c.Name, c.Kind, c.CreatedAt, c.UpdatedAt = r.Name, alert.Kind(r.Kind), domain.At(r.CreatedAt), domain.At(r.UpdatedAt)
	secrets, err := s.seal.open(r.Name, r.Secrets)
	return c.Join(secrets), err
}

// CreateChannel stores a valid channel. Conflict means that the name is taken.
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

// split encodes a channel as it is stored.
func (s *Store) split(c alert.Channel) (settings, secrets []byte, err error) {
	plain, hidden := c.Split()
	if settings, err = json.Marshal(plain); err != nil { //nolint:gosec // the secrets are removed
		return nil, nil, domain.WrapError(domain.Internal, "encode the channel", err)
	}
	secrets, err = s.seal.close(c.Name, hidden)
	return settings, secrets, err
}

// UpdateChannel changes a channel by edit, which receives the channel with its secrets and validates it. The error is
// NotFound if there is none.
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

// DeleteChannel deletes a channel. NotFound means that there is none. Conflict means that jobs use it; the error names them. A
// job that begins to use the channel at the same time has locked the channel's row, so DeleteChannel waits for that job and
// finds it.
func (s *Store) DeleteChannel(ctx context.Context, name string) (before alert.Channel, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		r, err := q.LockChannel(ctx, name)
		if err != nil {
			return missing(err)
		}
		before, _ = s.channel(r) // a channel whose secrets cannot be decrypted must be deletable
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
