package view_test

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
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
