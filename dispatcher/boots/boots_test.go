package boots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// table is a Store that lists what it was asked to record.
type table struct {
	fails bool
	calls []string
}

func (t *table) SeeBoots(_ context.Context, instances []domain.Instance) error {
	if t.fails {
		return errors.New("no database")
	}
	var ids []string
	for _, i := range instances {
		ids = append(ids, i.Group+"/"+i.BootID)
	}
	t.calls = append(t.calls, strings.Join(ids, " "))
	return nil
}

func living(group string, boots ...string) (all []domain.Instance) {
	for n, b := range boots {
		all = append(all, domain.Instance{Group: group, ID: fmt.Sprint("i", n), BootID: b})
	}
	return all
}

// A process is recorded when it appears, again ten minutes later, and after an error as soon as the database answers.
func TestRecord(t *testing.T) {
	var fleet []domain.Instance
	db := &table{}
	r := New(db, func(string) []domain.Instance { return fleet }, slog.New(slog.DiscardHandler))
	start := time.Now()
	step := func(after time.Duration, want string) {
		t.Helper()
		db.calls = nil
		if err := r.record(t.Context(), start.Add(after)); (err != nil) != db.fails {
			t.Errorf("after %v: %v", after, err)
		}
		if got := strings.Join(db.calls, ", "); got != want {
			t.Errorf("after %v it recorded %q, want %q", after, got, want)
		}
	}
	step(0, "")
	fleet = append(living("g", "a", "b", "b"), living("h", "a")...)
	step(5*time.Second, "g/a g/b h/a")
	step(10*time.Second, "")
	fleet = living("g", "a", "c")
	db.fails = true
	step(15*time.Second, "")
	db.fails = false
	step(20*time.Second, "g/c")
	step(11*time.Minute, "g/a g/c")
	fleet = nil
	step(12*time.Minute, "")
	fleet = living("g", "a")
	step(13*time.Minute, "g/a")
}

// A group that makes up processes is not recorded any further for an hour, and the others are.
func TestQuota(t *testing.T) {
	var fleet []domain.Instance
	db := &table{}
	r := New(db, func(string) []domain.Instance { return fleet }, slog.New(slog.DiscardHandler))
	now := time.Now()
	record := func() string {
		t.Helper()
		db.calls = nil
		if err := r.record(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		return strings.Join(db.calls, " ")
	}
	recorded := 0
	for wave := range 8 {
		boots := make([]string, batch)
		for i := range boots {
			boots[i] = fmt.Sprint(wave, ".", i)
		}
		fleet = living("flood", boots...)
		recorded += len(strings.Fields(record()))
	}
	if recorded != hourly {
		t.Errorf("%d processes of one group were recorded, want %d", recorded, hourly)
	}
	fleet = append(living("flood", "late"), living("g", "a")...)
	if got := record(); got != "g/a" {
		t.Errorf("it recorded %q", got)
	}
	now = now.Add(time.Hour)
	if got := record(); got != "flood/late g/a" && got != "flood/late" {
		t.Errorf("an hour later it recorded %q", got)
	}
}
