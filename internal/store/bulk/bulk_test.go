package bulk_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/dispatcher/followup"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/bulk"
	"github.com/belfryhq/belfry/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is a database with a group, a user and a job, and a Performer on it.
type world struct {
	t    *testing.T
	pg   *store.Store
	bulk *bulk.Store
	*bulk.Performer
	user account.Principal
	job  domain.JobID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pg, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pg.Close)
	queue, err := followup.NewQueue(pg.Pool(), migrations.RiverSchema, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	pg.UseFollowUps(queue)
	w := &world{t: t, pg: pg, bulk: bulk.New(pg.Pool(), queue)}
	w.Performer = bulk.NewPerformer(w.bulk, pg, account.New(pg.Pool()).Tokens)
	w.exec(`INSERT INTO groups (name, token_sha256) VALUES ('g', 'g'), ('h', 'h')`)
	w.exec(`INSERT INTO users (name, password_hash, role, groups) VALUES ('olga', 'x', 'operator', '{g}')`)
	w.user = account.Principal{UserID: 1, User: "olga", Role: account.Operator, Groups: []string{"g"}}
	w.job = w.newJob("g", "j")
	return w
}

func (w *world) newJob(group, name string) domain.JobID {
	w.t.Helper()
	sp := domain.DefaultJobSpec()
	sp.Group, sp.Name, sp.Handler, sp.Schedule = group, name, "echo", domain.Schedule{Kind: domain.ScheduleNone}
	job, err := w.pg.CreateJob(w.t.Context(), sp, "test")
	if err != nil {
		w.t.Fatal(err)
	}
	return job.ID
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pg.Pool().Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) count(sql string, args ...any) int {
	w.t.Helper()
	var n int
	if err := w.pg.Pool().QueryRow(w.t.Context(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// failed adds failed runs of a job. The param of each is its number.
func (w *world) failed(job domain.JobID, group string, n int) {
	w.t.Helper()
	var rows [][]any
	at := time.Now().Add(-time.Minute)
	for i := range n {
		rows = append(rows, []any{domain.NewRunID(at), int64(job), 1, group, "manual", "failed", "handler_error", "", "", fmt.Sprint(i), 1, at, at, at, 0, ""})
	}
	_, err := w.pg.Pool().CopyFrom(w.t.Context(), pgx.Identifier{"runs_history"}, []string{"id", "job_id", "job_version", "group_name", "cause",
		"state", "reason", "message", "output", "param", "attempt", "due_at", "created_at", "finished_at", "last_line", "route"}, pgx.CopyFromRows(rows))
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(action string, f bulk.Filter) bulk.Action {
	w.t.Helper()
	a, err := w.Create(w.t.Context(), w.user, "1.2.3.4", action, f)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// end performs an action to its end, and returns it.
func (w *world) end(id int64) bulk.Action {
	w.t.Helper()
	for {
		step, err := w.Step(w.t.Context(), id)
		if err != nil {
			w.t.Fatal(err)
		}
		if step.Ended {
			return w.action(id)
		}
	}
}

func (w *world) action(id int64) bulk.Action {
	w.t.Helper()
	a, err := w.Action(w.t.Context(), id, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// Several processes that perform the same action retry each run once, and skip nothing. Another action runs at the same time.
func TestTwoActionsAndManyProcesses(t *testing.T) {
	w := newWorld(t)
	other := w.newJob("g", "other")
	w.failed(w.job, "g", 330)
	w.failed(other, "g", 170)
	a, b := w.create(bulk.Retry, bulk.Filter{JobID: w.job}), w.create(bulk.Retry, bulk.Filter{JobID: other})
	if a.Matched.Runs != 330 || a.Matched.AtLeast || len(a.Matched.Jobs) != 1 || a.Matched.Jobs[0].JobName != "j" {
		t.Errorf("matched %+v", a.Matched)
	}
	w.failed(w.job, "g", 10) // inserted with an earlier instant
	w.exec(`UPDATE runs_history SET created_at = now() WHERE id IN (SELECT id FROM runs_history ORDER BY id DESC LIMIT 10)`)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for id := []int64{a.ID, b.ID}[i%2]; ; {
				step, err := w.Step(context.Background(), id)
				if step.Ended || err != nil && domain.CodeOf(err) != domain.Unavailable {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	all.Wait()
	if a, b = w.action(a.ID), w.action(b.ID); a.State != bulk.Done || a.Done != 330 || b.State != bulk.Done || b.Done != 170 {
		t.Errorf("%+v\n%+v", a, b)
	}
	for job, want := range map[domain.JobID]int{w.job: 330, other: 170} {
		if n := w.count(`SELECT count(*) FROM runs_live WHERE job_id = $1`, job); n != want {
			t.Errorf("job %d has %d new runs, want %d", job, n, want)
		}
		if n := w.count(`SELECT count(DISTINCT param) FROM runs_live WHERE job_id = $1`, job); n != want {
			t.Errorf("%d runs of job %d were retried, want %d", n, job, want)
		}
	}
	if n := w.count(`SELECT count(*) FROM audit_log WHERE action = 'run.bulk_end' AND object = 'bulk/1' AND actor = 'olga' AND after ->> 'done' = '330'`); n != 1 {
		t.Errorf("%d audit entries", n)
	}
	// The new runs can be killed.
	undone := w.end(w.create(bulk.Kill, bulk.Filter{BulkID: a.ID}).ID)
	if undone.Done != 330 || w.count(`SELECT count(*) FROM runs_live`) != 170 {
		t.Errorf("undone: %+v", undone)
	}
}

// An error or the death of a process in a batch undoes the batch, and the next one continues at its beginning.
type dying struct {
	*store.Store
	calls int
}

func (d *dying) InTx(ctx context.Context, f func(tx pgx.Tx) error) error {
	return d.Store.InTx(ctx, func(tx pgx.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		if d.calls++; d.calls%2 == 1 {
			return domain.NewError(domain.Unavailable, "the process dies before the commit")
		}
		return nil
	})
}

func TestDeathBeforeTheCommit(t *testing.T) {
	w := newWorld(t)
	w.failed(w.job, "g", 120)
	a := w.create(bulk.Retry, bulk.Filter{Group: "g"})
	d := &dying{Store: w.pg}
	w.Performer = bulk.NewPerformer(w.bulk, d, account.New(w.pg.Pool()).Tokens)
	for w.action(a.ID).FinishedAt == nil {
		if _, err := w.Step(t.Context(), a.ID); (err != nil) != (d.calls%2 == 1) {
			t.Fatalf("call %d: %v", d.calls, err)
		}
	}
	if a = w.action(a.ID); a.Done != 120 || w.count(`SELECT count(DISTINCT param) FROM runs_live`) != 120 || w.count(`SELECT count(*) FROM runs_live`) != 120 {
		t.Errorf("%+v", a)
	}
}

func TestStop(t *testing.T) {
	w := newWorld(t)
	w.failed(w.job, "g", 120)
	a := w.create(bulk.Retry, bulk.Filter{Group: "g"})
	if a.State != bulk.Waiting {
		t.Errorf("%+v", a)
	}
	if _, err := w.Step(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	if a = w.action(a.ID); a.State != bulk.Running || a.Done == 0 || a.Done == 120 {
		t.Errorf("%+v", a)
	}
	for i, want := range []bool{true, false} {
		if stopped, err := w.Stop(t.Context(), a.ID, "ann"); err != nil || stopped != want {
			t.Errorf("stop %d: %v, %v", i, stopped, err)
		}
	}
	before := a.Done
	if a = w.end(a.ID); a.State != bulk.Stopped || a.Done != before || w.count(`SELECT count(*) FROM runs_live`) != int(before) || !strings.Contains(a.Note, "ann") {
		t.Errorf("%+v", a)
	}
}

func TestKill(t *testing.T) {
	w := newWorld(t)
	for range 60 {
		if _, err := w.pg.Trigger(t.Context(), w.job, domain.Trigger{Cause: domain.CauseManual}); err != nil {
			t.Fatal(err)
		}
	}
	w.exec(`UPDATE runs_live SET state = 'running', instance = 'i', boot_id = 'b', started_at = now() WHERE id = (SELECT min(id::text)::uuid FROM runs_live)`)
	a := w.create(bulk.Kill, bulk.Filter{JobID: w.job})
	if _, err := w.pg.Trigger(t.Context(), w.job, domain.Trigger{Cause: domain.CauseManual}); err != nil { // it does not match
		t.Fatal(err)
	}
	var bound []engine.LiveRun
	var ended int
	for {
		step, err := w.Step(t.Context(), a.ID)
		if err != nil {
			t.Fatal(err)
		}
		bound = append(bound, step.Killed.Bound...)
		if ended += len(step.Killed.Result.Changes); step.Ended {
			break
		}
	}
	if a = w.action(a.ID); a.State != bulk.Done || a.Done != 60 || len(bound) != 1 || bound[0].Instance != "i" || ended != 59 {
		t.Errorf("%d bound, %d ended: %+v", len(bound), ended, a)
	}
	if n := w.count(`SELECT count(*) FROM runs_live WHERE kill_requested_at IS NULL`); n != 1 {
		t.Errorf("%d runs are not killed, want the newest one", n)
	}
}

// An action has the rights that its creator has at each batch.
func TestLostRights(t *testing.T) {
	for name, c := range map[string]struct{ loss, why string }{
		"deleted":     {`DELETE FROM users`, "deleted or disabled"},
		"disabled":    {`UPDATE users SET disabled = true`, "deleted or disabled"},
		"demoted":     {`UPDATE users SET role = 'viewer'`, "no operator"},
		"other group": {`UPDATE users SET groups = '{h}'`, `group "g"`},
		"token":       {`DELETE FROM api_tokens`, "API token has ended"},
		"was admin":   {`UPDATE users SET role = 'operator', groups = '{g}'`, "all groups"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.failed(w.job, "g", 120)
			switch name {
			case "token":
				w.exec(`INSERT INTO api_tokens (user_id, name, token_sha256, role, groups, scope) VALUES (1, 'x', 'x', 'operator', '{g}', '')`)
				w.user.TokenID, w.user.TokenName = 1, "x"
			case "was admin":
				w.exec(`UPDATE users SET role = 'admin', groups = '{}'`)
				w.user.Role, w.user.Groups = account.Admin, nil
			}
			a := w.create(bulk.Retry, bulk.Filter{JobID: w.job})
			if step, err := w.Step(t.Context(), a.ID); err != nil || step.Done == 0 {
				t.Fatalf("%+v, %v", step, err)
			}
			w.exec(c.loss)
			before := w.count(`SELECT count(*) FROM runs_live`)
			if a = w.end(a.ID); a.State != bulk.Failed || !strings.Contains(a.Note, c.why) || w.count(`SELECT count(*) FROM runs_live`) != before {
				t.Errorf("%+v", a)
			}
		})
	}
}

// The runs of other groups do not match, whatever the filter says.
func TestOtherGroups(t *testing.T) {
	w := newWorld(t)
	hidden := w.newJob("h", "hidden")
	w.failed(hidden, "h", 5)
	w.failed(w.job, "g", 5)
	rows, err := w.pg.Pool().Query(t.Context(), `SELECT id FROM runs_history`)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[domain.RunID])
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range []bulk.Filter{{States: []domain.State{domain.Failed}}, {IDs: ids}} {
		a := w.end(w.create(bulk.Retry, f).ID)
		if a.Matched.Runs != 5 || a.Done != 5 || w.count(`SELECT count(*) FROM runs_live WHERE group_name = 'h'`) != 0 {
			t.Errorf("filter %d: %+v", i, a)
		}
	}
	a := w.create(bulk.Retry, bulk.Filter{JobID: hidden})
	if a.Matched.Runs != 0 || len(a.Matched.Jobs) != 0 {
		t.Errorf("%+v", a)
	}
	if _, err := w.Action(t.Context(), a.ID, []string{"h"}); domain.CodeOf(err) != domain.NotFound {
		t.Errorf("a stranger sees the action: %v", err)
	}
	if all, err := w.Actions(t.Context(), []string{"h"}, 1000, 10); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := w.Actions(t.Context(), []string{"g", "h"}, 1000, 10); err != nil || len(all) != 3 || all[0].ID != a.ID {
		t.Errorf("%+v, %v", all, err)
	}
}

// A retry waits while its group has no room, and then continues.
func TestFullGroup(t *testing.T) {
	w := newWorld(t)
	w.exec(`UPDATE groups SET limits = '{"max_live_runs": 20}' WHERE name = 'g'`)
	w.failed(w.job, "g", 30)
	a := w.create(bulk.Retry, bulk.Filter{JobID: w.job})
	step, err := w.Step(t.Context(), a.ID)
	if err != nil || step.Wait == 0 || step.Ended {
		t.Fatalf("%+v, %v", step, err)
	}
	if a = w.action(a.ID); a.State != bulk.Running || a.Done < 20 || a.Done == 30 || a.Failed != 0 || !strings.Contains(a.Note, "max-live-runs") {
		t.Errorf("%+v", a)
	}
	w.exec(`UPDATE groups SET limits = '{}' WHERE name = 'g'`)
	if a = w.end(a.ID); a.State != bulk.Done || a.Done != 30 || a.Note != "" || w.count(`SELECT count(DISTINCT param) FROM runs_live`) != 30 {
		t.Errorf("%+v", a)
	}
}

func TestAtMostTwenty(t *testing.T) {
	w := newWorld(t)
	var last bulk.Action
	for range bulk.UnfinishedMost {
		last = w.create(bulk.Kill, bulk.Filter{Group: "g"})
	}
	if _, err := w.Create(t.Context(), w.user, "", bulk.Kill, bulk.Filter{Group: "g"}); domain.CodeOf(err) != domain.Limited {
		t.Errorf("one more: %v", err)
	}
	w.end(last.ID)
	w.create(bulk.Kill, bulk.Filter{Group: "g"})
}

// A count ends at its bound, and says so.
func TestCountIsBounded(t *testing.T) {
	w := newWorld(t)
	other := w.newJob("g", "other")
	w.failed(w.job, "g", 10_600)
	w.failed(other, "g", 3)
	m, err := w.Preview(t.Context(), w.user, bulk.Retry, bulk.Filter{Group: "g"})
	if err != nil || !m.AtLeast || m.Runs > 10_500 || m.Jobs[0].JobID != w.job {
		t.Errorf("%+v, %v", m, err)
	}
	if n := w.count(`SELECT count(*) FROM bulk_actions`); n != 0 {
		t.Errorf("the preview made %d actions", n)
	}
}
