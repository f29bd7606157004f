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
	for _, err := range []error{err, rotated, s.DescribeGroup(t.Context(), "g", ""), s.DeleteGroup(t.Context(), "g")} {
		if domain.CodeOf(err) != domain.NotFound {
			t.Errorf("got %v, want NotFound", err)
		}
	}
}
