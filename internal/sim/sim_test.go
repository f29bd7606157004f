package sim

import (
	"os"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/belfryhq/belfry/internal/domain"
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
func live(t *testing.T, seed uint64, look func(*testing.T, *World)) {
	t.Helper()
	dir := spools(t)
	runtime.GC() // a pool lets go of what it holds in two collections
	runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed, dir)
		w.Run()
		look(t, w)
		if t.Failed() {
			t.Log(w.plan.describe())
		}
	})
}

// A cluster in which nothing breaks fires, runs and settles.
func TestCalmWorld(t *testing.T) {
	live(t, 10, func(t *testing.T, w *World) {
		for _, f := range w.faulty {
			t.Error(f)
		}
		succeeded := 0
		for _, r := range w.db.Runs() {
			switch {
			case !r.State.Final():
				t.Errorf("run %s is %s", r.ID, r.State)
			case r.State == domain.Succeeded:
				succeeded++
			case r.Reason == domain.ReasonLost:
				t.Errorf("run %s was named lost: %s", r.ID, r.Message)
			}
		}
		if succeeded < 30 {
			t.Errorf("only %d runs succeeded", succeeded)
		}
	})
}
