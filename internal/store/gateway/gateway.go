package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/gateway/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/seal"
)

// Store keeps the gateways' state in Postgres. It is safe for concurrent use.
type Store struct {
	pool *pgxpool.Pool
	q    *sqlcgen.Queries
	seal *seal.Seal
}

// New returns a Store on a pool whose connections have Belfry's schema on their search path and map run ids to uuid. key encrypts access tokens; if it
// is empty, they are stored unencrypted.
func New(pool *pgxpool.Pool, key string) *Store {
	return &Store{pool: pool, q: sqlcgen.New(pool), seal: seal.New(key, "the access tokens of executors")}
}

// Group is a group that is open for executors of XXL-JOB.
type Group struct {
	Name     string
	App      string         // the app name of its executors, unique among open groups
	Token    string         // their access token; "": they have none
	Networks []netip.Prefix // in which they may be
	Capacity int            // slots of each instance, 1 to 65,536
	// Fault is why the token cannot be read. Nothing may then be accepted or sent for the group.
	Fault error
}

// Encrypts reports whether access tokens are stored encrypted.
func (s *Store) Encrypts() bool { return s.seal.Encrypts() }

// OpenGroup opens a group for executors of XXL-JOB, or changes how it is open. Conflict means that another open group has the app name, Invalid that
// there is no such group or that a value is out of its range.
func (s *Store) OpenGroup(ctx context.Context, g Group) error {
	var token []byte
	if g.Token != "" {
		token = s.seal.Close(tokenOf(g.Name), []byte(g.Token))
	}
	networks := make([]netip.Prefix, len(g.Networks))
	for i, n := range g.Networks {
		networks[i] = n.Masked()
	}
	return pgerr.Translate(s.q.OpenGroup(ctx, sqlcgen.OpenGroupParams{GroupName: g.Name, AppName: g.App, Token: token, Networks: networks, Capacity: int32(g.Capacity)}))
}

// Groups lists the open groups by name, starting after the given name.
func (s *Store) Groups(ctx context.Context, after string, limit int) ([]Group, error) {
	rows, err := s.q.Groups(ctx, sqlcgen.GroupsParams{After: after, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make([]Group, len(rows))
	for i, r := range rows {
		out[i] = s.toGroup(r)
	}
	return out, nil
}

// Group returns an open group. NotFound means that there is none.
func (s *Store) Group(ctx context.Context, name string) (Group, error) {
	r, err := s.q.Group(ctx, name)
	if err != nil {
		return Group{}, pgerr.Translate(err)
	}
	return s.toGroup(sqlcgen.GroupsRow(r)), nil
}

func (s *Store) toGroup(r sqlcgen.GroupsRow) Group {
	token, err := s.seal.Open(tokenOf(r.GroupName), r.Token)
	return Group{Name: r.GroupName, App: r.AppName, Token: string(token), Networks: r.Networks, Capacity: int(r.Capacity), Fault: err}
}

// tokenOf is the name to which the access token of a group is bound.
func tokenOf(group string) string { return "gateway/" + group }

// Address is an executor that has registered.
type Address struct {
	Group, Instance string
	URL             string
	BootID          string
	Owner           string // the gateway process that serves it
	Epoch           int64  // grows with each take-over
	CreatedAt       time.Time
	RegisteredAt    time.Time // the last registration
	Registrations   int64
	Source          netip.Addr // from which the last registration came
	SourceChangedAt *time.Time // when a registration last came from another source than the one before; nil: never
	LeavingAt       *time.Time // when the executor said that it stops; nil: it has registered since
	DrainedAt       *time.Time // when an operator drained the instance; nil: it was not, or the executor has left and come back since
	Kind, Agent     string     // the kind of executor and its User-Agent
}

// Hold identifies an address in the epoch of its owner.
type Hold struct {
	Group, Instance string
	Epoch           int64
}

// Hold returns the hold of the address's owner.
func (a *Address) Hold() Hold { return Hold{a.Group, a.Instance, a.Epoch} }

// Registration is what an executor says about itself.
type Registration struct {
	Group, Instance, URL string
	Source               netip.Addr
	Kind, Agent          string
	BootID               string // for a new address
}

// Register records a registration. A new address belongs to owner, with a lease of that length. The epoch and the owner of a known address stay. NotFound means that
// the group is not open, Limited that it has most addresses. Simultaneous registrations can exceed most by their number.
func (s *Store) Register(ctx context.Context, owner string, r Registration, most int, lease time.Duration) (Address, error) {
	row, err := s.q.Register(ctx, sqlcgen.RegisterParams{
		GroupName: r.Group, Instance: r.Instance, Url: r.URL, BootID: r.BootID, Owner: owner, LeaseSeconds: lease.Seconds(),
		Source: r.Source.String(), Kind: r.Kind, Agent: r.Agent, Most: int32(most),
	})
	if err = pgerr.Translate(err); domain.CodeOf(err) != domain.NotFound {
		return toAddress(row), err
	}
	n, err := s.q.Opened(ctx, r.Group)
	switch {
	case err != nil:
		return Address{}, pgerr.Translate(err)
	case n == 0:
		return Address{}, domain.NewError(domain.NotFound, "the group is not open for executors of XXL-JOB")
	}
	return Address{}, domain.NewError(domain.Limited, fmt.Sprintf("the group has %d executors, which is its limit", most))
}

// Leave records that an executor stops. It does nothing if there is no such address.
func (s *Store) Leave(ctx context.Context, group, instance string) error {
	_, err := s.q.Leave(ctx, sqlcgen.LeaveParams{GroupName: group, Instance: instance})
	return pgerr.Translate(err)
}

// Drain records that an operator drains an address. The error is ErrNotHeld if the address is not the owner's.
func (s *Store) Drain(ctx context.Context, owner string, h Hold) error {
	n, err := s.q.Drain(ctx, sqlcgen.DrainParams{GroupName: h.Group, Instance: h.Instance, Owner: owner, Epoch: h.Epoch})
	if err == nil && n == 0 {
		return ErrNotHeld
	}
	return pgerr.Translate(err)
}

// Renew extends the leases of an owner, and returns those of the addresses that are still its own, in no order.
func (s *Store) Renew(ctx context.Context, owner string, holds []Hold, lease time.Duration) ([]Address, error) {
	groups, instances, epochs := split(holds)
	rows, err := s.q.Renew(ctx, sqlcgen.RenewParams{Owner: owner, LeaseSeconds: lease.Seconds(), GroupNames: groups, Instances: instances, Epochs: epochs})
	return toAddresses(rows), pgerr.Translate(err)
}

// Release ends the leases of an owner, so that other processes take the addresses over at once.
func (s *Store) Release(ctx context.Context, owner string, holds []Hold) error {
	groups, instances, epochs := split(holds)
	return pgerr.Translate(s.q.Release(ctx, sqlcgen.ReleaseParams{Owner: owner, GroupNames: groups, Instances: instances, Epochs: epochs}))
}

// TakeOver takes up to limit addresses whose leases have ended, and returns them. Their sends that were accepted are unstarted then, and those that were being
// sent are unknown.
func (s *Store) TakeOver(ctx context.Context, owner string, limit int, lease time.Duration) (taken []Address, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		rows, err := q.TakeOver(ctx, sqlcgen.TakeOverParams{Owner: owner, LeaseSeconds: lease.Seconds(), MaxRows: int32(limit)})
		if err != nil || len(rows) == 0 {
			return err
		}
		taken = toAddresses(rows)
		groups, instances, _ := split(holdsOf(taken))
		return q.EndHalfSent(ctx, sqlcgen.EndHalfSentParams{GroupNames: groups, Instances: instances})
	})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	return taken, nil
}

// Remove deletes an address, and with it ends its boot. It reports false and does nothing if the address is not the owner's, or has sends whose results are
// not settled.
func (s *Store) Remove(ctx context.Context, owner string, h Hold) (bool, error) {
	n, err := s.q.Remove(ctx, sqlcgen.RemoveParams{GroupName: h.Group, Instance: h.Instance, Owner: owner, Epoch: h.Epoch})
	return n == 1, pgerr.Translate(err)
}

func holdsOf(addresses []Address) []Hold {
	out := make([]Hold, len(addresses))
	for i := range addresses {
		out[i] = addresses[i].Hold()
	}
	return out
}

func split(holds []Hold) (groups, instances []string, epochs []int64) {
	for _, h := range holds {
		groups, instances, epochs = append(groups, h.Group), append(instances, h.Instance), append(epochs, h.Epoch)
	}
	return groups, instances, epochs
}

func toAddresses(rows []sqlcgen.GatewayAddress) []Address {
	out := make([]Address, len(rows))
	for i, r := range rows {
		out[i] = toAddress(r)
	}
	return out
}

func toAddress(r sqlcgen.GatewayAddress) Address {
	source, _ := netip.ParseAddr(r.Source) // Register has written it
	return Address{
		Group: r.GroupName, Instance: r.Instance, URL: r.Url, BootID: r.BootID, Owner: r.Owner, Epoch: r.Epoch, CreatedAt: r.CreatedAt, RegisteredAt: r.RegisteredAt,
		Registrations: r.Registrations, Source: source, SourceChangedAt: r.SourceChangedAt, LeavingAt: r.LeavingAt, DrainedAt: r.DrainedAt, Kind: r.Kind, Agent: r.Agent,
	}
}
