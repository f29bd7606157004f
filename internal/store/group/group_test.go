package group_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/bearer"
	"github.com/belfryhq/belfry/internal/store/group"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t *testing.T) *group.Store {
	t.Helper()
	s, _ := openPool(t)
	return s
}

func openPool(t *testing.T) (*group.Store, *pgxpool.Pool) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return group.New(s.Pool()), s.Pool()
}

func TestGroupOfToken(t *testing.T) {
	s, pool := openPool(t)
	_, token, err := s.CreateGroup(t.Context(), "g", "")
	if err != nil {
		t.Fatal(err)
	}
	if created, err := s.EnsureGroup(t.Context(), "g", ""); created || err != nil {
		t.Errorf("EnsureGroup of an existing group: %v, %v", created, err)
	}
	refused := func(what, token string) {
		t.Helper()
		_, _, err := s.GroupOfToken(t.Context(), token)
		if !errors.Is(err, group.ErrToken) || domain.CodeOf(err) != domain.Forbidden {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, wrong := range []string{"", "bfg_", token[:len(token)-1], token + "x", "bfs_" + token[4:], "bfg_" + strings.Repeat("\x00", 43)} {
		refused(wrong, wrong)
	}
	accepted := func(token string, least, most time.Duration) {
		t.Helper()
		if name, left, err := s.GroupOfToken(t.Context(), token); name != "g" || left < least || left > most || err != nil {
			t.Errorf("the group is %q, for %v, %v", name, left, err)
		}
	}
	rotate := func(overlap time.Duration) string {
		t.Helper()
		next, err := s.RotateGroupToken(t.Context(), "g", overlap)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	valid := func(tokens ...string) {
		t.Helper()
		got, err := s.TokensOfGroups(t.Context(), []string{"g", "none"})
		if err != nil || len(got) != 1 || len(got["g"]) != len(tokens) {
			t.Fatalf("%d tokens of groups, %v", len(got["g"]), err)
		}
		for i, token := range tokens {
			if !bytes.Equal(got["g"][i], bearer.Digest(token)) {
				t.Errorf("token %d is another one", i)
			}
		}
	}
	accepted(token, 0, 0)
	second := rotate(0)
	refused("the replaced token", token)
	accepted(second, 0, 0)
	valid(second)

	third := rotate(time.Hour)
	accepted(second, time.Minute, time.Hour)
	accepted(third, 0, 0)
	valid(third, second)
	if g, err := s.Group(t.Context(), "g"); err != nil || g.PreviousTokenUntil == nil || time.Until(g.PreviousTokenUntil.Time) < time.Minute {
		t.Errorf("previous_token_until is %v, %v", g.PreviousTokenUntil, err)
	}
	fourth := rotate(2 * time.Hour)
	refused("the third newest token", second)
	accepted(third, time.Hour, 2*time.Hour)
	accepted(fourth, 0, 0)
	fifth := rotate(0)
	refused("the token of an overlap, after a replacement without one", third)
	refused("the token that was replaced", fourth)
	valid(fifth)
	if g, err := s.Group(t.Context(), "g"); err != nil || g.PreviousTokenUntil != nil {
		t.Errorf("previous_token_until is %v, %v", g.PreviousTokenUntil, err)
	}

	// An overlap that has passed.
	sixth := rotate(time.Hour)
	if _, err := pool.Exec(t.Context(), `UPDATE groups SET previous_token_until = now() - interval '1 second'`); err != nil {
		t.Fatal(err)
	}
	refused("the previous token after its end", fifth)
	valid(sixth)
	if g, err := s.Group(t.Context(), "g"); err != nil || g.PreviousTokenUntil != nil {
		t.Errorf("previous_token_until is %v, %v", g.PreviousTokenUntil, err)
	}
}

func TestMissingGroup(t *testing.T) {
	s := open(t)
	_, err := s.Group(t.Context(), "g")
	_, rotated := s.RotateGroupToken(t.Context(), "g", 0)
	for _, err := range []error{err, rotated, s.DescribeGroup(t.Context(), "g", ""), s.LimitGroup(t.Context(), "g", domain.GroupLimitsChange{}), s.DeleteGroup(t.Context(), "g")} {
		if domain.CodeOf(err) != domain.NotFound {
			t.Errorf("got %v, want NotFound", err)
		}
	}
}

func TestLimits(t *testing.T) {
	s := open(t)
	for _, name := range []string{"a", "b"} {
		if _, _, err := s.CreateGroup(t.Context(), name, ""); err != nil {
			t.Fatal(err)
		}
	}
	jobs, logs := 7, int64(1<<40)
	for _, change := range []domain.GroupLimitsChange{{MaxJobs: &jobs}, {MaxLogBytesPerDay: &logs}} {
		if err := s.LimitGroup(t.Context(), "a", change); err != nil {
			t.Fatal(err)
		}
	}
	want := domain.DefaultGroupLimits()
	want.MaxJobs, want.MaxLogBytesPerDay = jobs, logs
	g, err := s.Group(t.Context(), "a")
	if err != nil || g.Limits != want {
		t.Errorf("got %+v, %v, want %+v", g.Limits, err, want)
	}
	both, err := s.GroupLimits(t.Context(), []string{"a", "b", "none"})
	if err != nil || len(both) != 2 || both["a"] != want || both["b"] != domain.DefaultGroupLimits() {
		t.Errorf("got %+v, %v", both, err)
	}
}
