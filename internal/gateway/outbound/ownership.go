package outbound

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

// releasedSubject is where processes say that they have released addresses. A lost message costs takeEvery. Only Belfry's servers may publish there.
const releasedSubject = wire.Prefix + "gateway.released"

// own renews leases and takes addresses over.
func (f *Fleet) own(ctx context.Context) {
	if s, err := f.Conn.Subscribe(releasedSubject, func(*nats.Msg) { lifecycle.Signal(f.takeSoon) }); err == nil { // fails only if the connection is closed
		defer s.Unsubscribe() //nolint:errcheck // as above
	}
	take, renew := time.NewTicker(f.takeEvery), time.NewTicker(RenewEvery)
	defer take.Stop()
	defer renew.Stop()
	failing := false
	for takes, renews := true, true; ; {
		var err error
		if renews || failing {
			err = f.renew(ctx)
		}
		if (takes || failing) && err == nil {
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
		failing, takes, renews = err != nil, false, false
		select {
		case <-ctx.Done():
			return
		case <-take.C:
			takes = true
		case <-f.takeSoon:
			takes = true
		case <-renew.C:
			renews = true
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
	if len(taken) == mostTaken {
		lifecycle.Signal(f.takeSoon) // there may be more
	}
	for i := range taken {
		if t := f.find(place{taken[i].Group, taken[i].Instance}); t != nil {
			f.drop(t) // its lease had ended
		}
		f.Log.InfoContext(ctx, "serving the address of an executor", "group", taken[i].Group, "instance", taken[i].Instance, "url", taken[i].URL)
		f.serve(taken[i], begun)
	}
	return err
}

// serve begins to serve an address of this process. It reports false if the process stops.
func (f *Fleet) serve(a gateway.Address, begun clock.Instant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := place{a.Group, a.Instance}
	if f.closing {
		return false
	}
	if f.tenders[p] == nil {
		t := newTender(f, a, begun)
		f.tenders[p] = t
		t.start()
	}
	return true
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

// stop ends the service of all addresses in order. First it releases them, so that other processes serve them soon. Requests on their way continue.
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
	within(storeTime, &f.waiting)
	holds := make([]gateway.Hold, len(tenders))
	for i, t := range tenders {
		holds[i] = t.address.Hold()
		t.release()
	}
	f.release(context.Background(), holds)
	within(stopTime, &f.carrying)
	f.awaitSettled(tenders)
	for _, t := range tenders {
		f.drop(t)
	}
	f.mu.Lock()
	callers := f.callers
	f.mu.Unlock()
	for _, c := range callers {
		c.client.Close()
	}
}

// within waits until a group is done, but not longer than a limit.
func within(limit time.Duration, group *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// release releases addresses, and tells the other processes.
func (f *Fleet) release(ctx context.Context, holds []gateway.Hold) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	err := f.Addresses.Release(ctx, f.Owner, holds)
	if err == nil && len(holds) > 0 {
		err = f.Conn.Publish(releasedSubject, nil)
	}
	if err != nil {
		f.Log.WarnContext(ctx, "cannot release the addresses of executors, other gateways take them over when their leases have ended", "err", err)
	}
}

// awaitSettled waits for some time until the results of what was given back are settled, so that the next owners need not publish them again.
func (f *Fleet) awaitSettled(tenders []*tender) {
	ctx, cancel := context.WithTimeout(f.work, settleTime)
	defer cancel()
	unsettled := func(t *tender) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.machine.Unsettled() > 0
	}
	for slices.ContainsFunc(tenders, unsettled) && lifecycle.Pause(ctx, collectFor) {
	}
}
