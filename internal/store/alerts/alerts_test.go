package alerts_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/alerts"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 6})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if _, err := s.Pool().Exec(t.Context(), `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`); err != nil {
		t.Fatal(err)
	}
	return s
}

func mail() alert.Channel {
	return alert.Channel{Name: "mail", Kind: alert.KindEmail, Language: alert.English, Email: &alert.Email{
		Host: "mail.test", Port: 587, TLS: alert.StartTLS, Username: "u", Password: "hunter2", From: "a@b.test", To: []string{"c@d.test"},
	}}
}

func spec(name string, channels ...string) domain.JobSpec {
	sp := domain.DefaultJobSpec()
	sp.Group, sp.Name, sp.Handler, sp.Schedule = "g", name, "echo", domain.Schedule{Kind: domain.ScheduleNone}
	sp.Alert.Channels = channels
	return sp
}

// Sealed secrets can be read only with their key. Secrets that were stored without a key can be read with any key.
func TestSeal(t *testing.T) {
	pool := open(t).Pool()
	plain, one, two := alerts.New(pool, alerts.Config{}), alerts.New(pool, alerts.Config{Key: "one"}), alerts.New(pool, alerts.Config{Key: "two"})
	if _, err := plain.CreateChannel(t.Context(), mail()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*alerts.Store{plain, one} {
		if c, err := s.Channel(t.Context(), "mail"); err != nil || c.Email.Password != "hunter2" {
			t.Errorf("a channel without sealed secrets: %+v, %v", c, err)
		}
	}
	if _, _, err := one.UpdateChannel(t.Context(), "mail", func(c *alert.Channel) error { c.Description = "sealed now"; return nil }); err != nil {
		t.Fatal(err)
	}
	if c, err := one.Channel(t.Context(), "mail"); err != nil || c.Email.Password != "hunter2" || c.Email.To[0] != "c@d.test" {
		t.Errorf("with the key: %+v, %v", c, err)
	}
	for _, s := range []*alerts.Store{plain, two} {
		if c, err := s.Channel(t.Context(), "mail"); domain.CodeOf(err) != domain.Conflict || !strings.Contains(err.Error(), "--secret-key") || c.Email.Password != "" {
			t.Errorf("without the key: %+v, %v", c, err)
		}
		if list, err := s.Channels(t.Context(), "", 10); err != nil || len(list) != 1 || !strings.Contains(list[0].Description, "cannot be read") {
			t.Errorf("the list without the key: %+v, %v", list, err)
		}
	}
	// Secrets are bound to the channel's name.
	if _, err := pool.Exec(t.Context(), `UPDATE alert_channels SET name = 'other'`); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Channel(t.Context(), "other"); domain.CodeOf(err) != domain.Conflict {
		t.Errorf("under another name: %v", err)
	}
	if _, err := plain.DeleteChannel(t.Context(), "other"); err != nil {
		t.Errorf("deleting a channel with unreadable secrets: %v", err)
	}
}

// Creating a job and deleting its channel concurrently never leaves a job without its channel.
func TestDeleteAgainstNewJob(t *testing.T) {
	s := open(t)
	kept := alerts.New(s.Pool(), alerts.Config{})
	for i := range 30 {
		c := mail()
		if _, err := kept.CreateChannel(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		var job domain.Job
		var made, gone error
		both.Go(func() { job, made = s.CreateJob(context.Background(), spec("j", "mail"), "test") })
		both.Go(func() { _, gone = kept.DeleteChannel(context.Background(), "mail") })
		both.Wait()
		if (made == nil) == (gone == nil) {
			t.Fatalf("round %d: making the job: %v; deleting the channel: %v", i, made, gone)
		}
		if made == nil {
			if _, err := s.DeleteJob(t.Context(), job.ID, 0, "test"); err != nil {
				t.Fatal(err)
			}
			if _, err := kept.DeleteChannel(t.Context(), "mail"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// An index finds the jobs that use a channel, so the cost does not depend on the number of other jobs.
func TestJobsOfChannelPlan(t *testing.T) {
	s := open(t)
	err := pgx.BeginFunc(t.Context(), s.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO jobs (group_name, name, enabled, kind, spec, version, created_at, updated_at)
			SELECT 'g', 'j' || i, true, 'none', jsonb_build_object('alert', jsonb_build_object('channels', CASE WHEN i % 1000 = 0 THEN '["ops"]' ELSE '[]' END::jsonb)), 1, now(), now()
			  FROM generate_series(1, 20000) i`); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `ANALYZE jobs`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	lines, err := s.Pool().Query(t.Context(), `EXPLAIN WITH users AS MATERIALIZED (SELECT id, group_name, name FROM jobs
		WHERE spec -> 'alert' -> 'channels' <> '[]'::jsonb AND spec -> 'alert' -> 'channels' @> to_jsonb(ARRAY['ops']))
		SELECT id, group_name, name FROM users ORDER BY id LIMIT 11`)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(lines, pgx.RowTo[string])
	if err != nil || !strings.Contains(strings.Join(plan, "\n"), "jobs_alert_channels") {
		t.Errorf("%v: %s", err, strings.Join(plan, "\n"))
	}
}
