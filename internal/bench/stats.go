package bench

import (
	"encoding/json"
	"math"
	"slices"
	"sync"
	"time"
)

// Histogram counts durations in buckets that are 2 % wide, from 1 µs to hours. Its zero value is empty, and it is safe
// for concurrent use. The histograms of several processes can be merged.
type Histogram struct {
	mu      sync.Mutex
	buckets map[int]int64 // guarded by mu
	count   int64         // guarded by mu
	max     time.Duration // guarded by mu
}

// growth is the ratio of the bounds of neighboring buckets.
const growth = 1.02

func bucketOf(d time.Duration) int {
	us := float64(d) / float64(time.Microsecond)
	if us <= 1 {
		return 0
	}
	return int(math.Ceil(math.Log(us) / math.Log(growth)))
}

// bound returns the upper bound of a bucket.
func bound(bucket int) time.Duration {
	return time.Duration(math.Pow(growth, float64(bucket)) * float64(time.Microsecond))
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	b := bucketOf(d)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.buckets == nil {
		h.buckets = make(map[int]int64)
	}
	h.buckets[b]++
	h.count++
	h.max = max(h.max, d)
}

// Percentiles are percentiles of a histogram. Each is at most 2 % too large. All are zero if nothing was counted.
type Percentiles struct {
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p99.9_ms"`
	Max  float64 `json:"max_ms"`
}

// Percentiles returns the percentiles of all counted durations.
func (h *Histogram) Percentiles() Percentiles {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := func(share float64) float64 {
		want, seen := int64(math.Ceil(share*float64(h.count))), int64(0)
		for _, b := range h.sorted() {
			if seen += h.buckets[b]; seen >= want {
				return milliseconds(min(bound(b), h.max))
			}
		}
		return 0
	}
	return Percentiles{P50: at(.5), P99: at(.99), P999: at(.999), Max: milliseconds(h.max)}
}

func (h *Histogram) sorted() []int {
	keys := make([]int, 0, len(h.buckets))
	for b := range h.buckets {
		keys = append(keys, b)
	}
	slices.Sort(keys)
	return keys
}

// histogramJSON is a histogram as one process sends it to another.
type histogramJSON struct {
	Buckets map[int]int64 `json:"buckets"`
	Count   int64         `json:"count"`
	Max     time.Duration `json:"max_ns"`
}

// Take returns the histogram in JSON and empties it.
func (h *Histogram) Take() (json.RawMessage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, err := json.Marshal(histogramJSON{h.buckets, h.count, h.max})
	h.buckets, h.count, h.max = nil, 0, 0
	return b, err
}

// Merge adds the durations that Take of another histogram returned.
func (h *Histogram) Merge(taken json.RawMessage) error {
	var in histogramJSON
	if err := json.Unmarshal(taken, &in); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.buckets == nil {
		h.buckets = make(map[int]int64)
	}
	for b, n := range in.Buckets {
		h.buckets[b] += n
	}
	h.count += in.Count
	h.max = max(h.max, in.Max)
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// median returns the middle value, or the mean of the two middle values. It returns NaN if there are no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
