package natsauth

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/internal/domain"
)

// Lanes take turns, however long one of them is.
func TestQueueIsFair(t *testing.T) {
	q := newQueue[string]()
	for n := range 1000 {
		q.push("a", fmt.Sprint("a", n))
	}
	q.push("b", "b0")
	q.push("c", "c0")
	q.push("b", "b1")
	var got []string
	for range 6 {
		item, ok := q.pop(t.Context())
		if !ok {
			t.Fatal("no item")
		}
		got = append(got, item)
	}
	if want := "[a0 b0 c0 a1 b1 a2]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestQueueIsBounded(t *testing.T) {
	q := newQueue[int]()
	for n := range maxInLane {
		if lane, full := q.push("a", n); full {
			t.Fatalf("item %d of lane %q was dropped", n, lane)
		}
	}
	if lane, full := q.push("a", 0); !full || lane != "a" {
		t.Errorf("dropped of lane %q: %v, want the lane that is full", lane, full)
	}
	for n := range maxWaiting - maxInLane {
		if lane, full := q.push(fmt.Sprint("x", n%10), n); full {
			t.Fatalf("item %d of lane %q was dropped", n, lane)
		}
	}
	// A new lane finds room at the expense of the longest one.
	if lane, full := q.push("b", 1); !full || lane != "a" {
		t.Errorf("dropped of lane %q: %v, want the longest lane", lane, full)
	}
	items := 0
	for q.size > 0 {
		if _, ok := q.pop(t.Context()); !ok {
			t.Fatal("no item")
		}
		items++
	}
	if items != maxWaiting || len(q.lanes) != 0 || len(q.turns) != 0 {
		t.Errorf("%d items, %d lanes left", items, len(q.lanes))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := q.pop(ctx); ok {
		t.Error("an empty queue has an item")
	}
}

// Beyond a number of lanes, further hosts with unknown tokens share one, so that the number of lanes is bounded.
func TestQueueHasBoundedLanes(t *testing.T) {
	q := newQueue[int]()
	for n := range 3 * maxLanes {
		q.push(fmt.Sprint("host ", n), n)
	}
	if len(q.lanes) > maxLanes+1 || q.size != 3*maxLanes {
		t.Errorf("%d lanes with %d items", len(q.lanes), q.size)
	}
}

// Log-ins wait in the lane of their token's group, and those with unknown tokens in the lane of their host.
func TestLanes(t *testing.T) {
	r := newResponder(t, func(token string) (string, error) { return token[:1], nil })
	login := func(token, host string) []byte {
		return request(t, func(c *jwt.AuthorizationRequestClaims) {
			c.ConnectOptions.Token, c.ClientInformation.Host = token, host
		})
	}
	for _, token := range []string{"a1", "b1"} { // both become known
		if _, err := r.answer(t.Context(), login(token, "h"), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	arrived := []struct{ token, host string }{
		{"a1", "h1"}, {"a1", "h2"}, {"a1", "h3"}, {"x1", "h9"}, {"x2", "h9"}, {"x3", "h9"}, {"a1", "h1"}, {"b1", "h1"}, {"x4", "h8"},
	}
	requests := make(chan *nats.Msg, len(arrived))
	for _, one := range arrived {
		requests <- &nats.Msg{Data: login(one.token, one.host)}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.sort(ctx, requests); close(ended) }()
	var order []string
	for range arrived {
		for len(r.waiting.ready) < len(arrived)-len(order) { // all have arrived
			runtime.Gosched()
		}
		next, _ := r.waiting.pop(ctx)
		order = append(order, next.req.ConnectOptions.Token)
	}
	cancel()
	<-ended
	if want := "[a1 x1 b1 x4 a1 x2 a1 x3 a1]"; fmt.Sprint(order) != want {
		t.Errorf("the order is %v, want %s", order, want)
	}
}

// A host with unknown tokens uses up its own budget of log-ins, and reaches the Verifier no more often than that.
func TestBudgetOfHosts(t *testing.T) {
	asked := 0
	r := newResponder(t, func(token string) (string, error) {
		if token == "a1" {
			return "a", nil
		}
		asked++
		return "", domain.NewError(domain.Forbidden, "no such token")
	})
	now := time.Now()
	try := func(token, host string) string {
		data := request(t, func(c *jwt.AuthorizationRequestClaims) {
			c.ConnectOptions.Token, c.ClientInformation.Host = token, host
		})
		req, err := r.decode(data)
		if err != nil {
			t.Fatal(err)
		}
		return r.admit(t.Context(), req, now).outcome
	}
	if got := try("a1", "h1"); got != accepted {
		t.Fatal(got)
	}
	limited := 0
	for range unknownAtOnce + 10 {
		if try("x", "h1") == refusedRate {
			limited++
		}
	}
	if limited != 11 || asked != unknownAtOnce-1 {
		t.Errorf("%d log-ins were limited, the verifier was asked %d times", limited, asked)
	}
	if got := try("a1", "h1"); got != accepted {
		t.Errorf("a known token from the same host: %s", got)
	}
	if got := try("x", "h2"); got != refusedToken {
		t.Errorf("an unknown token from another host: %s", got)
	}
}

type fixedLimits map[string]domain.GroupLimits

func (f fixedLimits) GroupLimits(_ context.Context, names []string) (map[string]domain.GroupLimits, error) {
	out := make(map[string]domain.GroupLimits)
	for _, name := range names {
		out[name] = f[name]
	}
	return out, nil
}

// Each group may log in with all its connections at once, and then with a thirtieth of them in a second.
func TestRateOfLogins(t *testing.T) {
	few := domain.DefaultGroupLimits()
	few.MaxConnections = 60
	g, err := newGates(fixedLimits{"a": few, "b": domain.DefaultGroupLimits()})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	take := func(group string, at time.Time, tries int) (taken int) {
		for range tries {
			if _, ok := g.group(t.Context(), group, at); ok {
				taken++
			}
		}
		return taken
	}
	if n := take("a", now, 1000); n != 60 {
		t.Errorf("%d log-ins at once, want 60", n)
	}
	if n := take("b", now, 1000); n != 1000 {
		t.Errorf("%d log-ins of another group, want 1000", n)
	}
	if n := take("a", now.Add(5*time.Second), 1000); n != 10 {
		t.Errorf("%d log-ins after 5 s, want 10", n)
	}
	if g.isClosed("a", now) {
		t.Error("closed")
	}
	g.close("a", now)
	if !g.isClosed("a", now.Add(closedLasts-1)) || g.isClosed("a", now.Add(closedLasts)) || g.isClosed("b", now) {
		t.Error("a closed group is not closed for a minute")
	}
}
