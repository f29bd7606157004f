package bench

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

func TestPercentilesAreWithinABucket(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var parts [3]Histogram
	var all []time.Duration
	for i := range 100_000 {
		d := time.Duration(r.ExpFloat64() * float64(3*time.Millisecond))
		all = append(all, d)
		parts[i%3].Add(d)
	}
	slices.Sort(all)
	var h Histogram
	for i := range parts {
		taken, err := parts[i].Take()
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Merge(taken); err != nil {
			t.Fatal(err)
		}
		if p := parts[i].Percentiles(); p != (Percentiles{}) {
			t.Errorf("after Take the percentiles are %v, want zeros", p)
		}
	}
	got := h.Percentiles()
	for _, c := range []struct {
		share float64
		got   float64
	}{{.5, got.P50}, {.99, got.P99}, {.999, got.P999}, {1, got.Max}} {
		want := milliseconds(all[int(math.Ceil(c.share*float64(len(all))))-1])
		if c.got < want || c.got > want*growth {
			t.Errorf("percentile %v: got %v ms, want %v ms", c.share, c.got, want)
		}
	}
}

func TestHistogramAtItsEnds(t *testing.T) {
	var h Histogram
	if p := h.Percentiles(); p != (Percentiles{}) {
		t.Errorf("empty: %v", p)
	}
	h.Add(-time.Second) // a start before due, if the clock was set back
	h.Add(0)
	h.Add(30 * time.Hour)
	if p := h.Percentiles(); p.P50 > 0.001 || p.Max != milliseconds(30*time.Hour) {
		t.Errorf("got %v", p)
	}
	if h.Merge([]byte("{")) == nil {
		t.Error("Merge accepted malformed JSON")
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.in); got != c.want {
			t.Errorf("median of %v: %v", c.in, got)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of no values is not NaN")
	}
}

func TestThousands(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 9.876: "9.88", 98.76: "98.8", 999.6: "1,000", 1234567: "1,234,567", -1500: "-1,500"} {
		if got := thousands(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
}

func TestSummary(t *testing.T) {
	r := Report{}
	add := func(what, side string, f Figures) { r.Runs = append(r.Runs, Run{What: what, Side: side, Figures: f}) }
	add("a", sideBaseline, Figures{"x": 10, "only": 1})
	add("a", sideEngine, Figures{"x": 20})
	add("a", sideBaseline, Figures{"x": 30})
	add("a", sideEngine, Figures{"x": 40})
	add("a", sideBaseline, Figures{"x": 20, "zero": 0})
	add("a", sideEngine, Figures{"x": 90, "zero": 1})
	add("b", sideEngine, Figures{"x": 1})
	r.summarize()
	r.summarize() // a second call must change nothing
	if len(r.Summaries) != 2 || r.Summaries[0].Runs != 3 {
		t.Fatalf("got %+v", r.Summaries)
	}
	a, b := r.Summaries[0], r.Summaries[1]
	if a.Baseline["x"] != 20 || a.Engine["x"] != 40 || a.Ratios["x"] != 2 || a.Baseline["only"] != 1 {
		t.Errorf("got %+v", a)
	}
	if _, ok := a.Ratios["zero"]; ok {
		t.Error("there is a ratio to a baseline of zero")
	}
	if b.Baseline != nil || b.Ratios != nil || b.Engine["x"] != 1 {
		t.Errorf("got %+v", b)
	}
}

// TestLoadsAgree checks that the baseline's due instants are those of the engine's jobs.
func TestLoadsAgree(t *testing.T) {
	from := time.Unix(1_800_000_000, 0)
	for _, l := range []load{
		{Sets: []set{{N: 7, From: from}}},
		{Sets: []set{{N: 3, From: from, For: 4 * time.Second}}},
		{Sets: []set{{N: 1500, From: from, For: 2 * time.Second, Spread: true}, {N: 7, From: from.Add(time.Second), For: time.Second, Spread: true}}},
		ramp(from, 100, true), ramp(from, 100, false),
	} {
		want := make(map[time.Time]int)
		for _, s := range l.Sets {
			for i := range s.N {
				for k := range s.seconds() {
					want[s.From.Add(time.Duration(k)*time.Second+s.phase(i))]++
				}
			}
		}
		n, last := 0, time.Time{}
		l.due(func(at time.Time) bool {
			n++
			want[at]--
			if at.Before(last) {
				t.Errorf("%v comes after %v", at, last)
			}
			last = at
			return true
		})
		if n != l.fires() {
			t.Errorf("%d instants, want %d", n, l.fires())
		}
		for at, left := range want {
			if left != 0 {
				t.Errorf("%v: %d fires are missing", at, left)
			}
		}
	}
}

func TestRampGrows(t *testing.T) {
	from := time.Unix(1_800_000_000, 0)
	l := ramp(from, 1000, false)
	perSecond := make(map[int64]int)
	l.due(func(at time.Time) bool { perSecond[at.Unix()-from.Unix()]++; return true })
	for k := range rampSteps {
		want := int(1000 * math.Pow(rampGrowth, float64(k)))
		for s := k * 5; s < k*5+5; s++ {
			if got := perSecond[int64(s)]; got < want-1 || got > want+1 {
				t.Errorf("second %d: %d fires, want %d", s, got, want)
			}
		}
	}
}

func TestHolds(t *testing.T) {
	for _, c := range []struct {
		name     string
		estimate int
		most     float64      // the highest sustained rate
		noise    map[int]bool // tries that fail although the rate is sustained
		want     float64      // the least result, as a share of most
	}{
		{"up", 1000, 1100, nil, 0.97},
		{"down", 1000, 900, nil, 0.97},
		{"at once", 1000, 1000, nil, 0.97},
		{"one noisy try", 1000, 1100, map[int]bool{2: true}, 0.97},
		{"never", 1000, 0, nil, 0},
	} {
		h, best := holds{rate: float64(c.estimate)}, 0
		for rate, try := h.next(), 0; rate > 0; rate, try = h.next(), try+1 {
			if h.was(float64(rate) <= c.most && !c.noise[try]) {
				best = rate
			}
		}
		if got := float64(best); got > c.most || got < c.want*c.most {
			t.Errorf("%s: %v of %v", c.name, got, c.most)
		}
	}
}

func TestSustained(t *testing.T) {
	from := time.Unix(1_800_000_000, 0)
	at := func(s float64) time.Time { return from.Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct {
		name    string
		seconds []second
		stopped time.Time
		want    bool
	}{
		{"all on time", []second{{at(4), 0}, {at(4.6), 300 * time.Millisecond}}, time.Time{}, true},
		{"late before, then on time again", []second{{at(2), 2 * time.Second}, {at(4.6), 0}}, time.Time{}, true},
		{"late at the end", []second{{at(4.1), 1100 * time.Millisecond}, {at(4.6), 0}}, time.Time{}, false},
		{"late after the end", []second{{at(4.6), 0}, {at(5.1), 2 * time.Second}}, time.Time{}, true},
		{"cut short", []second{{at(4.6), 0}}, at(4.5), false},
	} {
		e := engineRun{from: from, seconds: c.seconds, stopped: c.stopped}
		if got := e.sustained(at(5)); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestOrderOfFigures(t *testing.T) {
	got := sortedNames(Figures{"wal_bytes_per_run": 1, "unknown": 1, "cpu_us_per_run.nats": 1, "cpu_us_per_run": 1, "ended": 1}, Figures{"fires": 1, "lateness_p50_ms": 1})
	want := []string{"fires", "ended", "lateness_p50_ms", "cpu_us_per_run", "cpu_us_per_run.nats", "wal_bytes_per_run", "unknown"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	if !canMeter() {
		t.Skip("NOT COVERED: the usage of processes, because this system does not report it")
	}
	before, err := usageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for sum, begun := 0, time.Now(); time.Since(begun) < 5*time.Minute; sum++ { // use CPU time until the clock tick shows it
		if u, err := usageOf(os.Getpid()); err == nil && u.cpu >= before.cpu+5*clockTick {
			if u.memory < 1<<20 {
				t.Errorf("%d bytes are resident", u.memory)
			}
			return
		}
	}
	t.Error("the CPU time of a busy loop was not measured")
}

func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		sizes []float64
		want  float64
	}{
		{[]float64{1, 10, 12, 11, 10, 12, 11, 12, 10, 11}, 1},
		{[]float64{1, 10, 20, 30, 40, 50, 60, 70, 80, 90}, 90.0 / 40},
	} {
		if got := growthOf(c.sizes); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: got %v, want %v", c.sizes, got, c.want)
		}
	}
	if !math.IsNaN(growthOf([]float64{1, 2, 3, 4})) {
		t.Error("the growth of four sizes is not NaN")
	}
}

func TestBusyOf(t *testing.T) {
	if got := busyOf("cpu  100 20 30 9999 500 4 5 77 0 0"); got != 1590*time.Millisecond {
		t.Errorf("got %v", got)
	}
	for _, line := range []string{"", "cpu 1 2", "cpu0 1 2 3 4 5 6 7 8", "cpu a b c d e f g h"} {
		if got := busyOf(line); got != 0 {
			t.Errorf("%q: got %v", line, got)
		}
	}
}

func TestHeldUp(t *testing.T) {
	for _, c := range []struct {
		used, others float64
		cpus         int
		want         bool
	}{
		{179, 2, 2, false},
		{118, 3, 2, true},
		{150, 12, 2, false}, // other programs used the CPUs, and the report shows their share
		{90, 0, 1, false},
		{185, 0, 64, false},
		{0, 0, 2, false}, // a system that does not report CPU times
	} {
		if got := heldUp(Figures{"cpu_percent": c.used, "others_cpu_percent": c.others}, c.cpus); got != c.want {
			t.Errorf("%v and %v%% of %d CPUs: %v", c.used, c.others, c.cpus, got)
		}
	}
}
