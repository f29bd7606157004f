// Package directory knows which groups are open for executors of XXL-JOB, and checks who may speak for them.
//
// The truth is in Postgres. A Directory reads it every few seconds, and keeps what it has read while Postgres is away. So a group that is
// opened, changed or deleted takes effect within Refresh.
//
// A caller may speak for a group if it has the group's access token and calls from a network that is allowed for the group. Several groups may
// share one token. A group without a token has only its networks as protection. The answers do not reveal which groups exist: a wrong
// token, a wrong network and an unknown group get the same error.
package directory

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/reach"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

// Refresh is the pause between two readings.
const Refresh = 2 * time.Second

// page is how many groups one query reads.
const page = 500

// ErrDenied means that a caller may not speak for a group. It does not reveal why; Directory logs the reason.
var ErrDenied = domain.NewError(domain.Forbidden,
	"the access token is wrong, or no group is open for this app name and from this address; see: belfry group xxl-token --help")

// Store lists the open groups by name, starting after the given name.
type Store interface {
	Groups(ctx context.Context, after string, limit int) ([]gateway.Group, error)
}

// entry is an open group, with the digest of its token.
type entry struct {
	gateway.Group
	token [sha256.Size]byte
}

// snapshot is what was read at one time. It is never changed.
type snapshot struct {
	groups []entry
	byApp  map[string]int
	byName map[string]int
}

// Directory is safe for concurrent use.
type Directory struct {
	store Store
	log   *slog.Logger
	now   atomic.Pointer[snapshot]

	first sync.Once
	ready chan struct{} // closed after the first reading
}

// New returns a Directory. Until it has read the groups, it refuses all callers.
func New(s Store, log *slog.Logger) *Directory {
	d := &Directory{store: s, log: log, ready: make(chan struct{})}
	d.now.Store(&snapshot{})
	return d
}

// Run reads the open groups every Refresh until ctx ends.
func (d *Directory) Run(ctx context.Context) error {
	tick := time.NewTicker(Refresh)
	defer tick.Stop()
	failing := false
	for {
		err := d.Read(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			d.log.WarnContext(ctx, "cannot read which groups are open for executors of XXL-JOB, using what was read before", "err", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Read reads the open groups once.
func (d *Directory) Read(ctx context.Context) error {
	next := &snapshot{byApp: map[string]int{}, byName: map[string]int{}}
	for after := ""; ; {
		groups, err := d.store.Groups(ctx, after, page)
		if err != nil {
			return err
		}
		for _, g := range groups {
			next.byApp[g.App], next.byName[g.Name] = len(next.groups), len(next.groups)
			next.groups = append(next.groups, entry{g, sha256.Sum256([]byte(g.Token))})
			after = g.Name
		}
		if len(groups) < page {
			break
		}
	}
	d.report(ctx, next)
	d.now.Store(next)
	d.first.Do(func() { close(d.ready) })
	return nil
}

// report logs groups whose tokens have become unreadable.
func (d *Directory) report(ctx context.Context, next *snapshot) {
	for i := range next.groups {
		g := &next.groups[i]
		if old, known := d.Group(g.Name); g.Fault != nil && (!known || old.Fault == nil) {
			d.log.ErrorContext(ctx, "cannot read the access token of a group, so its executors are refused", "group", g.Name, "err", g.Fault)
		}
	}
}

// Ready is closed when the groups were read for the first time.
func (d *Directory) Ready() <-chan struct{} { return d.ready }

// Group returns an open group by its name.
func (d *Directory) Group(name string) (gateway.Group, bool) {
	s := d.now.Load()
	i, ok := s.byName[name]
	if !ok {
		return gateway.Group{}, false
	}
	return s.groups[i].Group, true
}

// Groups returns all open groups.
func (d *Directory) Groups() []gateway.Group {
	s := d.now.Load()
	out := make([]gateway.Group, len(s.groups))
	for i := range s.groups {
		out[i] = s.groups[i].Group
	}
	return out
}

// Speaker returns the group for whose executors a caller may register addresses, or ErrDenied.
func (d *Directory) Speaker(ctx context.Context, app, token string, source netip.Addr) (gateway.Group, error) {
	s := d.now.Load()
	i, ok := s.byApp[app]
	why := "there is no open group for the app name"
	if ok {
		if why = s.groups[i].denies(sha256.Sum256([]byte(token)), source); why == "" {
			return s.groups[i].Group, nil
		}
	}
	d.log.DebugContext(ctx, "refused a registration of an executor", "reason", why, "remote", source)
	return gateway.Group{}, ErrDenied
}

// Speaks returns the names of all groups for which a caller may report results, or ErrDenied if there is none.
func (d *Directory) Speaks(token string, source netip.Addr) (names []string, err error) {
	s := d.now.Load()
	digest := sha256.Sum256([]byte(token))
	for i := range s.groups {
		if s.groups[i].denies(digest, source) == "" {
			names = append(names, s.groups[i].Name)
		}
	}
	if len(names) == 0 {
		return nil, ErrDenied
	}
	return names, nil
}

// denies returns why a caller may not speak for the group, or "". Tokens are compared by their digests, in constant time.
func (e *entry) denies(token [sha256.Size]byte, source netip.Addr) string {
	switch {
	case e.Fault != nil:
		return "the group's token cannot be read"
	case e.Token != "" && subtle.ConstantTimeCompare(token[:], e.token[:]) != 1:
		return "the access token is wrong"
	case !reach.Contains(e.Networks, source):
		return "the network is not allowed"
	}
	return ""
}
