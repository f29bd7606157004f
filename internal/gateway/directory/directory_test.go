package directory_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/directory"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

// list is a store. A nil list is a store that cannot be reached.
type list struct {
	mu     sync.Mutex
	groups []gateway.Group
	reads  int
}

func (l *list) set(groups ...gateway.Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.groups = groups
}

func (l *list) Groups(_ context.Context, after string, limit int) ([]gateway.Group, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if l.groups == nil {
		return nil, domain.NewError(domain.Unavailable, "away")
	}
	var out []gateway.Group
	for _, g := range l.groups {
		if g.Name > after && len(out) < limit {
			out = append(out, g)
		}
	}
	return out, nil
}

func group(name, app, token string, networks ...string) gateway.Group {
	g := gateway.Group{Name: name, App: app, Token: token, Capacity: 1}
	for _, n := range networks {
		g.Networks = append(g.Networks, netip.MustParsePrefix(n))
	}
	return g
}

func ready(d *directory.Directory) bool {
	select {
	case <-d.Ready():
		return true
	default:
		return false
	}
}

func TestSpeakers(t *testing.T) {
	broken := group("e", "e", "", "10.0.0.0/8")
	broken.Fault = errors.New("sealed with another key")
	s := &list{groups: []gateway.Group{
		group("a", "App.A", "secret", "10.0.0.0/8"), group("b", "b", "secret", "10.1.0.0/16"), group("c", "c", "", "192.168.0.0/16"), group("d", "d", "secret"), broken,
	}}
	var log strings.Builder
	d := directory.New(s, slog.New(slog.NewTextHandler(&log, nil)))
	if _, err := d.Speaker(t.Context(), "App.A", "secret", netip.MustParseAddr("10.0.0.1")); !errors.Is(err, directory.ErrDenied) || ready(d) {
		t.Errorf("before the first reading: %v", err)
	}
	for range 2 {
		if err := d.Read(t.Context()); err != nil || !ready(d) {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "cannot read the access token"); n != 1 {
		t.Errorf("the unreadable token is logged %d times:\n%s", n, &log)
	}
	for _, tt := range []struct{ app, token, source, group, groups string }{
		{"App.A", "secret", "10.1.0.1", "a", "a b"},
		{"App.A", "secret", "::ffff:10.0.0.1", "a", "a"},
		{"a", "secret", "10.0.0.1", "", "a"}, // the name of the group is not its app name
		{"App.A", "wrong", "10.0.0.1", "", ""},
		{"App.A", "", "10.0.0.1", "", ""},
		{"App.A", "secret", "11.0.0.1", "", ""},
		{"c", "anything", "192.168.1.1", "c", "c"},
		{"c", "", "192.168.1.1", "c", "c"},
		{"c", "", "127.0.0.1", "", ""},
		{"d", "secret", "127.0.0.1", "", ""}, // without networks, no caller is allowed
		{"e", "", "10.0.0.1", "", ""},
		{"none", "secret", "10.0.0.1", "", "a"},
	} {
		source := netip.MustParseAddr(tt.source)
		g, err := d.Speaker(t.Context(), tt.app, tt.token, source)
		if g.Name != tt.group || (err == nil) != (tt.group != "") || err != nil && !errors.Is(err, directory.ErrDenied) {
			t.Errorf("%+v registers for %q, %v", tt, g.Name, err)
		}
		names, err := d.Speaks(tt.token, source)
		if strings.Join(names, " ") != tt.groups || (err == nil) != (tt.groups != "") {
			t.Errorf("%+v reports for %v, %v", tt, names, err)
		}
	}
	if g, ok := d.Group("a"); !ok || g.App != "App.A" || len(d.Groups()) != 5 {
		t.Errorf("%+v", g)
	}
	if _, ok := d.Group("App.A"); ok {
		t.Error("an app name is not the name of a group")
	}
}

func TestManyGroups(t *testing.T) {
	s := &list{}
	for i := range 1001 {
		s.groups = append(s.groups, group(fmt.Sprintf("g%04d", i), fmt.Sprint(i), "secret", "10.0.0.0/8"))
	}
	d := directory.New(s, slog.New(slog.DiscardHandler))
	if err := d.Read(t.Context()); err != nil || len(d.Groups()) != 1001 || s.reads != 3 {
		t.Errorf("%d groups in %d readings, %v", len(d.Groups()), s.reads, err)
	}
}

// While Postgres is away, the groups stay as they were. A change takes effect with the next reading.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &list{groups: []gateway.Group{group("a", "a", "", "10.0.0.0/8")}}
		var log strings.Builder
		d := directory.New(s, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		pass := func() {
			time.Sleep(directory.Refresh)
			synctest.Wait()
		}
		synctest.Wait()
		speaks := func(want ...string) {
			t.Helper()
			if got, _ := d.Speaks("", netip.MustParseAddr("10.0.0.1")); !slices.Equal(got, want) {
				t.Errorf("speaks for %v, want %v", got, want)
			}
		}
		speaks("a")
		s.set()
		pass()
		pass()
		speaks("a")
		if n := strings.Count(log.String(), "cannot read which groups"); n != 1 {
			t.Errorf("the outage is logged %d times", n)
		}
		s.set(group("b", "b", "", "10.0.0.0/8"))
		pass()
		speaks("b")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
