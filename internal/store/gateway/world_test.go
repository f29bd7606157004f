package gateway_test

import (
	"net/netip"
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
	t    testing.TB
	pool *pgxpool.Pool
}

func newWorld(t testing.TB, conns ...int32) *world {
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
	at, left, err := w.Send(w.t.Context(), owner, []gateway.Hold{h}, ids)
	if err != nil || len(at) != len(ids) || left[0] <= 0 || left[0] > lease {
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
