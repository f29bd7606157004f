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
	Renew(ctx context.Context, owner string, holds []gateway.Hold, lease time.Duration) ([]gateway.Address, error)
	Release(ctx context.Context, owner string, holds []gateway.Hold) error
	TakeOver(ctx context.Context, owner string, limit int, lease time.Duration) ([]gateway.Address, error)
	Remove(ctx context.Context, owner string, h gateway.Hold) (bool, error)
}

// Sends changes the runs that are sent to executors. *gateway.Store documents the methods.
type Sends interface {
	Accept(ctx context.Context, owner string, h gateway.Hold, offers []gateway.Offer) (map[gateway.Attempt]int64, error)
	RaiseBinds(ctx context.Context, offers []gateway.Offer) error
	Send(ctx context.Context, owner string, h gateway.Hold, logIDs []int64) (map[int64]time.Time, time.Duration, error)
	Answer(ctx context.Context, answers []gateway.Answer) ([]int64, error)
	Withdraw(ctx context.Context, logIDs []int64) ([]int64, error)
	RequestKill(ctx context.Context, logIDs []int64, reason string) error
	Finish(ctx context.Context, groups []string, ends []gateway.End) ([]gateway.Disposition, error)
	Lose(ctx context.Context, group string, ends []gateway.End) ([]gateway.Disposition, error)
	Settle(ctx context.Context, attempts []gateway.SettledAttempt) error
}

// Records reads the runs that are sent to executors, and deletes old ones. *gateway.Store documents the methods.
type Records interface {
	Known(ctx context.Context, attempts []gateway.Attempt) ([]gateway.Send, error)
	Outstanding(ctx context.Context, a *gateway.Address, after int64, limit int) ([]gateway.Send, error)
	Results(ctx context.Context, logIDs []int64) ([]gateway.Send, error)
	Unsettled(ctx context.Context, holds []gateway.Hold, limit int) ([]gateway.Send, error)
	Retried(ctx context.Context, runs []domain.RunID) ([]domain.RunID, error)
	Script(ctx context.Context, job domain.JobID, version int) (gateway.Script, error)
	Sweep(ctx context.Context, limit int) (int64, error)
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
)

// StopTime is how long Run may take after its context has ended.
const StopTime = stopTime + 15*time.Second

// Fleet serves addresses. Create one with New and call Run. It is safe for concurrent use.
type Fleet struct {
	Config
	results *publisher
	answers *batch[gateway.Answer, struct{}]
	ids     *wireIDs
	meters  meters

	work     context.Context // of what must be completed after Run's context has ended
	stopWork context.CancelFunc
	carrying sync.WaitGroup

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
	f := &Fleet{Config: c, ids: newWireIDs(c.WireIDs), tenders: make(map[place]*tender), callers: make(map[string]*caller), meters: newMeters(c.Registry)}
	f.work, f.stopWork = context.WithCancel(context.Background())
	f.results = newPublisher(f)
	f.answers = &batch[gateway.Answer, struct{}]{most: mostInBatch, do: f.storeAnswers}
	if c.Registry != nil {
		f.meter(c.Registry)
	}
	return f
}

// Run serves addresses until ctx ends. Then it sends no more, waits for the answers of requests that are on their way, and releases the addresses, so that
// other processes take them over at once.
func (f *Fleet) Run(ctx context.Context) error {
	defer f.stopWork()
	publish, stopPublishing := context.WithCancel(f.work)
	published := make(chan struct{})
	go func() {
		defer close(published)
		f.results.run(publish)
	}()
	lifecycle.Together(ctx, f.own, f.sweep)
	f.stop()
	stopPublishing()
	<-published
	return nil
}

// own renews leases and takes addresses over.
func (f *Fleet) own(ctx context.Context) {
	tick := time.NewTicker(takeEvery)
	defer tick.Stop()
	failing := false
	for n := 0; ; n++ {
		var err error
		if n%int(RenewEvery/takeEvery) == 0 {
			err = f.renew(ctx)
		}
		if err == nil {
			err = f.takeOver(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			f.Log.WarnContext(ctx, "cannot renew the leases of executors' addresses, nothing is sent to them until that succeeds", "err", err)
		case err == nil && failing:
			f.Log.InfoContext(ctx, "the leases of executors' addresses are renewed again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// renew extends the leases, and stops serving addresses that other processes have taken over or that do not exist any more.
func (f *Fleet) renew(ctx context.Context) error {
	tenders := f.all()
	if len(tenders) == 0 {
		return nil
	}
	holds := make([]gateway.Hold, len(tenders))
	for i, t := range tenders {
		holds[i] = t.address.Hold()
	}
	begun := clock.Now()
	limited, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	mine, err := f.Addresses.Renew(limited, f.Owner, holds, Lease)
	if err != nil {
		return err
	}
	renewed := make(map[place]*gateway.Address, len(mine))
	for i := range mine {
		renewed[place{mine[i].Group, mine[i].Instance}] = &mine[i]
	}
	for _, t := range tenders {
		a := renewed[t.place()]
		if a == nil || a.BootID != t.address.BootID {
			f.Log.WarnContext(ctx, "another gateway serves an address, or the address was removed", "group", t.address.Group, "instance", t.address.Instance)
			f.drop(t)
			continue
		}
		t.renewed(a, begun)
	}
	return nil
}

// takeOver takes over addresses whose leases have ended.
func (f *Fleet) takeOver(ctx context.Context) error {
	begun := clock.Now()
	limited, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	taken, err := f.Addresses.TakeOver(limited, f.Owner, mostTaken, Lease)
	for i := range taken {
		if t := f.find(place{taken[i].Group, taken[i].Instance}); t != nil {
			f.drop(t) // its lease had ended
		}
		f.Log.InfoContext(ctx, "serving the address of an executor", "group", taken[i].Group, "instance", taken[i].Instance, "url", taken[i].URL)
		f.serve(taken[i], begun)
	}
	return err
}

// serve begins to serve an address of this process.
func (f *Fleet) serve(a gateway.Address, begun clock.Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := place{a.Group, a.Instance}
	if f.closing || f.tenders[p] != nil {
		return
	}
	t := newTender(f, a, begun)
	f.tenders[p] = t
	t.start()
}

// drop stops serving an address. Requests on their way continue.
func (f *Fleet) drop(t *tender) {
	f.mu.Lock()
	if f.tenders[t.place()] == t {
		delete(f.tenders, t.place())
	}
	f.mu.Unlock()
	t.end()
}

func (f *Fleet) find(p place) *tender {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tenders[p]
}

func (f *Fleet) all() []*tender {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*tender, 0, len(f.tenders))
	for _, t := range f.tenders {
		all = append(all, t)
	}
	return all
}

// stop ends the service of all addresses in order.
func (f *Fleet) stop() {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	tenders := f.all()
	var wg sync.WaitGroup
	for _, t := range tenders {
		wg.Go(t.retire)
	}
	wg.Wait()
	carried := make(chan struct{})
	go func() {
		f.carrying.Wait()
		close(carried)
	}()
	select {
	case <-carried:
	case <-time.After(stopTime):
	}
	lifecycle.Pause(f.work, 2*collectFor) // the last results are published; what fails is published by the next owner
	holds := make([]gateway.Hold, len(tenders))
	for i, t := range tenders {
		holds[i] = t.address.Hold()
		f.drop(t)
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	if err := f.Addresses.Release(ctx, f.Owner, holds); err != nil {
		f.Log.WarnContext(ctx, "cannot release the addresses of executors, other gateways take them over when their leases have ended", "err", err)
	}
	f.mu.Lock()
	callers := f.callers
	f.mu.Unlock()
	for _, c := range callers {
		c.client.Close()
	}
}

// sweep deletes old sends. There are as many as runs, so it deletes batch after batch until few are left.
func (f *Fleet) sweep(ctx context.Context) {
	for lifecycle.Pause(ctx, sweepEvery) {
		for more := true; more && ctx.Err() == nil; {
			n, err := f.Records.Sweep(ctx, sweepRows)
			if err != nil && ctx.Err() == nil {
				f.Log.WarnContext(ctx, "cannot delete old runs of executors, retrying", "err", err)
			}
			more = err == nil && n >= sweepRows
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
		f.serve(a, begun)
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
