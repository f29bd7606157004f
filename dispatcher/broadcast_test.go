package dispatcher

import (
	"fmt"
	"slices"
	"testing"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

func broadcast(shards int) func(*domain.JobSpec) {
	return func(s *domain.JobSpec) { s.Route, s.Shards = domain.RouteBroadcast, shards }
}

func (w *world) withChildren(s *domain.JobSpec) {
	for _, on := range []domain.ChildOn{domain.OnSuccess, domain.OnFailure, domain.OnAlways} {
		s.Children = append(s.Children, domain.Child{JobID: w.job("on " + string(on) + " of " + s.Name), On: on})
	}
}

// shards returns the runs of a broadcast by their index.
func (w *world) shards(first domain.RunID, total int) []domain.RunID {
	ids := []domain.RunID{first}
	for i := 1; i < total; i++ {
		ids = append(ids, domain.ShardRunID(first, i))
	}
	return ids
}

func TestBroadcast(t *testing.T) {
	w := newWorld(t, option{})
	a, b, c := w.join("a"), w.join("b"), w.join("c")
	other := w.join("other", func(p *puppet) { p.handlers = []string{"other"} })
	var success, always domain.JobID
	id := w.trigger(w.job("j", broadcast(0), w.withChildren, func(s *domain.JobSpec) {
		success, always = s.Children[0].JobID, s.Children[2].JobID
	}))
	ids := w.shards(id, 3)
	for i, p := range []*puppet{a, b, c} {
		o := p.got(ids[i], 1)
		if o.Shard != (wire.Shard{Index: i, Total: 3}) {
			t.Errorf("%s got shard %+v", p.name, o.Shard)
		}
		if got := w.ups.children(); len(got) != 0 {
			t.Errorf("joined before the end: %v", got)
		}
		p.report(o, wire.Succeeded)
		w.becomes(ids[i], "succeeded")
	}
	w.eventually("it is joined", func() bool { return len(w.ups.children()) > 0 })
	if got := w.ups.children(); !slices.Equal(got, []domain.JobID{success, always}) {
		t.Errorf("children %v, want %v", got, []domain.JobID{success, always})
	}
	if n := w.count(`SELECT count(*) FROM broadcasts`); n != 0 || len(other.offers) != 0 {
		t.Errorf("%d broadcasts are left; %d offers to an instance without the handler", n, len(other.offers))
	}
}

// A manual trigger that names an instance runs only the shards of that instance. If the instance lacks the handler,
// there are none.
func TestBroadcastToOneInstance(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a", auto), w.join("b", auto)
	other := w.join("other", func(p *puppet) { p.handlers, p.auto = []string{"other"}, true })
	trigger := func(job domain.JobID, instance string) domain.RunID {
		ids, err := w.pg.Trigger(t.Context(), job, domain.Trigger{Cause: domain.CauseManual, Instance: instance})
		if err != nil {
			t.Fatal(err)
		}
		return ids[0]
	}
	whole := trigger(w.job("whole", broadcast(0)), "b")
	w.becomes(whole, "succeeded")
	static := trigger(w.job("static", broadcast(3)), "b")
	for _, id := range w.shards(static, 3) {
		w.becomes(id, "succeeded")
	}
	nobody := trigger(w.job("nobody", broadcast(0)), "other")
	if r := w.becomes(nobody, "queued"); r.Waiting != "it may only run on other, which is not there or does not offer the handler" {
		t.Errorf("it waits: %q", r.Waiting)
	}
	if len(a.offers)+len(other.offers) != 0 || len(b.offers) != 4 {
		t.Errorf("%d, %d and %d offers", len(a.offers), len(b.offers), len(other.offers))
	}
}

// If a shard fails, the broadcast fails. Its children are started once, when the last shard is settled.
func TestBroadcastFails(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	var failure, always domain.JobID
	id := w.trigger(w.job("j", broadcast(8), w.withChildren, func(s *domain.JobSpec) {
		failure, always = s.Children[1].JobID, s.Children[2].JobID
	}))
	for i, shard := range w.shards(id, 8) {
		outcome := wire.Succeeded
		if i == 3 {
			outcome = wire.Failed
		}
		a.report(a.got(shard, 1), outcome)
	}
	w.eventually("all shards are final", func() bool { return w.count(`SELECT count(*) FROM runs_history WHERE broadcast_id = $1`, id) == 8 })
	if got := w.ups.children(); !slices.Equal(got, []domain.JobID{failure, always}) {
		t.Errorf("children %v, want %v", got, []domain.JobID{failure, always})
	}
}

// If an instance dies, a shard that may run on any instance is routed to another one. A shard of that one instance is
// not.
func TestBroadcastShardOfDeadInstance(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a"), w.join("b")
	once := func(s *domain.JobSpec) { s.Retries = 1 }
	own, spread := w.trigger(w.job("own", broadcast(0), once)), w.trigger(w.job("spread", broadcast(2), once))
	for _, id := range []domain.RunID{own, spread} {
		a.report(a.got(id, 1), wire.Succeeded)
		b.got(domain.ShardRunID(id, 1), 1)
	}
	b.die()
	w.becomes(domain.ShardRunID(own, 1), "failed/no_executor")
	a.report(a.got(domain.ShardRunID(spread, 1), 2), wire.Succeeded)
	w.becomes(domain.ShardRunID(spread, 1), "succeeded")
	for _, o := range a.offersOf(domain.ShardRunID(own, 1)) {
		t.Errorf("a was offered %+v", o)
	}
}

// A shard whose instance is full waits for that instance only.
func TestBroadcastShardWaits(t *testing.T) {
	w := newWorld(t, option{})
	a, b := w.join("a"), w.join("b", capacity(1))
	busy, err := w.pg.Trigger(t.Context(), w.job("busy"), domain.Trigger{Cause: domain.CauseManual, Instance: "b"})
	if err != nil {
		t.Fatal(err)
	}
	o := b.got(busy[0], 1)
	id := w.trigger(w.job("j", broadcast(0)))
	a.report(a.got(id, 1), wire.Succeeded)
	shard := domain.ShardRunID(id, 1)
	if r := w.becomes(shard, "queued"); r.Instance != "" || r.Waiting == "" {
		t.Errorf("run %+v", r)
	}
	b.report(o, wire.Succeeded)
	b.report(b.got(shard, 1), wire.Succeeded)
	w.becomes(shard, "succeeded")
}

// Without live instances, the broadcast waits unexpanded. It is expanded when an instance joins.
func TestBroadcastWaitsUnexpanded(t *testing.T) {
	w := newWorld(t, option{})
	id := w.trigger(w.job("j", broadcast(3), func(s *domain.JobSpec) { s.Block = domain.BlockSerial }))
	if r := w.becomes(id, "queued"); r.Waiting == "" {
		t.Errorf("run %+v", r)
	}
	if n := w.count(`SELECT count(*) FROM runs_live`); n != 1 {
		t.Errorf("%d runs", n)
	}
	w.join("a", auto)
	for i, shard := range w.shards(id, 3) {
		w.eventually(fmt.Sprintf("shard %d is there", i), func() bool {
			return w.count(`SELECT count(*) FROM runs_history WHERE id = $1 AND state = 'succeeded'`, shard) == 1
		})
	}
	if n := w.count(`SELECT count(*) FROM block_slots WHERE owner IS NOT NULL`); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}

// A later broadcast of a serial job waits for all shards of the earlier one.
func TestBroadcastIsSerial(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	job := w.job("j", broadcast(2), func(s *domain.JobSpec) { s.Block = domain.BlockSerial })
	first := w.trigger(job)
	a.got(first, 1)
	second := w.trigger(job)
	w.eventually("the second is held", func() bool { return w.count(`SELECT count(*) FROM runs_live WHERE held AND id = $1`, second) == 1 })
	for _, shard := range w.shards(first, 2) {
		if len(a.offersOf(second)) != 0 {
			t.Error("the second runs at the same time as the first")
		}
		a.report(a.got(shard, 1), wire.Succeeded)
		w.becomes(shard, "succeeded")
	}
	for _, shard := range w.shards(second, 2) {
		a.report(a.got(shard, 1), wire.Succeeded)
		w.becomes(shard, "succeeded")
	}
}
