package sim

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
)

// spools returns a directory in memory for the files of one world, where the machine has such.
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

// live lives the world of a seed in a bubble of its own. Worlds cannot live side by side in one process: nats.go keeps
// timers in a pool for all connections, and one bubble must not get another's.
func live(t *testing.T, seed uint64) (sound bool) {
	t.Helper()
	return t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
		dir := spools(t)
		runtime.GC() // a pool lets go of what it holds in two collections
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

// setting reads a number from the environment.
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

// TestSeeds lives many worlds and checks each. SIM_SEED pins one, SIM_TIMES says how often it is lived; SIM_SEEDS says
// how many there are, SIM_FIRST where they begin, SIM_STOP after how many faulty ones to stop.
func TestSeeds(t *testing.T) {
	if seed := setting(t, "SIM_SEED", -1); seed >= 0 {
		for range setting(t, "SIM_TIMES", 1) {
			if !live(t, uint64(seed)) {
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
		if !live(t, uint64(seed)) {
			if failed++; failed == setting(t, "SIM_STOP", 5) {
				t.Fatal("enough")
			}
		}
	}
}
