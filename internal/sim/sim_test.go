package sim

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
)

// spools returns a directory for the files of one world, in memory if the machine has /dev/shm.
func spools(t *testing.T) string {
	t.Helper()
	base := "/dev/shm"
	if _, err := os.Stat(base); err != nil {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "belfry-sim-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// run runs the world of a seed in its own bubble. Worlds cannot run in parallel in one process, because nats.go keeps the timers of
// all connections in one pool, and a bubble must not get a timer of another bubble.
func run(t *testing.T, seed uint64) (ok bool) {
	t.Helper()
	return t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
		dir := spools(t)
		runtime.GC() // a pool is empty after two collections
		runtime.GC()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(seed, dir)
			w.Run()
			if len(w.failures) > 0 {
				t.Error(w.report())
			}
		})
	})
}

// setting returns the number in an environment variable.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestSeeds runs the worlds of many seeds and checks each. SIM_FIRST is the first seed, SIM_SEEDS the number of seeds, and SIM_STOP
// the number of failing seeds after which the test ends. SIM_SEED selects one seed, which runs SIM_TIMES times.
func TestSeeds(t *testing.T) {
	if seed := setting(t, "SIM_SEED", -1); seed >= 0 {
		for range setting(t, "SIM_TIMES", 1) {
			if !run(t, uint64(seed)) {
				return
			}
		}
		return
	}
	seeds := 200
	if testing.Short() {
		seeds = 40
	}
	first := setting(t, "SIM_FIRST", 0)
	failed := 0
	for seed := first; seed < first+setting(t, "SIM_SEEDS", seeds); seed++ {
		if !run(t, uint64(seed)) {
			if failed++; failed == setting(t, "SIM_STOP", 5) {
				t.Fatalf("%d seeds failed, the others are not run", failed)
			}
		}
	}
}
