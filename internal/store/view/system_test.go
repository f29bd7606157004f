package view_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/view"
)

func TestAppName(t *testing.T) {
	long := view.AppName("dispatcher", "v0.0.0-20261121-abcdef123456", "belfry-dispatcher-in-a-long-namespace-7c9d8f6b5-x2x4z", 123456)
	if len(long) > 63 || !strings.HasPrefix(long, "belfry dispatcher ") || !strings.HasSuffix(long, "7c9d8f6b5-x2x4z/123456") {
		t.Errorf("%d bytes: %q", len(long), long)
	}
	if got := view.AppName("console", "", "a", 7); got != "belfry console dev a/7" {
		t.Errorf("got %q", got)
	}
}

func TestSystem(t *testing.T) {
	url := pgtest.Database(t, store.Migrate)
	open := func(name string) *store.Store {
		s, err := store.Open(t.Context(), store.Config{URL: url, MaxConns: 1, AppName: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	s := open(view.AppName("console", "1.2.3", "here", 7))
	open("belfry bench") // no process of the engine
	other := open(view.AppName("scheduler", "1.2.3", "there", 8))
	if err := other.Pool().Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t, s.Pool(), view.New(s.Pool())}
	got, err := f.view.System(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range got.Processes {
		names = append(names, p.Role+" "+p.Version+" "+p.Name)
	}
	if want := []string{"console 1.2.3 here/7", "scheduler 1.2.3 there/8"}; !slices.Equal(names, want) {
		t.Errorf("processes %q, want %q", names, want)
	}
	if got.Unfired != 0 || !got.UnfiredDue.IsZero() || got.Waiting != 0 || !got.WaitDue.IsZero() || !got.SchedulerSeen.IsZero() || got.Bytes == 0 || got.Postgres == "" {
		t.Errorf("an empty database: got %+v", got)
	}

	due := got.Now.Add(-time.Minute).Truncate(time.Millisecond)
	f.exec(`INSERT INTO runs_live (id, job_id, job_version, group_name, cause, due_at, held) VALUES
  (gen_random_uuid(), 1, 1, 'g', 'schedule', $1, false), (gen_random_uuid(), 1, 1, 'g', 'schedule', $1, true),
  (gen_random_uuid(), 1, 1, 'g', 'schedule', now() + interval '1 hour', false)`, due)
	f.exec(`INSERT INTO runs_waiting (run_id, job_id, group_name, handler, due_at, deadline_at) VALUES (gen_random_uuid(), 1, 'g', 'h', $1, now())`, due)
	f.exec(`INSERT INTO scheduler_presence (scheduler, seen_at) VALUES ('there/8', $1)`, due)
	if got, err = f.view.System(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.exec(`SET session_replication_role = replica`) // job 1 does not exist
	f.exec(`INSERT INTO job_due (job_id, version, next_due_at) VALUES (1, 1, $1), (2, 1, now()), (3, 1, NULL)`, due)
	if p, err := view.NewPostgres(s.Pool()).Pressure(t.Context()); err != nil || p.Unfired != 1 || p.Unplanned != 1 || p.Connections < 1 || p.MaxConnections < p.Connections || p.Bytes == 0 {
		t.Errorf("pressure: %+v, %v", p, err)
	}
	if got, err := view.NewPostgres(s.Pool()).Clients(t.Context()); err != nil || !slices.Contains(got, "1 belfry console 1.2.3 here/7") {
		t.Errorf("clients: %q, %v", got, err)
	}
	if got.Unfired != 1 || !got.UnfiredDue.Equal(due) || got.Waiting != 1 || !got.WaitDue.Equal(due) || !got.SchedulerSeen.Equal(due) {
		t.Errorf("one is late, one waits, one scheduler was seen at %v: %+v", due, got)
	}
}

// A transaction that blocks a process of Belfry is found by its session, also if the process waits for a table that every other query needs.
func TestBlockers(t *testing.T) {
	url := pgtest.Database(t, store.Migrate)
	s, err := store.Open(t.Context(), store.Config{URL: url, MaxConns: 2, AppName: view.AppName("scheduler", "1.2.3", "here", 7)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	v := view.NewPostgres(s.Pool())
	if got, err := v.Blockers(t.Context()); len(got) > 0 || err != nil {
		t.Errorf("without a lock: %+v, %v", got, err)
	}
	other, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	tx := pgtest.Begin(t, other)
	var pid int
	if err := tx.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{`SET LOCAL application_name = 'a report'`, `LOCK TABLE belfry.job_due`} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	waited := make(chan error, 1)
	wait := func() {
		_, err := s.Pool().Exec(t.Context(), `UPDATE job_due SET version = version`)
		waited <- err
	}
	go wait()
	var got []view.Blocker
	for deadline := time.Now().Add(5 * time.Minute); len(got) == 0 && time.Now().Before(deadline); {
		select {
		case err := <-waited: // ended by lock_timeout, so wait again
			if err == nil {
				t.Fatal("the lock does not block")
			}
			go wait()
		default:
		}
		if got, err = v.Blockers(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []view.Blocker{{PID: pid, Application: "a report", Sessions: 1}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
