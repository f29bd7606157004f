package auth

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// How often may be tried to log in, at once and then one after the other. The bound for a user holds however many
// addresses try; it slows a guesser to some 20,000 passwords a day and the user himself by seconds.
const (
	burstPerNetwork = 20
	everyPerNetwork = 3 * time.Second
	burstPerUser    = 10
	everyPerUser    = 4 * time.Second
	limitersKept    = 10_000 // of each sort; the longest unused is forgotten first
)

// Limiter bounds how often passwords are tried, by client network and by user name, in bounded memory.
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

// Try counts one attempt. wait is zero when it may go on, else how long until the next one may.
func (l *Limiter) Try(remote, user string, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byNetwork := of(l.networks, network(remote), everyPerNetwork, burstPerNetwork)
	byUser := of(l.users, user, everyPerUser, burstPerUser)
	n, u := byNetwork.ReserveN(now, 1), byUser.ReserveN(now, 1)
	if wait = max(n.DelayFrom(now), u.DelayFrom(now)); wait > 0 {
		// What is refused is not counted, or an impatient client would never get in again.
		n.CancelAt(now)
		u.CancelAt(now)
	}
	return wait
}

// TryNetwork is Try where it is not known yet who tries.
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
