//go:build unix

package conformance

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// planted holds faults of mini, and for each the duty whose case must find it.
var planted = []struct {
	fault, duty string
	long        bool // left out of the short form of the tests
	rare        bool // on a busy machine, the fault does not show each time: the case runs up to ten times
}{
	{fault: "no check", duty: "beat_limit"},
	{fault: "no check", duty: "frozen"},
	{fault: "newest beat", duty: "beat_limit"},
	{fault: "newest beat", duty: "frozen", rare: true}, // it shows if the process sends a heartbeat before the attempts have their turn
	{fault: "twice", duty: "duplicates"},
	{fault: "forgets", duty: "result_repeated"},

	{fault: "newest beat at the start", duty: "beat_limit"},
	{fault: "newest beat at the start", duty: "frozen", long: true, rare: true},
	{fault: "newest beat", duty: "beat_old", long: true},
	{fault: "newest beat", duty: "beat_unknown"},
	{fault: "unstarted at once", duty: "unstarted_again"},
	{fault: "early", duty: "never_early"},
	{fault: "own clock", duty: "never_early"},
	{fault: "not ended", duty: "ended"},
	{fault: "forgets outcomes", duty: "ended"},
	{fault: "any boot", duty: "refuse_boot"},
	{fault: "never full", duty: "refuse_full"},
	{fault: "judges anew", duty: "refuse_full"},
	{fault: "any version", duty: "wrong_version"},
	{fault: "crashes", duty: "malformed"},
	{fault: "no bar", duty: "kill_unknown"},
	{fault: "kill late", duty: "kill_accepted"},
	{fault: "forgets kills", duty: "kill_accepted"},
	{fault: "starts while draining", duty: "drain"},
	{fault: "no timeout", duty: "timeout", long: true},
	{fault: "long message", duty: "result_limits"},
	{fault: "publishes settled", duty: "result_settled", long: true},
	{fault: "beat jumps", duty: "heartbeat_beats"},
	{fault: "late subscription", duty: "subscribed"},
	{fault: "greedy", duty: "subjects"},
	{fault: "keeps overwriting", duty: "overwrite"},
	{fault: "overwrites for any boot", duty: "overwrite", long: true},
	{fault: "same boot", duty: "restart", long: true},
	{fault: "buffer", duty: "nats_away"},
	{fault: "goodbye first", duty: "sigterm"},
	{fault: "goodbye unsettled", duty: "goodbye_settled"},
	{fault: "stays silent", duty: "goodbye_settled", long: true},
	{fault: "goodbye of another boot", duty: "goodbye_boot"},
	{fault: "goodbye unsettled", duty: "goodbye_unsettled"},
}

// atOnce is how many planted faults are tested concurrently. The tests wait most of the time.
const atOnce = 8

// TestPlantedFaults: the kit finds each fault by the case that is meant for it.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, p := range planted {
		if p.long && testing.Short() {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			run := func() (Report, error) {
				return Run(t.Context(), Options{Command: miniCommand(t, p.fault), Only: []string{p.duty}, patience: 20 * time.Second})
			}
			r, err := run()
			for try := 1; p.rare && try < 10 && err == nil && r.OK; try++ {
				r, err = run()
			}
			switch {
			case err != nil:
				t.Errorf("%s: %v", p.fault, err)
			case len(r.Duties) != 1 || r.OK:
				t.Errorf("the fault %q was not found by %s: %+v", p.fault, p.duty, r.Duties)
			case r.Duties[0].Verdict != Failed:
				t.Errorf("the fault %q was found by %s, but the verdict is %+v", p.fault, p.duty, r.Duties[0])
			default:
				t.Logf("%s, by %s: %s", p.fault, p.duty, r.Duties[0].Seen)
			}
		})
	}
	wg.Wait()
}

// TestEveryDutyIsPlanned: the report has each duty once, and each planted fault names an existing duty.
func TestEveryDutyIsPlanned(t *testing.T) {
	ids := Duties()
	planned := 0
	for _, p := range plans() {
		planned += len(p.duties)
	}
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != planned || len(ids) != planned {
		t.Errorf("%d duties are planned; the report has %d, %d of them different", planned, len(ids), len(slices.Compact(sorted)))
	}
	for _, p := range planted {
		if !slices.Contains(ids, p.duty) {
			t.Errorf("unknown duty %q for the fault %q", p.duty, p.fault)
		}
	}
}
