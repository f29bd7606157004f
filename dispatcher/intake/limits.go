package intake

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// limits limits the rate of events for each key. It is safe for concurrent use.
type limits struct {
	rate  rate.Limit
	burst int

	mu   sync.Mutex
	keys *lru.Cache[string, *limit]
}

// limit is the state of one key.
type limit struct {
	*rate.Limiter
	skipped int // since the last time that allow returned true
}

// limitedKeys is the maximum number of keys in memory.
const limitedKeys = 10_000

func newLimits(perSecond float64, burst int) *limits {
	keys, err := lru.New[string, *limit](limitedKeys)
	if err != nil {
		panic(err) // only if the size is not positive
	}
	return &limits{rate: rate.Limit(perSecond), burst: burst, keys: keys}
}

// allow reports whether another event of the key is allowed now. skipped is the number of events that were refused since the last
// allowed one.
func (l *limits) allow(key string) (ok bool, skipped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, known := l.keys.Get(key)
	if !known {
		k = &limit{Limiter: rate.NewLimiter(l.rate, l.burst)}
		l.keys.Add(key, k)
	}
	if !k.Allow() {
		k.skipped++
		return false, 0
	}
	skipped, k.skipped = k.skipped, 0
	return true, skipped
}
