package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// bug is a defect that is planted in a copy of the engine.
type bug struct {
	name   string
	seam   string // the name of the code that it breaks
	change planting
	why    string // the consequence
	seeds  int    // the number of seeds that must suffice to find it
	rare   bool   // it takes very many seeds, or a build of nearly everything, so only SIM_PLANTED=all and `.ci/long planted` plant it
}

var bugs = []bug{
	{
		name: "offer before bind", seam: "admit",
		change: statement(`for _, a := range single {
			if a.Instance != "" {
				f.Sender.Send(ctx, []engine.LiveRun{{
					ID: a.RunID, JobID: a.JobID, JobVersion: a.JobVersion, Group: a.Def.Group, Attempt: a.Attempt, Bind: 1,
					FireTime: &a.DueAt, DueAt: a.DueAt, BoundAt: &a.DueAt, Instance: a.Instance, BootID: a.BootID,
				}}, r.Beats(), true)
			}
		}
		$`),
		why: "a run starts although its compare-and-set fails, for example because it must be held", seeds: 250,
	},
	{
		name: "settle without compare-and-set", seam: "settle-compare",
		change: expression("$ && (repeated || r == nil || !sameRound(&e, r))"),
		why:    "a repeated result ends a later attempt", seeds: 1500,
	},
	{
		name: "acknowledge before commit", seam: "settle-batch",
		change: statement(`$
		for _, m := range msgs {
			_ = m.Ack()
		}`),
		why: "if the dispatcher dies before the commit, the death verdict does not know that a result exists", seeds: 1000,
	},
	{
		name: "the ring drops the seconds of a stall", seam: "ring-catch-up",
		change: statement("r.tick = now.Unix()\n$"),
		why:    "fires are late until another scheduler takes them over", seeds: 1000,
	},
	{
		name: "an edit removes due runs", seam: "edit-removes",
		change: expression("$ || r.JobID == id && r.State == domain.Pending && r.Attempt == 1 && !r.Held && !r.Admitted && r.Cause == domain.CauseSchedule"),
		why:    "a planned run that is due and not fired yet vanishes", seeds: 250,
	},
	{
		name: "an edit skips the next second", seam: "edit-first-fire",
		change: expression("$ && due.After(now.Add(time.Second))"),
		why:    "the fire times of the second after an edit are skipped", seeds: 250,
	},
	{
		name: "the lease is not checked", seam: "elapsed",
		change: expression("min($, wire.LeaseTTL-1)"), // the fence uses it too
		why:    "an executor that was cut off starts attempts that were declared lost", seeds: 500, rare: true,
	},
	{
		name: "no check at the start", seam: "fence-at-start",
		change: expression("$ && x.lease.over(now)"),
		why:    "an executor that was frozen with an accepted attempt starts it once its heartbeat is confirmed", seeds: 500, rare: true,
	},
	{
		name: "the beat is read when the offer is sent", seam: "beat-of-offer",
		change: statement("$\nbeat, _ = s.Roster.Beat(b.Group, b.Instance, b.ID)"),
		why:    "after a freeze, a dispatcher offers a lost attempt on a heartbeat that is newer than the verdict", seeds: 1000, rare: true,
	},
	{
		name: "bind is not compared", seam: "unbind-compare",
		change: expression(`$ && (r == nil || r.Attempt != f.Attempt || r.State != domain.Queued || r.Instance == "")`),
		why:    "an old refusal unbinds an attempt that was offered again and accepted", seeds: 1500, rare: true,
	},
	{
		name: "a covering run does not wait", seam: "cover-holds",
		change: statement(`$
		for _, id := range out.Held {
			db.slots[k] = id
			out.Released = append(out.Released, db.release(db.live[id]))
		}`),
		why: "the new run starts while the run that it covers still runs", seeds: 250,
	},
	{
		name: "a slot of an instance leaks", seam: "slot-freed",
		change: statement(""),
		why:    "an instance has fewer and fewer free slots", seeds: 50,
	},
	{
		name: "a death verdict ignores the stream", seam: "death-results",
		change: statement("return true, successor, nil\n$"),
		why:    "an attempt is declared lost although its result is in the stream", seeds: 1000, rare: true,
	},
	{
		name: "a repeated offer starts again", seam: "offer-repeated",
		change: expression("$ && b.bind <= e.bind"),
		why:    "an attempt whose acceptance was lost is started twice", seeds: 1000, rare: true,
	},
	{
		name: "the spool forgets at the acknowledgement", seam: "result-acknowledged",
		change: statement("$\nr.settle(attemptKey{p.result.RunID, p.result.Attempt}, p.result.BootID)"),
		why:    "a result is lost if the stream is wiped", seeds: 500, rare: true,
	},
	{
		name: "silence while NATS is away counts", seam: "heard-for-long",
		change: expression("true"),
		why:    "an outage of NATS makes runs lost", seeds: 500, rare: true,
	},
	{
		name: "missed fire times are not recorded", seam: "missed-recorded",
		change: statement("if len(missed.stranded) > 0 {\n$\n}"),
		why:    "missed fire times have neither a run nor an entry in the ledger", seeds: 1000, rare: true,
	},
	{
		name: "stranded runs are left", seam: "plan-stranded",
		change: statement(""),
		why:    "runs that a dead scheduler planned stay pending", seeds: 1000,
	},
	{
		name: "a stopped scheduler keeps its runs", seam: "hand-back",
		change: statement("return\n$"),
		why:    "after an orderly stop, fires are late until another scheduler takes them over", seeds: 200,
	},
	{
		name: "a reconciler asks no instance", seam: "ask-silent",
		change: statement("return nil\n$"),
		why:    "a run whose offer or answer was lost stays queued", seeds: 500,
	},
}

// All bugs together compile, so that a change near the seam of a rare bug does not go unnoticed until that bug is planted.
func TestSeamsBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: the build with all planted bugs")
	}
	build(t.Context(), t, bugs, moduleSeams(t))
}

// TestPlantedBugs builds the simulation once for each bug, without a change of the files, and runs seeds until one finds a
// failure. It skips rare bugs unless SIM_PLANTED is "all". Any other value of SIM_PLANTED selects bugs by a part of their names.
func TestPlantedBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: planted bugs, which take minutes")
	}
	seams := moduleSeams(t)
	asked := os.Getenv("SIM_PLANTED")
	for _, b := range bugs {
		if asked == "all" || (asked == "" && !b.rare) || (asked != "" && strings.Contains(b.name, asked)) {
			t.Run(b.name, func(t *testing.T) { search(t, b, seams) })
		}
	}
}

// search runs seeds with a planted bug and expects a failure.
func search(t *testing.T, b bug, seams map[string]seam) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, build(ctx, t, []bug{b}, seams), "-test.run", "^TestSeeds$", "-test.timeout", "15m")
	run.Env = append(os.Environ(), fmt.Sprint("SIM_SEEDS=", b.seeds), "SIM_STOP=1")
	out, err := run.CombinedOutput()
	found := strings.Index(string(out), "FAILURE ")
	if err != nil && found < 0 {
		t.Fatalf("the simulation did not complete (%v):\n%.4000s", err, out)
	}
	if err == nil {
		t.Fatalf("%d seeds do not find it: %s", b.seeds, b.why)
	}
	line, _, _ := strings.Cut(string(out[found:]), "\n")
	at := strings.LastIndex(string(out[:found]), "seed ")
	t.Logf("found by %.12s: %.200s", out[at:], line)
}

// build builds the tests of this package with planted bugs and returns the binary's path.
func build(ctx context.Context, t *testing.T, planted []bug, seams map[string]seam) string {
	t.Helper()
	texts, err := plantAll(planted, seams)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := make(map[string]string)
	for file, text := range texts {
		replace[file] = filepath.Join(dir, fmt.Sprintf("changed%d.go", len(replace)))
		if err := os.WriteFile(replace[file], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "sim.test")
	compile := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, ".")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("build with planted bugs: %v\n%s", err, out)
	}
	return binary
}
