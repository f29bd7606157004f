package view_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/logchunk"
	"github.com/belfryhq/belfry/internal/store/view"
)

// longLog stores lines in chunks of 500. Every thousandth line is a warning with its number and color codes.
func (f *fixture) longLog(id domain.RunID, lines int) {
	f.t.Helper()
	const size = 500
	for first := 1; first <= lines; first += size {
		chunk := make([]domain.LogLine, size)
		for i := range chunk {
			n := first + i
			chunk[i] = domain.LogLine{N: int64(n), Level: "info", Text: fmt.Sprintf("line %d", n)}
			if n%1000 == 0 {
				chunk[i].Level, chunk[i].Text = "warn", fmt.Sprintf("\x1b[31mDis\x1b[1mk\x1b[0m is full: %d", n)
			}
		}
		f.exec(`INSERT INTO run_logs (run_id, attempt, first_line, last_line, stored_at, lines) VALUES ($1, 1, $2, $3, now() - interval '1 minute', $4)`,
			id, first, first+size-1, logchunk.Encode(chunk))
	}
}

// A page near the end of a long log reads no more chunks than a page near the beginning.
func TestLogPagesCostTheSameEverywhere(t *testing.T) {
	f := newFixture(t)
	id := domain.NewRunID(time.Now())
	f.live(id, 1, "g", "running")
	f.longLog(id, 100_000)
	f.exec(`ANALYZE run_logs`)
	for _, from := range []int64{1, 50_001, 99_001} {
		if p := f.log(id, from, 1000); len(p.Lines) != 1000 || p.Lines[0].N != from || p.Next != from+1000 {
			t.Errorf("from %d: %d lines, next %d", from, len(p.Lines), p.Next)
		}
	}
	early, late := f.chunksRead(id, 10_001), f.chunksRead(id, 99_001)
	if early == 0 || late > early {
		t.Errorf("of %d chunks an early page reads %.0f, a late one %.0f", 200, early, late)
	}
	if p := f.log(id, -700, 1000); len(p.Lines) != 700 || p.Lines[0].N != 99_301 {
		t.Errorf("the last 700: %d lines from %d", len(p.Lines), p.Lines[0].N)
	}
	if p := f.log(id, -1, 1000); len(p.Lines) != 1 || p.Lines[0].N != 100_000 {
		t.Errorf("the last one: %+v", p.Lines)
	}
}

// chunksRead runs the statement that pages are read with, and returns how many rows it reads.
func (f *fixture) chunksRead(id domain.RunID, line int64) (rows float64) {
	f.t.Helper()
	queries, err := os.ReadFile("query/runs.sql")
	if err != nil {
		f.t.Fatal(err)
	}
	_, sql, _ := strings.Cut(string(queries), "-- name: LogChunks :many")
	sql, _, _ = strings.Cut(sql, ";")
	_, sql, _ = strings.Cut(sql, "\nSELECT")
	sql = strings.NewReplacer("@run_id", "'"+id.String()+"'::uuid", "@attempt", "1", "@low_line", fmt.Sprint(line-4999), "@line", fmt.Sprint(line),
		"@max_rows", "16").Replace(sql)
	var text string
	if err := f.pool.QueryRow(f.t.Context(), `EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) SELECT`+sql).Scan(&text); err != nil {
		f.t.Fatal(err)
	}
	type node struct {
		Relation string  `json:"Relation Name"`
		Rows     float64 `json:"Actual Rows"`
		Loops    float64 `json:"Actual Loops"`
		Filtered float64 `json:"Rows Removed by Filter"`
		Plans    []node
	}
	var plans []struct{ Plan node }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		f.t.Fatal(err)
	}
	var add func(node)
	add = func(n node) {
		if n.Relation != "" {
			rows += (n.Rows + n.Filtered) * n.Loops
		}
		for _, p := range n.Plans {
			add(p)
		}
	}
	add(plans[0].Plan)
	return rows
}

func TestLogSearch(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: a log of 210,000 lines; -short leaves it out")
	}
	f := newFixture(t)
	id := domain.NewRunID(time.Now())
	f.live(id, 1, "g", "running")
	f.longLog(id, 210_000)
	search := func(filter view.LogFilter, limit int) (found []int64, pages int) {
		t.Helper()
		for from := int64(1); ; pages++ {
			p, err := f.view.Log(t.Context(), id, from, limit, filter)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range p.Lines {
				found = append(found, l.N)
			}
			if p.Next <= from || pages > 300 {
				return found, pages
			}
			from = p.Next
		}
	}
	for _, c := range []struct {
		what   string
		filter view.LogFilter
		limit  int
		want   string
	}{
		{"a word in colours", view.LogFilter{Text: "disk is FULL"}, 1000, "210 from 1000"},
		{"with small pages", view.LogFilter{Text: "disk is full"}, 7, "210 from 1000"},
		{"of a level", view.LogFilter{Levels: []string{"warn", "error"}}, 1000, "210 from 1000"},
		{"of another level", view.LogFilter{Text: "disk", Levels: []string{"error"}}, 1000, "0"},
		{"one line", view.LogFilter{Text: "line 209999"}, 1000, "1 from 209999"},
		{"nothing", view.LogFilter{Text: "[31m"}, 1000, "0"},
	} {
		found, _ := search(c.filter, c.limit)
		got := fmt.Sprint(len(found))
		if len(found) > 0 {
			got += fmt.Sprintf(" from %d", found[0])
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	// The log is longer than the lines that one page may search.
	p, err := f.view.Log(t.Context(), id, 1, 1000, view.LogFilter{Text: "no such word"})
	if err != nil || len(p.Lines) != 0 || p.Next <= 1 || p.Next > 205_000 || p.End {
		t.Errorf("a search goes on to %d, end %v, %v", p.Next, p.End, err)
	}
	if p := f.log(id, 1000, 1); p.Lines[0].Text != "\x1b[31mDis\x1b[1mk\x1b[0m is full: 1000" {
		t.Errorf("colours are lost: %q", p.Lines[0].Text)
	}
}
