package natsauth

import (
	"context"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/internal/domain"
)

// Limits returns the limits of groups.
type Limits interface {
	GroupLimits(ctx context.Context, names []string) (map[string]domain.GroupLimits, error)
}

// The rates of log-ins. A group may log in with all its connections at once, as after a restart of NATS, and then with
// a thirtieth of them in a second. So a group can have at most three times max_connections log-ins in a minute.
const (
	refillSeconds = 30
	leastBurst    = 20

	// Log-ins with tokens that this process has not verified yet, from one host. After a start, it knows no token.
	unknownPerSecond, unknownAtOnce = 100, 1000
	// Log-ins with one API token for events.
	senderPerSecond, senderAtOnce = 10, 200

	limitsKept   = 10_000           // groups, senders and hosts
	limitsLast   = 10 * time.Second // until a group's limits are read again
	closedLasts  = time.Minute      // how long a group with too many instances gets no new log-ins
	closedGroups = 10_000
)

// gates bounds the log-ins of each group, sender and host. It is safe for concurrent use.
type gates struct {
	limits Limits // may be nil

	mu     sync.Mutex
	groups *lru.Cache[string, *gate]
	others *lru.Cache[string, *rate.Limiter] // senders and hosts
	closed *lru.Cache[string, time.Time]     // groups that get no new log-ins, and until when
}

// gate is the state of one group.
type gate struct {
	logins *rate.Limiter
	limits domain.GroupLimits
	readAt time.Time
}

func newGates(limits Limits) (*gates, error) {
	g := &gates{limits: limits}
	var err error
	if g.groups, err = lru.New[string, *gate](limitsKept); err != nil {
		return nil, err
	}
	if g.others, err = lru.New[string, *rate.Limiter](limitsKept); err != nil {
		return nil, err
	}
	g.closed, err = lru.New[string, time.Time](closedGroups)
	return g, err
}

// group takes a log-in of a group from its budget, and returns the group's limits. ok is false if the budget is used up.
func (g *gates) group(ctx context.Context, name string, now time.Time) (limits domain.GroupLimits, ok bool) {
	limits = g.read(ctx, name, now)
	g.mu.Lock()
	defer g.mu.Unlock()
	of, found := g.groups.Get(name)
	if !found { // removed in the meantime
		return limits, true
	}
	return limits, of.logins.AllowN(now, 1)
}

// read returns a group's limits. While they cannot be read, the last known ones apply, or the defaults.
func (g *gates) read(ctx context.Context, name string, now time.Time) domain.GroupLimits {
	g.mu.Lock()
	of, found := g.groups.Get(name)
	if !found {
		of = &gate{limits: domain.DefaultGroupLimits()}
		of.logins = rate.NewLimiter(perSecond(of.limits), burst(of.limits))
		g.groups.Add(name, of)
	}
	limits, fresh := of.limits, now.Sub(of.readAt) < limitsLast
	if !fresh {
		of.readAt = now // the others use the old limits meanwhile
	}
	g.mu.Unlock()
	if fresh || g.limits == nil {
		return limits
	}
	read, err := g.limits.GroupLimits(ctx, []string{name})
	set, known := read[name]
	if err != nil || !known {
		return limits // the next reading is in limitsLast
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if set.MaxConnections != of.limits.MaxConnections {
		of.logins.SetLimitAt(now, perSecond(set))
		of.logins.SetBurstAt(now, burst(set))
	}
	of.limits = set
	return set
}

func burst(l domain.GroupLimits) int { return max(l.MaxConnections, leastBurst) }

func perSecond(l domain.GroupLimits) rate.Limit { return rate.Limit(burst(l)) / refillSeconds }

func (g *gates) sender(name string, now time.Time) bool {
	return g.other(name, senderPerSecond, senderAtOnce, now)
}

func (g *gates) host(name string, now time.Time) bool {
	return g.other("host "+name, unknownPerSecond, unknownAtOnce, now)
}

func (g *gates) other(name string, perSecond rate.Limit, atOnce int, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, ok := g.others.Get(name)
	if !ok {
		l = rate.NewLimiter(perSecond, atOnce)
		g.others.Add(name, l)
	}
	return l.AllowN(now, 1)
}

// close refuses new log-ins of a group for a minute.
func (g *gates) close(group string, now time.Time) { g.closed.Add(group, now.Add(closedLasts)) }

func (g *gates) isClosed(group string, now time.Time) bool {
	until, ok := g.closed.Peek(group)
	return ok && now.Before(until)
}

func tooManyConnections(limits domain.GroupLimits) error {
	return domain.NewError(domain.Forbidden, fmt.Sprintf("the group has its %d connections (max_connections)", limits.MaxConnections))
}

func tooManyInstances(limits domain.GroupLimits) error {
	return domain.NewError(domain.Forbidden, fmt.Sprintf("the group had more than its %d instances (max_instances) within the last minute", limits.MaxInstances))
}

var errTooManyLogins = domain.NewError(domain.Forbidden, "too many log-ins in a short time")
