package roster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func names(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

// dispatcherView is a population that receives messages of the bucket of group a.
type dispatcherView struct {
	population
	now time.Time
}

func newView() *dispatcherView {
	return &dispatcherView{population: population{groups: map[string]map[string]*resident{}}, now: time.Now()}
}

func (v *dispatcherView) beat(seq uint64, name string) {
	v.put(key{"a", name}, seq, 100, time.Time{}, v.now)
}

// The newest keys are those that appeared last, however often later heartbeats have replaced their messages.
func TestNewestKeys(t *testing.T) {
	v := newView()
	v.complete(v.now)
	seq := uint64(0)
	all := func(prefix string, n int) {
		for _, name := range names(prefix, n) {
			seq++
			v.beat(seq, name)
		}
	}
	all("old", 3)
	if got := v.beyond("a", 3, v.now); len(got) != 0 {
		t.Errorf("within the limit, %v are beyond it", got)
	}
	all("new", 4)
	for range 5 {
		all("new", 4)
		all("old", 3)
		v.now = v.now.Add(3 * time.Second)
	}
	if got := v.beyond("a", 3, v.now); fmt.Sprint(got) != "[new3 new2 new1 new0]" {
		t.Errorf("beyond the limit are %v", got)
	}
	for _, name := range names("old", 3) {
		if v.exceeds(key{"a", name}, 3, v.now) {
			t.Errorf("%s exceeds the limit", name)
		}
	}
	for _, name := range names("new", 4) {
		if !v.exceeds(key{"a", name}, 3, v.now) {
			t.Errorf("%s does not exceed the limit", name)
		}
	}
	// A removed key that reappears keeps its position among the newest. A key that has left makes room for another.
	v.delete(key{"a", "new0"}, seq)
	all("new", 4)
	v.delete(key{"a", "old1"}, seq)
	if got := v.beyond("a", 3, v.now); fmt.Sprint(got) != "[new3 new2 new1]" {
		t.Errorf("beyond the limit are %v", got)
	}
}

// A process that starts later, or that has lost its connection, removes no key that another one keeps.
func TestViewsAgree(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		const limit = 5
		first, late := newView(), newView()
		first.complete(first.now)
		present := map[string]uint64{} // the newest message of each key
		seq := uint64(0)
		started := false
		for step := range 60 {
			names := names("i", 1+rng.IntN(12))
			for _, i := range rng.Perm(len(names)) {
				seq++
				present[names[i]] = seq
				first.beat(seq, names[i])
				if started {
					late.beat(seq, names[i])
				}
			}
			if !started && step > 10 && rng.IntN(10) == 0 {
				started = true
				for name, at := range present {
					late.beat(at, name)
				}
				late.complete(late.now)
			}
			kept := first.beyond("a", limit, first.now)
			for _, name := range late.beyond("a", limit, late.now) {
				if !slices.Contains(kept, name) {
					t.Fatalf("seed %d, step %d: the later process removes %s, the first one keeps it: it removes %v", seed, step, name, kept)
				}
			}
			for _, name := range kept {
				first.delete(key{"a", name}, seq)
				late.delete(key{"a", name}, seq)
				delete(present, name)
			}
		}
	}
}

// If all processes find too many keys at their start, they remove the keys of the instances that started last, after settleIn.
func TestTooManyKeysAtTheStart(t *testing.T) {
	v := newView()
	begin := v.now
	for i, name := range names("i", 5) {
		v.put(key{"a", name}, uint64(10-i), 100, begin.Add(-time.Duration(10-i)*time.Hour), v.now)
	}
	v.complete(v.now)
	v.now = begin.Add(settleIn - time.Second)
	refresh := func() {
		for i, name := range names("i", 5) {
			v.put(key{"a", name}, uint64(20+i), 100, begin.Add(-time.Duration(10-i)*time.Hour), v.now)
		}
	}
	refresh()
	if got := v.beyond("a", 3, v.now); len(got) != 0 {
		t.Errorf("at first, %v are removed", got)
	}
	v.now = begin.Add(settleIn)
	refresh()
	if got := v.beyond("a", 3, v.now); fmt.Sprint(got) != "[i4 i3]" {
		t.Errorf("%v are removed", got)
	}
}

// The number of a group's keys in memory is bounded. Keys without a heartbeat are deleted first.
func TestPopulationForgets(t *testing.T) {
	v := newView()
	v.complete(v.now)
	for i := range residentsMax {
		v.beat(uint64(i+1), fmt.Sprint("i", i))
	}
	v.now = v.now.Add(11 * time.Second)
	v.beat(residentsMax+1, "new")
	if n := len(v.groups["a"]); n != 1 {
		t.Errorf("%d keys are remembered", n)
	}
	v.now = v.now.Add(remembered + time.Second)
	v.sweep(v.now)
	if len(v.groups) != 0 {
		t.Error("an empty group is remembered")
	}
}
