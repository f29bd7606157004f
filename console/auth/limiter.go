package auth

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// The limits of log-in attempts: a burst, and then one attempt per interval.
//
// A client is limited by its network, and by the pair of user and network. The limit of a user for all networks together makes
// guesses from many networks slow. One network cannot reach it alone, because the limit of a pair is slower. If many
// networks reach it, each wider network still has a small reserve, so no client can lock the user out.
const (
	burstPerNetwork = 20
	everyPerNetwork = 3 * time.Second
	burstPerPair    = 10
	everyPerPair    = 10 * time.Second
	burstPerUser    = 50
	everyPerUser    = 2 * time.Second
	burstReserve    = 3
	everyReserve    = 10 * time.Minute
	limitersKept    = 10_000 // of each kind; the least recently used one is dropped first
)

type limiters = lru.Cache[string, *rate.Limiter]

// Limiter limits log-in attempts in bounded memory.
type Limiter struct {
	mu       sync.Mutex
	networks *limiters
	pairs    *limiters // by user and network
	users    *limiters
	reserves *limiters // by user and wider network
}

// NewLimiter makes a Limiter.
func NewLimiter() *Limiter {
	kept := func() *limiters {
		l, _ := lru.New[string, *rate.Limiter](limitersKept) // New fails only for a size that is not positive
		return l
	}
	return &Limiter{networks: kept(), pairs: kept(), users: kept(), reserves: kept()}
}

// Try counts one attempt. If the attempt is allowed, wait is zero, else it is the time until the next one is allowed. Refused
// attempts do not count. Otherwise a client that retries too early could never log in again.
func (l *Limiter) Try(remote, user string, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byNetwork := take(l.networks, network(remote), everyPerNetwork, burstPerNetwork, now)
	byPair := take(l.pairs, network(remote)+" "+user, everyPerPair, burstPerPair, now)
	byUser := take(l.users, user, everyPerUser, burstPerUser, now)
	own := max(byNetwork.DelayFrom(now), byPair.DelayFrom(now))
	wait = max(own, byUser.DelayFrom(now))
	if own == 0 && wait > 0 { // only the attempts from other networks are in the way
		byUser.CancelAt(now)
		byUser = take(l.reserves, widerNetwork(remote)+" "+user, everyReserve, burstReserve, now)
		wait = min(wait, byUser.DelayFrom(now))
	}
	if wait > 0 {
		byNetwork.CancelAt(now)
		byPair.CancelAt(now)
		byUser.CancelAt(now)
	}
	return wait
}

// TryNetwork is Try for an attempt whose user is not known yet.
func (l *Limiter) TryNetwork(remote string, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := take(l.networks, network(remote), everyPerNetwork, burstPerNetwork, now)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

func take(kept *limiters, key string, every time.Duration, burst int, now time.Time) *rate.Reservation {
	l, ok := kept.Get(key)
	if !ok {
		l = rate.NewLimiter(rate.Every(every), burst)
		kept.Add(key, l)
	}
	return l.ReserveN(now, 1)
}
