package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	key   = "0123456789abcdef0123456789abcdef"
	lease = time.Hour // a test ends it by expire
)

// world is a database with the groups g and h, of which g is open.
type world struct {
	*gateway.Store
	t    *testing.T
	pool *pgxpool.Pool
}

func newWorld(t *testing.T, conns ...int32) *world {
	t.Helper()
	cfg := store.Config{URL: pgtest.Database(t, store.Migrate)}
	if len(conns) > 0 {
		cfg.MaxConns = conns[0]
	}
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	w := &world{gateway.New(s.Pool(), key), t, s.Pool()}
	w.exec(`INSERT INTO groups (name, token_sha256) VALUES ('g', 'x'), ('h', 'y')`)
	w.open(gateway.Group{Name: "g", App: "g", Capacity: 256})
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) open(g gateway.Group) {
	w.t.Helper()
	if err := w.OpenGroup(w.t.Context(), g); err != nil {
		w.t.Fatal(err)
	}
}

// register registers an instance of a group for an owner.
func (w *world) register(owner, group, instance, source string) gateway.Address {
	w.t.Helper()
	a, err := w.Register(w.t.Context(), owner, gateway.Registration{Group: group, Instance: instance, URL: "http://" + instance, Source: netip.MustParseAddr(source),
		Kind: "java", Agent: "Java/17", BootID: "boot-" + instance}, 3, lease)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// expire ends all leases.
func (w *world) expire() {
	w.t.Helper()
	w.exec(`UPDATE gateway_addresses SET lease_until = now() - interval '1 s'`)
}

// offers returns n offers of new runs.
func offers(n int) []gateway.Offer {
	out := make([]gateway.Offer, n)
	for i := range out {
		out[i] = gateway.Offer{Attempt: gateway.Attempt{Run: domain.NewRunID(time.Now()), Number: 1}, Bind: 1, WireID: int64(i + 1), Handler: "demo"}
	}
	return out
}

// accept accepts offers and returns their log ids in order.
func (w *world) accept(owner string, h gateway.Hold, offers []gateway.Offer) []int64 {
	w.t.Helper()
	ids, err := w.Accept(w.t.Context(), owner, h, offers)
	if err != nil || len(ids) != len(offers) {
		w.t.Fatalf("%d of %d offers, %v", len(ids), len(offers), err)
	}
	out := make([]int64, len(offers))
	for i, o := range offers {
		out[i] = ids[o.Attempt]
	}
	return out
}

// send sends accepted sends.
func (w *world) send(owner string, h gateway.Hold, ids ...int64) {
	w.t.Helper()
	at, left, err := w.Send(w.t.Context(), owner, h, ids)
	if err != nil || len(at) != len(ids) || left <= 0 || left > lease {
		w.t.Fatalf("%d of %d are sent, %s are left, %v", len(at), len(ids), left, err)
	}
}

// states returns the states of all sends by log id.
func (w *world) states() string {
	w.t.Helper()
	var out string
	if err := w.pool.QueryRow(w.t.Context(), `SELECT COALESCE(string_agg(state, ' ' ORDER BY log_id), '') FROM gateway_sends`).Scan(&out); err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) wantStates(want string) {
	w.t.Helper()
	if got := w.states(); got != want {
		w.t.Errorf("the states are %q, want %q", got, want)
	}
}

func TestGroups(t *testing.T) {
	w := newWorld(t)
	network := netip.MustParsePrefix("10.1.2.3/8")
	w.open(gateway.Group{Name: "g", App: "My.App", Token: "secret-token", Networks: []netip.Prefix{network, netip.MustParsePrefix("fd00::/8")}, Capacity: 7})
	list, err := w.Groups(t.Context(), "", 10)
	if err != nil || len(list) != 1 || list[0].App != "My.App" || list[0].Token != "secret-token" || list[0].Capacity != 7 || len(list[0].Networks) != 2 ||
		list[0].Networks[0] != network.Masked() || list[0].Fault != nil {
		t.Errorf("%+v, %v", list, err)
	}
	var stored []byte
	if err := w.pool.QueryRow(t.Context(), `SELECT token FROM gateway_groups`).Scan(&stored); err != nil || bytes.Contains(stored, []byte("secret")) || !w.Encrypts() {
		t.Errorf("the token is stored as %q, %v", stored, err)
	}
	for _, other := range []string{"", key + "x"} {
		list, err := gateway.New(w.pool, other).Groups(t.Context(), "", 10)
		if err != nil || list[0].Token != "" || domain.CodeOf(list[0].Fault) != domain.Conflict {
			t.Errorf("with the key %q: %+v, %v", other, list, err)
		}
	}
	for name, tt := range map[string]struct {
		group gateway.Group
		code  domain.Code
		field string
	}{
		"a taken app name": {gateway.Group{Name: "h", App: "My.App", Capacity: 1}, domain.Conflict, "alias"},
		"no such group":    {gateway.Group{Name: "none", App: "none", Capacity: 1}, domain.Invalid, "group"},
		"no capacity":      {gateway.Group{Name: "h", App: "h"}, domain.Invalid, ""},
	} {
		err := w.OpenGroup(t.Context(), tt.group)
		var de *domain.Error
		if domain.CodeOf(err) != tt.code || tt.field != "" && (!errors.As(err, &de) || len(de.Fields) != 1 || de.Fields[0].Location != tt.field) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := gateway.New(w.pool, "")
	if err := plain.OpenGroup(t.Context(), gateway.Group{Name: "h", App: "h", Token: "other", Capacity: 1}); err != nil || plain.Encrypts() {
		t.Fatal(err)
	}
	if list, err := w.Groups(t.Context(), "g", 10); err != nil || len(list) != 1 || list[0].Token != "other" {
		t.Errorf("a token from before there was a key: %+v, %v", list, err)
	}
	w.open(gateway.Group{Name: "g", App: "g", Capacity: 1})
	if list, err := w.Groups(t.Context(), "", 1); err != nil || len(list) != 1 || list[0].Token != "" || len(list[0].Networks) != 0 {
		t.Errorf("without a token: %+v, %v", list, err)
	}
}

func TestRegister(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	if a.Owner != "one" || a.Epoch != 1 || a.BootID != "boot-a" || a.Registrations != 1 || a.Source != netip.MustParseAddr("10.0.0.1") || a.SourceChangedAt != nil || a.LeavingAt != nil || a.Kind != "java" {
		t.Errorf("a new address: %+v", a)
	}
	if err := w.Leave(t.Context(), "g", "a"); err != nil {
		t.Fatal(err)
	}
	held, err := w.Renew(t.Context(), "one", []gateway.Hold{a.Hold()}, lease)
	if err != nil || len(held) != 1 || held[0].LeavingAt == nil {
		t.Errorf("after it said that it stops: %+v, %v", held, err)
	}
	b := w.register("two", "g", "a", "10.0.0.1")
	if b.Owner != "one" || b.Epoch != 1 || b.Registrations != 2 || b.SourceChangedAt != nil || b.LeavingAt != nil || b.RegisteredAt.Before(a.RegisteredAt) {
		t.Errorf("at another gateway: %+v", b)
	}
	if c := w.register("two", "g", "a", "10.0.0.2"); c.SourceChangedAt == nil || c.Source != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("from another source: %+v", c)
	}
	w.register("one", "g", "b", "10.0.0.1")
	w.register("one", "g", "c", "10.0.0.1")
	r := gateway.Registration{Group: "g", Instance: "d", Source: netip.MustParseAddr("10.0.0.1")}
	if _, err := w.Register(t.Context(), "one", r, 3, lease); domain.CodeOf(err) != domain.Limited {
		t.Errorf("one too many: %v", err)
	}
	r.Group = "h"
	if _, err := w.Register(t.Context(), "one", r, 3, lease); domain.CodeOf(err) != domain.NotFound {
		t.Errorf("a group that is not open: %v", err)
	}
	w.register("one", "g", "a", "10.0.0.1") // a known one has its place
}

// A process takes over what another one has left, with the same boot. The former owner then changes nothing.
func TestTakeOver(t *testing.T) {
	w := newWorld(t)
	a, b := w.register("one", "g", "a", "10.0.0.1"), w.register("one", "g", "b", "10.0.0.1")
	ids := w.accept("one", a.Hold(), offers(4))
	w.send("one", a.Hold(), ids[1:]...)
	if changed, err := w.Answer(t.Context(), []gateway.Answer{{LogID: ids[2], State: gateway.Taken}}); err != nil || !slices.Equal(changed, ids[2:3]) {
		t.Fatal(changed, err)
	}
	if done, err := w.Finish(t.Context(), []string{"g"}, []gateway.End{{LogID: ids[3], Result: gateway.Result{Outcome: "succeeded"}}}); err != nil || done[0] != gateway.Finished {
		t.Fatal(done, err)
	}
	w.wantStates("accepted sending taken ended")
	if taken, err := w.TakeOver(t.Context(), "two", 10, lease); err != nil || len(taken) != 0 {
		t.Errorf("while the lease holds: %+v, %v", taken, err)
	}
	if err := w.Release(t.Context(), "two", []gateway.Hold{a.Hold()}); err != nil {
		t.Fatal(err)
	}
	if err := w.Release(t.Context(), "one", []gateway.Hold{a.Hold()}); err != nil {
		t.Fatal(err)
	}
	taken, err := w.TakeOver(t.Context(), "two", 10, lease)
	if err != nil || len(taken) != 1 || taken[0].Instance != "a" || taken[0].Owner != "two" || taken[0].Epoch != 2 || taken[0].BootID != "boot-a" {
		t.Fatalf("after the lease: %+v, %v", taken, err)
	}
	w.wantStates("unstarted unknown taken ended")

	held, err := w.Renew(t.Context(), "one", []gateway.Hold{a.Hold(), b.Hold()}, lease)
	if err != nil || len(held) != 1 || held[0].Instance != "b" {
		t.Errorf("the former owner renews %+v, %v", held, err)
	}
	if _, err := w.Accept(t.Context(), "one", a.Hold(), offers(1)); !errors.Is(err, gateway.ErrNotHeld) {
		t.Errorf("the former owner accepts: %v", err)
	}
	if _, _, err := w.Send(t.Context(), "one", a.Hold(), ids); !errors.Is(err, gateway.ErrNotHeld) {
		t.Errorf("the former owner sends: %v", err)
	}
	if removed, err := w.Remove(t.Context(), "one", a.Hold()); removed || err != nil {
		t.Errorf("the former owner removes: %v, %v", removed, err)
	}

	list, err := w.Outstanding(t.Context(), &taken[0], 0, 10)
	if err != nil || len(list) != 4 || list[0].LogID != ids[0] || list[0].Result.Outcome != "unstarted" || list[1].EndedAt != nil || list[3].Result.Outcome != "succeeded" || list[1].SentAt == nil {
		t.Errorf("what the new owner finds: %+v, %v", list, err)
	}
	// The answer that the former owner got late is true.
	if changed, err := w.Answer(t.Context(), []gateway.Answer{{LogID: ids[1], State: gateway.Taken}}); err != nil || len(changed) != 1 {
		t.Errorf("a late answer: %v, %v", changed, err)
	}
	if removed, err := w.Remove(t.Context(), "two", taken[0].Hold()); removed || err != nil {
		t.Errorf("removed with results that are not settled: %v, %v", removed, err)
	}
	if removed, err := w.Remove(t.Context(), "one", b.Hold()); !removed || err != nil {
		t.Errorf("an idle address: %v, %v", removed, err)
	}
	w.expire()
	if _, err := w.Accept(t.Context(), "two", taken[0].Hold(), offers(1)); !errors.Is(err, gateway.ErrNotHeld) {
		t.Errorf("accepted after the end of the lease: %v", err)
	}
	if held, err := w.Renew(t.Context(), "two", []gateway.Hold{taken[0].Hold()}, lease); err != nil || len(held) != 1 {
		t.Errorf("a lease that ended without a new owner: %+v, %v", held, err)
	}
}

func TestAccept(t *testing.T) {
	w := newWorld(t)
	a, b := w.register("one", "g", "a", "10.0.0.1"), w.register("one", "g", "b", "10.0.0.1")
	o := offers(2)
	ids := w.accept("one", a.Hold(), o)
	if ids[0] < 1<<40 || ids[1] < 1<<40 || ids[0] == ids[1] {
		t.Errorf("log ids %v", ids)
	}
	none := func(what string, h gateway.Hold, o ...gateway.Offer) {
		t.Helper()
		if got, err := w.Accept(t.Context(), "one", h, o); err != nil || len(got) != 0 {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	with := func(o gateway.Offer, bind int) gateway.Offer { o.Bind = bind; return o }
	none("the same offers", a.Hold(), o...)
	none("no offers", a.Hold())
	none("a higher bind", a.Hold(), with(o[0], 2))
	none("another address", b.Hold(), with(o[0], 2))
	if err := w.RaiseBinds(t.Context(), []gateway.Offer{with(o[0], 3), with(o[1], 1)}); err != nil {
		t.Fatal(err)
	}
	known, err := w.Known(t.Context(), []gateway.Attempt{o[1].Attempt, o[0].Attempt})
	if err != nil || len(known) != 2 || known[0].Bind != 3 || known[1].Bind != 1 || known[0].State != gateway.Accepted || known[0].Instance != "a" || known[0].WireID != 1 {
		t.Errorf("%+v, %v", known, err)
	}

	if err := w.RequestKill(t.Context(), ids[:1], "killed"); err != nil {
		t.Fatal(err)
	}
	if changed, err := w.Withdraw(t.Context(), ids); err != nil || len(changed) != 2 {
		t.Fatal(changed, err)
	}
	if list, err := w.Results(t.Context(), ids); err != nil || len(list) != 2 || list[0].Result.Reason != "killed" || list[1].Result.Reason != "" || list[1].Result.Outcome != "unstarted" {
		t.Errorf("%+v, %v", list, err)
	}
	none("before the result is settled", a.Hold(), with(o[0], 4))
	again := w.accept("one", b.Hold(), []gateway.Offer{with(o[1], 2)}) // another boot
	if err := w.Settle(t.Context(), []gateway.SettledAttempt{{o[0].Attempt, "boot-a"}, {o[1].Attempt, "boot-a"}}); err != nil {
		t.Fatal(err)
	}
	none("a bind that was not started", a.Hold(), with(o[0], 3))
	again = append(again, w.accept("one", a.Hold(), []gateway.Offer{with(o[0], 4)})...)
	if again[0] <= ids[1] || again[1] <= ids[1] {
		t.Errorf("a new send has the log id %v, the old ones %v", again, ids)
	}
	if known, err := w.Known(t.Context(), []gateway.Attempt{o[0].Attempt}); err != nil || len(known) != 2 || !known[0].Settled || known[1].Settled {
		t.Errorf("both sends of an attempt: %+v, %v", known, err)
	}
	w.wantStates("unstarted unstarted accepted accepted")
}

func TestAnswer(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	ids := w.accept("one", a.Hold(), offers(6))
	w.send("one", a.Hold(), ids[1:]...)
	if at, _, err := w.Send(t.Context(), "one", a.Hold(), ids[1:]); err != nil || len(at) != 0 {
		t.Errorf("sent twice: %v, %v", at, err)
	}
	if changed, err := w.Withdraw(t.Context(), ids[1:]); err != nil || len(changed) != 0 {
		t.Errorf("withdrawn after it was sent: %v, %v", changed, err)
	}
	if _, err := w.Finish(t.Context(), []string{"g"}, []gateway.End{{LogID: ids[5], Result: gateway.Result{Outcome: "failed", Reason: "handler_error"}}}); err != nil {
		t.Fatal(err)
	}
	answers := []gateway.Answer{{ids[0], gateway.Taken, ""}, {ids[4], gateway.Unknown, "no answer"}, {ids[3], gateway.Unstarted, "refused"}, {ids[2], gateway.Taken, ""}, {ids[5], gateway.Taken, ""}}
	changed, err := w.Answer(t.Context(), answers)
	if slices.Sort(changed); err != nil || !slices.Equal(changed, ids[2:5]) {
		t.Errorf("changed %v of %v, %v", changed, ids, err)
	}
	w.wantStates("accepted sending taken unstarted unknown ended")
	if changed, err := w.Answer(t.Context(), []gateway.Answer{{ids[2], gateway.Unstarted, ""}, {ids[4], gateway.Unknown, ""}}); err != nil || len(changed) != 0 {
		t.Errorf("changed %v, %v", changed, err)
	}
	list, err := w.Results(t.Context(), ids)
	if err != nil || len(list) != 2 || list[0].LogID != ids[3] || list[0].Result.Outcome != "unstarted" || list[0].Result.Message != "refused" || list[1].Result.Reason != "handler_error" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestFinish(t *testing.T) {
	w := newWorld(t)
	w.open(gateway.Group{Name: "h", App: "h", Capacity: 1})
	a, b := w.register("one", "g", "a", "10.0.0.1"), w.register("one", "h", "b", "10.0.0.1")
	ids := w.accept("one", a.Hold(), offers(7))
	foreign := w.accept("one", b.Hold(), offers(1))
	w.send("one", a.Hold(), ids[:6]...)
	w.send("one", b.Hold(), foreign...)
	if _, err := w.Answer(t.Context(), []gateway.Answer{{ids[1], gateway.Taken, ""}, {ids[2], gateway.Unknown, ""}, {ids[3], gateway.Taken, ""}, {ids[4], gateway.Taken, ""}}); err != nil {
		t.Fatal(err)
	}
	for i, reason := range map[int]string{3: "killed", 4: "timeout", 5: "covered"} {
		if err := w.RequestKill(t.Context(), ids[i:i+1], reason); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.RequestKill(t.Context(), ids[3:4], "timeout"); err != nil { // the first one counts
		t.Fatal(err)
	}
	end := func(id int64, outcome, reason string, killed bool) gateway.End {
		return gateway.End{LogID: id, Result: gateway.Result{Outcome: outcome, Reason: reason, Message: "m", Output: "o"}, Killed: killed}
	}
	got, err := w.Finish(t.Context(), []string{"g", "other"}, []gateway.End{
		end(ids[5], "failed", "lost", true), end(ids[0], "succeeded", "", false), end(ids[0], "failed", "handler_error", false), end(ids[1], "unstarted", "", false), end(ids[2], "failed", "timeout", false),
		end(ids[3], "failed", "lost", true), end(ids[4], "failed", "lost", true), end(ids[6], "succeeded", "", false), end(foreign[0], "succeeded", "", false), end(1, "succeeded", "", false),
	})
	want := []gateway.Disposition{gateway.Finished, gateway.Finished, gateway.Repeated, gateway.Finished, gateway.Finished, gateway.Finished, gateway.Finished, gateway.NotSent, gateway.NoSend, gateway.NoSend}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	w.wantStates("ended unstarted ended ended ended ended accepted sending")
	list, err := w.Results(t.Context(), ids)
	if err != nil || len(list) != 6 {
		t.Fatal(list, err)
	}
	for i, want := range []string{"succeeded ", "unstarted ", "failed timeout", "cancelled killed", "failed timeout", "cancelled covered"} {
		if r := list[i].Result; r.Outcome+" "+r.Reason != want || r.Message != "m" || r.Output != "o" || list[i].EndedAt == nil {
			t.Errorf("result %d: %+v, want %s", i, r, want)
		}
	}
	if again, err := w.Finish(t.Context(), []string{"g"}, []gateway.End{end(ids[0], "failed", "x", false), end(ids[1], "succeeded", "", false)}); err != nil || !slices.Equal(again, []gateway.Disposition{gateway.Repeated, gateway.NotSent}) {
		t.Errorf("repeated: %v, %v", again, err)
	}
}

// A callback of an attempt that was declared lost replaces the result, and is published too.
func TestLateCallback(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	o := offers(3)
	ids := w.accept("one", a.Hold(), o)
	w.send("one", a.Hold(), ids[:2]...)
	lose := func(id int64) gateway.End {
		return gateway.End{LogID: id, Result: gateway.Result{Reason: "lost", Message: "gone", Permanent: true}}
	}
	if _, err := w.Answer(t.Context(), []gateway.Answer{{ids[0], gateway.Taken, ""}}); err != nil {
		t.Fatal(err)
	}
	got, err := w.Lose(t.Context(), "g", []gateway.End{lose(ids[0]), lose(ids[1]), lose(ids[2])})
	if err != nil || !slices.Equal(got, []gateway.Disposition{gateway.Finished, gateway.Repeated, gateway.NotSent}) {
		t.Errorf("%v, %v", got, err)
	}
	w.wantStates("lost sending accepted")
	list, err := w.Results(t.Context(), ids)
	if err != nil || len(list) != 1 || list[0].Result.Outcome != "failed" || list[0].Result.Reason != "lost" || !list[0].Result.Permanent {
		t.Errorf("%+v, %v", list, err)
	}
	settle := func() {
		t.Helper()
		if err := w.Settle(t.Context(), []gateway.SettledAttempt{{o[0].Attempt, ""}, {o[1].Attempt, ""}}); err != nil {
			t.Fatal(err)
		}
	}
	outstanding := func(want ...int64) {
		t.Helper()
		list, err := w.Outstanding(t.Context(), &a, 0, 10)
		var got []int64
		for _, s := range list {
			got = append(got, s.LogID)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("outstanding are %v, want %v, %v", got, want, err)
		}
	}
	settle()
	outstanding(ids[1], ids[2]) // without a result, nothing is settled
	for _, want := range []gateway.Disposition{gateway.Late, gateway.Repeated} {
		if got, err := w.Finish(t.Context(), []string{"g"}, []gateway.End{{LogID: ids[0], Result: gateway.Result{Outcome: "succeeded"}}}); err != nil || got[0] != want {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	outstanding(ids...)
	settle()
	outstanding(ids[1], ids[2])
}

func TestSweep(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	o := offers(4)
	ids := w.accept("one", a.Hold(), o)
	w.send("one", a.Hold(), ids[:3]...)
	if _, err := w.Answer(t.Context(), []gateway.Answer{{ids[1], gateway.Taken, ""}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(t.Context(), []string{"g"}, []gateway.End{{LogID: ids[0], Result: gateway.Result{Outcome: "succeeded"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Lose(t.Context(), "g", []gateway.End{{LogID: ids[1]}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Settle(t.Context(), []gateway.SettledAttempt{{o[0].Attempt, "boot-a"}, {o[1].Attempt, "boot-a"}, {o[2].Attempt, "boot-a"}}); err != nil {
		t.Fatal(err)
	}
	sweep := func(want int64, states string) {
		t.Helper()
		if n, err := w.Sweep(t.Context(), 100); err != nil || n != want {
			t.Errorf("deleted %d, want %d, %v", n, want, err)
		}
		w.wantStates(states)
	}
	sweep(0, "ended lost sending accepted")
	w.exec(`UPDATE gateway_sends SET forget_at = forget_at - $1::interval`, gateway.Kept+time.Second)
	sweep(1, "lost sending accepted")
	w.exec(`UPDATE gateway_sends SET forget_at = forget_at - $1::interval`, gateway.LostKept)
	sweep(1, "sending accepted")
	w.exec(`DELETE FROM groups WHERE name = 'g'`)
	sweep(2, "")
}

// An owner sends while another process takes over, again and again. A send that Send has returned is never routed again.
func TestSendsAndTakeOversRace(t *testing.T) {
	w := newWorld(t)
	a := w.register("0", "g", "a", "10.0.0.1")
	for round := range 15 {
		owner, hold := fmt.Sprint(round), a.Hold()
		ids := w.accept(owner, hold, offers(40))
		sent := make(map[int64]time.Time)
		begin := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			n := 0
			for part := range slices.Chunk(ids, 4) {
				if n++; n == 1+round%8 {
					close(begin)
				}
				at, _, err := w.Send(t.Context(), owner, hold, part)
				if err != nil && !errors.Is(err, gateway.ErrNotHeld) {
					t.Error(err)
				}
				maps.Copy(sent, at)
			}
		})
		both.Go(func() {
			<-begin
			for n := 0; n == 0 && !t.Failed(); {
				w.exec(`UPDATE gateway_addresses SET lease_until = now() - interval '1 s' WHERE owner = $1`, owner)
				taken, err := w.TakeOver(t.Context(), fmt.Sprint(round+1), 10, lease)
				if n = len(taken); err != nil {
					t.Error(err)
				}
				if n > 0 {
					a = taken[0]
				}
			}
		})
		both.Wait()
		for _, id := range ids {
			var state string
			if err := w.pool.QueryRow(t.Context(), `SELECT state FROM gateway_sends WHERE log_id = $1`, id).Scan(&state); err != nil {
				t.Fatal(err)
			}
			if _, returned := sent[id]; returned != (state == "unknown") || !returned && state != "unstarted" {
				t.Fatalf("round %d: send %d is %s; Send has returned it: %v", round, id, state, returned)
			}
		}
	}
}

// With many settled sends, no statement reads the whole table.
func TestStatementsScale(t *testing.T) {
	w := newWorld(t, 1) // a connection keeps its counters until it flushes them
	a := w.register("one", "g", "a", "10.0.0.1")
	w.exec(`ALTER TABLE gateway_sends SET (autovacuum_enabled = false)`)
	w.exec(`INSERT INTO gateway_sends (group_name, instance, boot_id, run_id, attempt, bind, wire_id, handler, state, ended_at, forget_at)
		SELECT 'g', 'a', 'boot-a', gen_random_uuid(), 1, 1, 1, 'demo', 'ended', now(), now() + interval '10 min' FROM generate_series(1, 50000)`)
	read := func() (rows int64) {
		t.Helper()
		w.exec(`SELECT pg_stat_force_next_flush()`)
		if err := w.pool.QueryRow(t.Context(), `SELECT seq_tup_read FROM pg_stat_user_tables WHERE schemaname = 'belfry' AND relname = 'gateway_sends'`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	before := read()
	w.exec(`SELECT count(*) FROM gateway_sends WHERE message <> ''`)
	if read() == before {
		t.Fatal("the counter does not change, so this test cannot fail")
	}
	check := func(what string, call func() error) {
		t.Helper()
		before := read()
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := read() - before; n > 0 {
			t.Errorf("%s read %d rows one after the other", what, n)
		}
	}
	for _, statistics := range []string{"of an empty table", "that are true"} {
		if statistics == "that are true" {
			w.exec(`ANALYZE`)
			w.exec(`DISCARD PLANS`)
		}
		t.Log("statistics " + statistics)
		for range 6 { // after five executions, Postgres considers a generic plan
			o := offers(50)
			var ids []int64
			var attempts []gateway.Attempt
			var settled []gateway.SettledAttempt
			var answers []gateway.Answer
			var ends []gateway.End
			check("Accept", func() error { ids = w.accept("one", a.Hold(), o); return nil })
			for i, id := range ids {
				attempts, settled = append(attempts, o[i].Attempt), append(settled, gateway.SettledAttempt{Attempt: o[i].Attempt, BootID: "boot-a"})
				answers, ends = append(answers, gateway.Answer{LogID: id, State: gateway.Taken}), append(ends, gateway.End{LogID: id, Result: gateway.Result{Outcome: "succeeded"}})
			}
			check("Known", func() error { _, err := w.Known(t.Context(), attempts); return err })
			check("RaiseBinds", func() error { return w.RaiseBinds(t.Context(), o) })
			check("Send", func() error { w.send("one", a.Hold(), ids...); return nil })
			check("Answer", func() error { _, err := w.Answer(t.Context(), answers); return err })
			check("RequestKill", func() error { return w.RequestKill(t.Context(), ids, "killed") })
			check("Outstanding", func() error { _, err := w.Outstanding(t.Context(), &a, 0, 100); return err })
			check("Finish", func() error { _, err := w.Finish(t.Context(), []string{"g"}, ends); return err })
			check("Results", func() error { _, err := w.Results(t.Context(), ids); return err })
			check("Settle", func() error { return w.Settle(t.Context(), settled) })
			check("Sweep", func() error { _, err := w.Sweep(t.Context(), 100); return err })
			check("Remove", func() error { _, err := w.Remove(t.Context(), "other", a.Hold()); return err })
			w.expire()
			check("TakeOver", func() error {
				taken, err := w.TakeOver(t.Context(), "one", 10, lease)
				a = taken[0]
				return err
			})
		}
	}
}

// Several gateways get the same callbacks in different orders, while the owner's answers arrive. Each end counts once.
func TestFinishOnce(t *testing.T) {
	w := newWorld(t)
	a := w.register("one", "g", "a", "10.0.0.1")
	ids := w.accept("one", a.Hold(), offers(200))
	w.send("one", a.Hold(), ids...)
	var mu sync.Mutex
	finished := make(map[int64]int)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			order := slices.Clone(ids)
			rand.New(rand.NewPCG(uint64(i), 1)).Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })
			for part := range slices.Chunk(order, 50) {
				var ends []gateway.End
				var answers []gateway.Answer
				for _, id := range part {
					ends = append(ends, gateway.End{LogID: id, Result: gateway.Result{Outcome: "succeeded", Output: fmt.Sprint(i)}})
					answers = append(answers, gateway.Answer{LogID: id, State: gateway.Taken})
				}
				if i == 0 {
					if _, err := w.Answer(t.Context(), answers); err != nil {
						t.Error(err)
					}
					continue
				}
				got, err := w.Finish(t.Context(), []string{"g"}, ends)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for j, d := range got {
					if d == gateway.Finished {
						finished[part[j]]++
					} else if d != gateway.Repeated {
						t.Errorf("disposition %s", d)
					}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if finished[id] != 1 {
			t.Errorf("%d ended %d times", id, finished[id])
		}
	}
	if s := w.states(); strings.Count(s, "ended") != len(ids) {
		t.Errorf("states: %s", s)
	}
}
