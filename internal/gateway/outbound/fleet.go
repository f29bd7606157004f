package outbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/gateway/batch"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/gateway/reach"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

// Addresses keeps the registered addresses. *gateway.Store documents the methods.
type Addresses interface {
	Register(ctx context.Context, owner string, r gateway.Registration, most int, lease time.Duration) (gateway.Address, error)
	Leave(ctx context.Context, group, instance string) error
	Drain(ctx context.Context, owner string, h gateway.Hold) error
	Renew(ctx context.Context, owner string, holds []gateway.Hold, lease time.Duration) ([]gateway.Address, error)
	Release(ctx context.Context, owner string, holds []gateway.Hold) error
	TakeOver(ctx context.Context, owner string, limit int, lease time.Duration) ([]gateway.Address, error)
	Remove(ctx context.Context, owner string, h gateway.Hold) (bool, error)
}

// Sends changes the runs that are sent to executors. *gateway.Store documents the methods.
type Sends interface {
	Accept(ctx context.Context, owner string, h gateway.Hold, offers []gateway.Offer) (map[gateway.Attempt]int64, error)
	RaiseBinds(ctx context.Context, offers []gateway.Offer) error
	Send(ctx context.Context, owner string, holds []gateway.Hold, logIDs []int64) (map[int64]time.Time, []time.Duration, error)
	Answer(ctx context.Context, answers []gateway.Answer) ([]int64, error)
	Withdraw(ctx context.Context, logIDs []int64) ([]int64, error)
	RequestKill(ctx context.Context, logIDs []int64, reason string) error
	Finish(ctx context.Context, groups []string, ends []gateway.End) ([]gateway.Disposition, error)
	Lose(ctx context.Context, group string, ends []gateway.End) ([]gateway.Disposition, error)
	Settle(ctx context.Context, attempts []gateway.SettledAttempt) ([]int64, error)
}

// Records reads the runs that are sent to executors, and deletes old ones. *gateway.Store documents the methods.
type Records interface {
	Known(ctx context.Context, attempts []gateway.Attempt) ([]gateway.Send, error)
	Outstanding(ctx context.Context, a *gateway.Address, after int64, limit int) ([]gateway.Send, error)
	Results(ctx context.Context, logIDs []int64) ([]gateway.Send, error)
	Unsettled(ctx context.Context, holds []gateway.Hold, limit int) ([]gateway.Send, error)
	Retried(ctx context.Context, runs []domain.RunID) ([]domain.RunID, error)
	WireIDs(ctx context.Context, group string, jobs []domain.JobID) (map[domain.JobID]int64, error)
	Script(ctx context.Context, job domain.JobID, version int) (gateway.Script, error)
	Sweep(ctx context.Context, after int64, limit int) (next, deleted int64, err error)
}

// WireIDs knows the ids that jobs have for executors.
type WireIDs interface {
	WireID(ctx context.Context, group string, job domain.JobID) (int64, error)
}

// Groups knows the open groups.
type Groups interface {
	Group(name string) (gateway.Group, bool)
}

// Config holds the dependencies and settings of a Fleet. All fields are required, except Registry and Patience.
type Config struct {
	Addresses Addresses
	Sends     Sends
	Records   Records
	WireIDs   WireIDs
	Groups    Groups
	Conn      *nats.Conn // without a reconnect buffer
	// Owner identifies this process among all gateways. It is new at each start.
	Owner string
	// Own returns the addresses on which Belfry listens in this process. They are never called.
	Own      func() []netip.AddrPort
	Log      *slog.Logger
	Registry prometheus.Registerer
	Patience address.Patience
}

// The times of ownership.
const (
	Lease      = 5 * time.Second
	RenewEvery = 2 * time.Second
	takeEvery  = time.Second
	// margin is how long before the end of its lease a process stops acting, because clocks do not run at exactly the same rate.
	margin = 300 * time.Millisecond
)

// The limits of a process.
const (
	mostAddresses = 500 // of a group
	mostTaken     = 100 // addresses in one take-over
	mostCalls     = 64  // requests to the executors of one group that start runs, at the same time
	storeTime     = 2 * time.Second
	dialTime      = 3 * time.Second
	sweepEvery    = time.Minute
	sweepRows     = 5000
	mostInBatch   = 500              // answers in one statement
	stopTime      = 15 * time.Second // for requests that are on their way when the process stops
	settleTime    = time.Second      // for results that are not settled then; later owners publish them again
)

// StopTime is how long Run may take after its context has ended.
const StopTime = stopTime + 15*time.Second

// Fleet serves addresses. Create one with New and call Run. It is safe for concurrent use.
type Fleet struct {
	Config
	results  *publisher
	sendings *batch.Batch[sending, map[int64]time.Time]
	answers  *batch.Batch[gateway.Answer, struct{}]
	settler  *settler
	ids      *wireIDs
	meters   meters

	work     context.Context // of what must be completed after Run's context has ended
	stopWork context.CancelFunc
	waiting  sync.WaitGroup // attempts whose requests are not made yet
	carrying sync.WaitGroup // these, and attempts whose requests have no answer yet

	takeEvery time.Duration
	mostTails int           // logs of one address that are read
	takeSoon  chan struct{} // capacity 1

	mu      sync.Mutex
	tenders map[place]*tender
	callers map[string]*caller // by group
	closing bool
}

// place names an address.
type place struct{ group, instance string }

// New returns a Fleet.
func New(c Config) *Fleet {
	if c.Patience == (address.Patience{}) {
		c.Patience = address.DefaultPatience()
	}
	f := &Fleet{
		Config: c, ids: newWireIDs(c.WireIDs, c.Records), tenders: make(map[place]*tender), callers: make(map[string]*caller), meters: newMeters(c.Registry),
		takeEvery: takeEvery, mostTails: mostTails, takeSoon: make(chan struct{}, 1),
	}
	f.work, f.stopWork = context.WithCancel(context.Background())
	f.results = newPublisher(f)
	f.sendings = batch.New(mostSends, nil, sendRest, f.recordSends)
	f.answers = batch.New(mostInBatch, nil, 0, f.storeAnswers)
	f.settler = &settler{f: f, wake: make(chan struct{}, 1), now: make(chan struct{}, 1)}
	if c.Registry != nil {
		f.meter(c.Registry)
	}
	return f
}

// Run serves addresses until ctx ends. Then it releases them, so that other processes take them over at once, and waits for the answers of requests that are on
// their way.
func (f *Fleet) Run(ctx context.Context) error {
	defer f.stopWork()
	publish, stopPublishing := context.WithCancel(f.work)
	var published sync.WaitGroup
	published.Go(func() { f.results.run(publish) })
	published.Go(func() { f.settler.run(publish) })
	lifecycle.Together(ctx, f.own, f.sweep)
	f.stop()
	stopPublishing()
	published.Wait()
	return nil
}

// sweep deletes old sends. There are as many as runs, so each sweep looks at part after part.
func (f *Fleet) sweep(ctx context.Context) {
	for lifecycle.Pause(ctx, sweepEvery) {
		for next, more := int64(0), true; more && ctx.Err() == nil; {
			var err error
			if next, _, err = f.Records.Sweep(ctx, next, sweepRows); err != nil && ctx.Err() == nil {
				f.Log.WarnContext(ctx, "cannot delete old runs of executors, retrying", "err", err)
			}
			more = err == nil && next > 0
		}
	}
}

// storeAnswers stores what executors have answered.
func (f *Fleet) storeAnswers(answers []gateway.Answer) (struct{}, error) {
	ctx, cancel := context.WithTimeout(f.work, storeTime)
	defer cancel()
	_, err := f.Sends.Answer(ctx, answers)
	return struct{}{}, err
}

// Register implements inbound.Addresses.
func (f *Fleet) Register(ctx context.Context, r gateway.Registration) error {
	begun := clock.Now()
	a, err := f.Addresses.Register(ctx, f.Owner, r, mostAddresses, Lease)
	if err != nil {
		return err
	}
	if a.Owner == f.Owner && a.Epoch == 1 && a.Registrations == 1 {
		f.Log.InfoContext(ctx, "an executor has registered", "group", a.Group, "instance", a.Instance, "url", a.URL)
		if !f.serve(a, begun) {
			f.release(ctx, []gateway.Hold{a.Hold()})
		}
	}
	return nil
}

// Leave implements inbound.Addresses.
func (f *Fleet) Leave(ctx context.Context, group, instance string) error {
	if err := f.Addresses.Leave(ctx, group, instance); err != nil {
		return err
	}
	if t := f.find(place{group, instance}); t != nil {
		t.leaves()
	}
	return nil
}

// Check implements inbound.Addresses.
func (f *Fleet) Check(group string, to netip.AddrPort) error {
	g, ok := f.Groups.Group(group)
	if !ok {
		return domain.NewError(domain.NotFound, "the group is not open for executors of XXL-JOB")
	}
	if err := reach.New(g.Networks, f.Own, dialTime).Check(to); err != nil {
		return domain.NewError(domain.Forbidden, err.Error())
	}
	return nil
}

// Stored publishes the results of sends that were stored by this process.
func (f *Fleet) Stored(logIDs []int64) { f.results.soon(logIDs) }

// caller calls the executors of a group.
type caller struct {
	client *protocol.Client
	group  gateway.Group
	calls  chan struct{} // limits requests that start runs
}

var errClosed = errors.New("the group is not open for executors of XXL-JOB, or its access token cannot be read")

// caller returns the caller of a group with its present settings.
func (f *Fleet) caller(group string) (*caller, error) {
	g, ok := f.Groups.Group(group)
	if !ok || g.Fault != nil {
		return nil, errClosed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.callers[group]
	if c != nil && c.group.Token == g.Token && c.group.App == g.App && slices.Equal(c.group.Networks, g.Networks) {
		return c, nil
	}
	dialer := reach.New(g.Networks, f.Own, dialTime)
	next := &caller{client: protocol.NewClient(protocol.Config{Dial: dialer.Dial}), group: g, calls: make(chan struct{}, mostCalls)}
	if c != nil {
		next.calls = c.calls
		c.client.Close()
	}
	f.callers[group] = next
	return next, nil
}

// executor returns the executor at a URL.
func (c *caller) executor(url string) (*protocol.Executor, error) {
	a, err := protocol.ParseAddress(url)
	if err != nil {
		return nil, fmt.Errorf("the address %s: %w", url, err)
	}
	return c.client.Executor(a, c.group.App, c.group.Token), nil
}
