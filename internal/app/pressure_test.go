package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/view"
)

// The clients of a crowded Postgres are logged once for each time that it becomes crowded.
func TestCrowdedPostgres(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 1, AppName: "belfry test of crowds"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var log bytes.Buffer
	x := &pressure{view: view.NewPostgres(s.Pool()), log: slog.New(slog.NewJSONHandler(&log, nil))}
	for i, crowded := range []bool{false, true, true, false, true} {
		if err := x.reportClients(t.Context(), crowded, 95); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Count(log.String(), "1 belfry test of crowds"), []int{0, 1, 1, 1, 2}[i]; got != want {
			t.Errorf("after reading %d: %d records, want %d:\n%s", i, got, want, log.String())
		}
	}
}
