package sdktest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/wire"
)

// childMain runs an executor in a separate process, which a test kills.
func childMain(spoolDir string) {
	e, err := executor.New(executor.Config{
		NATSURL: os.Getenv("BELFRY_TEST_CHILD_URL"), Token: "secret", Group: "g", Instance: "i1", SpoolDir: spoolDir, Logger: quietLogger(),
	})
	if err == nil {
		e.HandleFunc("h", func(_ context.Context, run executor.Run) error { return run.SetOutput("from the child") })
		err = e.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestResultSurvivesKill kills an executor after it has published a result and before the result is settled. The next process
// sends the result again with the boot of the killed process, answers status requests from it, and starts no attempt twice.
func TestResultSurvivesKill(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "BELFRY_TEST_CHILD_SPOOL="+c.SpoolDir, "BELFRY_TEST_CHILD_URL="+c.NATSURL)
	child.Stderr = os.Stderr
	must(t, child.Start())
	ping := func() (rep wire.ControlReply) {
		msg, err := w.nc.Request(wire.ControlSubject("g", "i1"), wire.Encode(wire.Control{V: wire.Version, Op: wire.OpPing}), time.Second)
		if err == nil {
			must(t, wire.Decode(msg.Data, &rep))
		}
		return rep
	}
	i := &instance{w: w, name: "i1"}
	for deadline := time.Now().Add(patience); i.boot == ""; i.boot = ping().BootID {
		if time.Now().After(deadline) {
			t.Fatal("the child process does not start")
		}
	}
	// The executor refuses offers until its first heartbeat is confirmed. With a higher bind, it decides again.
	o := newOffer("r1", "h")
	for deadline := time.Now().Add(patience); i.offer(o).Verdicts[0].Verdict != wire.Accepted; o.Bind++ {
		if time.Now().After(deadline) {
			t.Fatal("the child process accepts no offer")
		}
	}
	first := w.result("r1")
	must(t, child.Process.Kill())
	_ = child.Wait() // returns an error after a kill

	w.mu.Lock()
	w.results = nil
	w.mu.Unlock()
	next := w.start(c, map[string]executor.HandlerFunc{"h": func(context.Context, executor.Run) error { t.Error("started a second time"); return nil }})
	again := w.result("r1")
	if asJSON(again) != asJSON(first) || again.BootID != i.boot || again.Output != "from the child" {
		t.Errorf("sent %s, then %s", asJSON(first), asJSON(again))
	}
	if st := next.status("r1"); st.Status != wire.StatusDone || st.Result == nil {
		t.Errorf("status %s", asJSON(st))
	}
	o.Bind++
	wantVerdict(t, next.offer(o), wire.Refused, wire.RefusedStale)
	next.control(wire.Control{Op: wire.OpSettled, Runs: []wire.Ref{{RunID: "r1", Attempt: 1, BootID: i.boot}}})
	must(t, next.end())

	w.mu.Lock()
	w.results = nil
	w.mu.Unlock()
	third := w.start(c, nil)
	if st := third.status("r1"); st.Status != wire.StatusUnknown {
		t.Errorf("the settled result is still in the spool: %s", asJSON(st))
	}
	must(t, third.end())
}
