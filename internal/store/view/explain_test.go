package view_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/view"
)

// Rows of three kinds are shown: with a note, without one, and with a note that a binary of the previous release has left beside
// its own sentence.
func TestExplanationsOfOldAndNewRows(t *testing.T) {
	f := newFixture(t)
	note := explain.Of(explain.First, 3)
	said := note.English()
	for _, tt := range []struct {
		name, sentence string
		note           *explain.Note
		want           explain.Code
		text           string
	}{
		{"both forms", said, &note, explain.First, said},
		{"an old row", "as it was", nil, explain.Text, "as it was"},
		{"an old note", "last of 2 by name", &note, explain.Text, "last of 2 by name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check := func(what string, e *explain.Explanation) {
				t.Helper()
				if e == nil || e.Code != tt.want || e.Text != tt.text {
					t.Errorf("%s: %+v, want %s: %s", what, e, tt.want, tt.text)
				}
			}
			waits, ended := domain.NewRunID(time.Now()), domain.NewRunID(time.Now())
			f.live(waits, 1, "default", "queued")
			f.finished(ended, 1, "default", "succeeded", "", "manual")
			f.exec(`UPDATE runs_live SET waiting = $2, waiting_note = $3, route = $2, route_note = $3 WHERE id = $1`, waits, tt.sentence, tt.note)
			f.exec(`UPDATE runs_history SET route = $2, route_note = $3 WHERE id = $1`, ended, tt.sentence, tt.note)
			f.exec(`INSERT INTO missed (job_id, first_fire_time, last_fire_time, count, policy, why, why_note) VALUES (1, now(), now(), 1, 'skip', $1, $2)`,
				tt.sentence, tt.note)
			r, err := f.view.Run(t.Context(), waits)
			if err != nil {
				t.Fatal(err)
			}
			check("why it waits", r.Waiting)
			check("its route", r.Route)
			if r, err = f.view.Run(t.Context(), ended); err != nil || r.Waiting != nil {
				t.Errorf("of the history: %+v (%v)", r.Waiting, err)
			}
			check("the route in the history", r.Route)
			missed, err := f.view.Missed(t.Context(), 1, 0, 1)
			if err != nil || len(missed) != 1 {
				t.Fatalf("%+v (%v)", missed, err)
			}
			check("the ledger", missed[0].Why)
		})
	}
}

// A binary of the previous release empties the sentence and leaves the note. Such a run has no explanation.
func TestNoteWithoutSentence(t *testing.T) {
	f := newFixture(t)
	id := domain.NewRunID(time.Now())
	f.live(id, 1, "default", "running")
	f.exec(`UPDATE runs_live SET waiting = NULL, waiting_note = $2 WHERE id = $1`, id, explain.Of(explain.BehindOthers))
	if r, err := f.view.Run(t.Context(), id); err != nil || r.Waiting != nil || r.Route != nil {
		t.Errorf("%+v, %+v (%v)", r.Waiting, r.Route, err)
	}
}

// A run that waits behind others shows why the first of them waits.
func TestFirstInLine(t *testing.T) {
	f := newFixture(t)
	now := time.Now()
	wait := func(group string, due time.Time, why explain.Note) domain.RunID {
		t.Helper()
		id := domain.NewRunID(due)
		f.live(id, 1, group, "queued")
		f.exec(`UPDATE runs_live SET waiting = $2, waiting_note = $3 WHERE id = $1`, id, why.English(), string(why))
		f.exec(`INSERT INTO runs_waiting (run_id, job_id, group_name, handler, due_at, deadline_at) VALUES ($1, 1, $2, 'echo', $3, now())`, id, group, due)
		return id
	}
	wait("g", now, explain.Of(explain.NoInstance, "g"))
	behind, last := wait("g", now.Add(time.Second), explain.Of(explain.BehindOthers)), wait("g", now.Add(2*time.Second), explain.Of(explain.BehindOthers))
	alone := wait("h", now, explain.Of(explain.BehindOthers))
	for id, want := range map[domain.RunID]explain.Code{behind: explain.NoInstance, last: explain.NoInstance, alone: explain.BehindOthers} {
		if r, err := f.view.Run(t.Context(), id); err != nil || r.Waiting == nil || r.Waiting.Code != want {
			t.Errorf("it waits because of %+v, want %s (%v)", r.Waiting, want, err)
		}
	}
	runs, _, err := f.view.Runs(t.Context(), view.RunFilter{Group: "g", Limit: 10})
	if err != nil || len(runs) != 3 {
		t.Fatalf("%d runs (%v)", len(runs), err)
	}
	for _, r := range runs {
		if r.Waiting.Code != explain.NoInstance {
			t.Errorf("in the list, a run waits because of %+v", r.Waiting)
		}
	}
}

// The last wait of a run stays readable, with its duration, while it runs and after its end.
func TestWaited(t *testing.T) {
	f := newFixture(t)
	runs, ended, never := domain.NewRunID(time.Now()), domain.NewRunID(time.Now()), domain.NewRunID(time.Now())
	f.live(runs, 1, "g", "running")
	f.finished(ended, 1, "g", "succeeded", "", "manual")
	f.finished(never, 1, "g", "succeeded", "", "manual")
	note := explain.Of(explain.NoInstance, "g")
	f.exec(`UPDATE runs_live SET waiting_note = $1, waited_ms = 1500`, string(note))
	f.exec(`UPDATE runs_history SET waited_note = $2, waited_ms = 1500 WHERE id = $1`, ended, string(note))
	for _, id := range []domain.RunID{runs, ended} {
		r, err := f.view.Run(t.Context(), id)
		if err != nil || r.Waiting != nil || r.Waited == nil || r.Waited.Code != explain.NoInstance || r.Waited.Text != note.English() || r.Waited.DurationMS != 1500 {
			t.Errorf("%s: waiting %+v, waited %+v (%v)", r.State, r.Waiting, r.Waited, err)
		}
	}
	if r, err := f.view.Run(t.Context(), never); err != nil || r.Waited != nil {
		t.Errorf("a run that did not wait: %+v (%v)", r.Waited, err)
	}
}

// The message of a run or an attempt has parts if the engine wrote it. A message of a binary of the previous release has none,
// even if the row has older notes.
func TestMessagesOfOldAndNewRows(t *testing.T) {
	f := newFixture(t)
	notes := explain.Join(explain.Of(explain.KilledBy, "ann"), explain.Of(explain.InstanceDied, "one"))
	for _, tt := range []struct {
		name, message string
		notes         *explain.Notes
		want          string
	}{
		{"the engine's", "killed by ann: instance one died", &notes, "killed_by instance_died"},
		{"the handler's, or an old row", "killed by ann: instance one died", nil, ""},
		{"an old note", "exit status 3", &notes, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check := func(what string, parts []explain.Explanation) {
				t.Helper()
				var codes []string
				for _, p := range parts {
					codes = append(codes, string(p.Code))
				}
				if got := strings.Join(codes, " "); got != tt.want {
					t.Errorf("%s has %s, want %s", what, got, tt.want)
				}
			}
			waits, ended := domain.NewRunID(time.Now()), domain.NewRunID(time.Now())
			f.live(waits, 1, "default", "retrying")
			f.finished(ended, 1, "default", "failed", "lost", "manual")
			f.exec(`UPDATE runs_live SET message = $2, message_notes = $3, attempt = 1 WHERE id = $1`, waits, tt.message, tt.notes)
			f.exec(`UPDATE runs_history SET message = $2, message_notes = $3, attempt = 2 WHERE id = $1`, ended, tt.message, tt.notes)
			f.exec(`INSERT INTO run_attempts (run_id, attempt, instance, finished_at, outcome, reason, message, message_notes, last_line)
				SELECT unnest($1::uuid[]), 1, 'one', now(), 'failed', 'lost', $2, $3, 0`, []domain.RunID{waits, ended}, tt.message, tt.notes)
			for name, id := range map[string]domain.RunID{"the retrying run": waits, "the ended run": ended} {
				r, err := f.view.Run(t.Context(), id)
				if err != nil || r.Message != tt.message || r.Attempts[0].Message != tt.message {
					t.Fatalf("%s: %+v (%v)", name, r, err)
				}
				check(name, r.MessageParts)
				for _, a := range r.Attempts {
					check(fmt.Sprintf("attempt %d of %s", a.Attempt, name), a.MessageParts)
				}
			}
			runs, _, err := f.view.Runs(t.Context(), view.RunFilter{Limit: 2})
			if err != nil || len(runs) != 2 {
				t.Fatalf("%+v (%v)", runs, err)
			}
			for _, r := range runs {
				check("in the list", r.MessageParts)
			}
		})
	}
}
