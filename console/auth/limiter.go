package auth

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// The limits of log-in attempts: a burst, and then one attempt per interval. The limit for a user holds for all client
// addresses together. It allows about 20,000 guesses a day, and delays the user by seconds.
const (
	burstPerNetwork = 20
	everyPerNetwork = 3 * time.Second
	burstPerUser    = 10
	everyPerUser    = 4 * time.Second
	limitersKept    = 10_000 // for networks and for users each; the least recently used one is dropped first
)

// Limiter limits log-in attempts by client network and by user name, in bounded memory.
type Limiter struct {
	mu       sync.Mutex
	networks *lru.Cache[string, *rate.Limiter]
	users    *lru.Cache[string, *rate.Limiter]
}

// NewLimiter makes a Limiter.
func NewLimiter() *Limiter {
	// New fails only for a size that is not positive.
	networks, _ := lru.New[string, *rate.Limiter](limitersKept)
	users, _ := lru.New[string, *rate.Limiter](limitersKept)
	return &Limiter{networks: networks, users: users}
}

// Try counts one attempt. If the attempt is allowed, wait is zero, else it is the time until the next one is allowed.
func (l *Limiter) Try(remote, user string, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byNetwork := of(l.networks, network(remote), everyPerNetwork, burstPerNetwork)
	byUser := of(l.users, user, everyPerUser, burstPerUser)
	n, u := byNetwork.ReserveN(now, 1), byUser.ReserveN(now, 1)
	if wait = max(n.DelayFrom(now), u.DelayFrom(now)); wait > 0 {
		// If refused attempts counted, a client that retries too early could never log in again.
		n.CancelAt(now)
		u.CancelAt(now)
	}
	return wait
}

// TryNetwork is Try for an attempt whose user is not known yet.
func (l *Limiter) TryNetwork(remote string, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := of(l.networks, network(remote), everyPerNetwork, burstPerNetwork).ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

func of(kept *lru.Cache[string, *rate.Limiter], key string, every time.Duration, burst int) *rate.Limiter {
	if l, ok := kept.Get(key); ok {
		return l
	}
	l := rate.NewLimiter(rate.Every(every), burst)
	kept.Add(key, l)
	return l
}
