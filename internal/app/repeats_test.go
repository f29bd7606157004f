package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// logged returns the messages of JSON records, each with the number of suppressed ones if there is one.
func logged(t *testing.T, text string) (all []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var r struct {
			Msg, Group string
			Suppressed int
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %d", r.Msg, r.Group, r.Suppressed)))
	}
	return all
}

func TestRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(limitRepeats(slog.NewJSONHandler(&out, nil)))
		away := errors.New("away")
		expect := func(what string, want ...string) {
			t.Helper()
			if got := logged(t, out.String()); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: got %q, want %q", what, got, want)
			}
			out.Reset()
		}

		for n := range 100 {
			log.Warn("cannot settle results, retrying", "results", n, "err", fmt.Errorf("try %d: %w", n, away))
			time.Sleep(100 * time.Millisecond)
		}
		expect("the first record passes", "cannot settle results, retrying  0")
		time.Sleep(repeatAfter)
		log.Warn("cannot settle results, retrying", "err", away)
		expect("a minute later one passes", "cannot settle results, retrying  99")

		part := log.With("part", "river")
		part.Error("Producer: Error fetching jobs", "error", "away")
		log.With("part", "other").Error("Producer: Error fetching jobs", "error", "away")
		part.With("job_id", 7).Error("Producer: Error fetching jobs", "error", "away")
		expect("a library is limited, and each part has its own limit", "Producer: Error fetching jobs  0", "Producer: Error fetching jobs  0")

		for _, group := range []string{"a", "b", "a"} {
			log.Warn("cannot announce, retrying", "group", group, "err", away)
		}
		expect("another group is another failure", "cannot announce, retrying a 0", "cannot announce, retrying b 0")

		for range 3 {
			log.Warn("an instance died, its attempts are lost", "group", "a")
			log.Info("reconnected", "err", away)
		}
		if got := logged(t, out.String()); len(got) != 6 {
			t.Errorf("facts were suppressed: %q", got)
		}
	})
}

// While Postgres is away, all parts of a process share a few records, and failures with another cause pass.
func TestRepeatsShareAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(limitRepeats(slog.NewJSONHandler(&out, nil)))
		away := fmt.Errorf("begin: %w", domain.NewError(domain.Unavailable, "Postgres cannot be reached"))
		for range 600 {
			for part := range 40 {
				log.With("part", fmt.Sprint(part)).Warn("cannot do its part, retrying", "err", away)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(logged(t, out.String())); n < outageBurst || n > outageBurst+6 {
			t.Errorf("%d lines in a minute", n)
		}
		out.Reset()
		log.Error("a fire time has no run, the missed ledger lists it", "err", errors.New("unexplained"))
		if n := len(logged(t, out.String())); n != 1 {
			t.Errorf("another failure logged %d lines", n)
		}
		time.Sleep(repeatAfter)
		log.With("part", "39").Warn("cannot do its part, retrying", "err", away)
		if last := logged(t, out.String()); !strings.HasSuffix(last[len(last)-1], " 600") {
			t.Errorf("the next record of a part that was suppressed is %q", last)
		}
	})
}

// The memory of the handler is bounded, however many groups fail.
func TestRepeatsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRepeatCounts()
		for n := range 3 * repeatsKept {
			if n == repeatsKept {
				time.Sleep(2 * repeatAfter)
			}
			if _, pass := c.count(fmt.Sprint(n), false, time.Now()); !pass {
				t.Fatalf("the first record of failure %d did not pass", n)
			}
			if len(c.last) > repeatsKept {
				t.Fatalf("%d failures are remembered", len(c.last))
			}
		}
	})
}
