package group_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/group"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t *testing.T) *group.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return group.New(s.Pool())
}

func TestGroupOfToken(t *testing.T) {
	s := open(t)
	_, token, err := s.CreateGroup(t.Context(), "g", "")
	if err != nil {
		t.Fatal(err)
	}
	if created, err := s.EnsureGroup(t.Context(), "g", ""); created || err != nil {
		t.Errorf("EnsureGroup of an existing group: %v, %v", created, err)
	}
	for _, wrong := range []string{"", "bfg_", token[:len(token)-1], token + "x", "bfs_" + token[4:], "bfg_" + strings.Repeat("\x00", 43)} {
		if _, err := s.GroupOfToken(t.Context(), wrong); !errors.Is(err, group.ErrToken) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if name, err := s.GroupOfToken(t.Context(), token); name != "g" || err != nil {
		t.Errorf("the group is %q, %v", name, err)
	}
	next, err := s.RotateGroupToken(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.GroupOfToken(t.Context(), token); !errors.Is(err, group.ErrToken) {
		t.Errorf("the replaced token: %v", err)
	}
	if name, err := s.GroupOfToken(t.Context(), next); name != "g" || err != nil {
		t.Errorf("the group of the new token is %q, %v", name, err)
	}
}

func TestMissingGroup(t *testing.T) {
	s := open(t)
	_, err := s.Group(t.Context(), "g")
	_, rotated := s.RotateGroupToken(t.Context(), "g")
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
