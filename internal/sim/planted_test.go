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

// mutation is a bug that is planted in a copy of the engine.
type mutation struct {
	name  string
	file  string // below the module's root
	old   string // occurs once
	new   string
	why   string // what it breaks
	seeds int    // within which it is found
	rare  bool   // only SIM_PLANTED=all plants it, as `.ci/long planted` does: it takes hundreds of seeds
}

var mutations = []mutation{
	{
		name: "offer before bind", file: "dispatcher/fire/fire.go",
		old: "	out, err := f.Store.Admit(ctx, single)\n",
		new: `	for _, a := range single {
		if a.Instance != "" {
			f.Sender.Send(ctx, []engine.LiveRun{{
				ID: a.RunID, JobID: a.JobID, JobVersion: a.JobVersion, Group: a.Def.Group, Attempt: a.Attempt, Bind: 1,
				FireTime: &a.DueAt, DueAt: a.DueAt, BoundAt: &a.DueAt, Instance: a.Instance, BootID: a.BootID,
			}}, r.Beats(), true)
		}
	}
	out, err := f.Store.Admit(ctx, single)
`,
		why: "a run that loses its compare-and-set, such as one that is to be held, is started all the same", seeds: 250,
	},
	{
		name: "settle without compare-and-set", file: "internal/sim/memstore/settle.go",
		old: "r == nil || r.Attempt != e.Attempt || r.Instance != e.Instance || r.BootID != e.BootID ||",
		new: "r == nil ||",
		why: "a result that comes again ends a later attempt", seeds: 1500,
	},
	{
		name: "acknowledge before commit", file: "dispatcher/results/results.go",
		old: "	b := &batch{msgs: msgs, again: make(map[int]bool)}\n",
		new: `	b := &batch{msgs: msgs, again: make(map[int]bool)}
	for _, m := range msgs {
		_ = m.Ack()
	}
`,
		why: "a dispatcher that dies between leaves no trace of the result for the death verdict to wait for", seeds: 1000,
	},
	{
		name: "the ring drops what a stall passed over", file: "scheduler/ring.go",
		old: "	for second := r.tick; second <= min(until.Unix(), r.tick+ringSlots-1); second++ {\n		slot := r.slot(second)\n",
		new: "	for second := now.Unix(); second <= min(until.Unix(), r.tick+ringSlots-1); second++ {\n		slot := r.slot(second)\n",
		why: "fires are late until another scheduler takes them over", seeds: 1000,
	},
	{
		name: "an edit forgets what is due", file: "internal/sim/memstore/jobs.go",
		old: "!r.Held && !r.Admitted && r.Cause == domain.CauseSchedule && r.DueAt.After(now) {",
		new: "!r.Held && !r.Admitted && r.Cause == domain.CauseSchedule {",
		why: "a planned run that is due and not fired yet vanishes", seeds: 250,
	},
	{
		name: "an edit forgets the next second", file: "internal/plan/plan.go",
		old: "		if due = s.Due(id, fire); due.After(now) {\n",
		new: "		if due = s.Due(id, fire); due.After(now.Add(time.Second)) {\n",
		why: "fire times just after an edit are passed over", seeds: 250,
	},
	{
		name: "the lease is not checked", file: "executor/clock.go",
		old: "	return max(b.wall.Sub(a.wall), b.mono-a.mono, b.boot-a.boot)\n", // which the fence asks as well
		new: "	return min(max(b.wall.Sub(a.wall), b.mono-a.mono, b.boot-a.boot), wire.LeaseTTL-1)\n",
		why: "an executor that was cut off starts attempts that were declared lost", seeds: 500,
	},
	{
		name: "no check at the start", file: "executor/engine.go",
		old: "	case f.beat != 0 && expired(f.sent, now):\n", new: "	case f.beat != 0 && expired(f.sent, now) && x.lease.over(now):\n",
		why: "an executor that was frozen with an accepted attempt starts it once its heartbeat is confirmed", seeds: 500,
	},
	{
		name: "the beat is captured when sending", file: "dispatcher/offer/offer.go",
		old: "		beat, known := relies[b]\n", new: "		_, known := relies[b]\n		beat, _ := s.Roster.Beat(b.Group, b.Instance, b.ID)\n",
		why: "a dispatcher that was frozen with a bound attempt offers it on a heartbeat that was sent after it was declared lost", seeds: 1000, rare: true,
	},
	{
		name: "bind is not compared", file: "internal/sim/memstore/fire.go",
		old: "r == nil || r.Attempt != f.Attempt || r.Bind != f.Bind ||", new: "r == nil || r.Attempt != f.Attempt ||",
		why: "an old refusal frees an attempt that was offered anew and accepted", seeds: 1500, rare: true,
	},
	{
		name: "who covers does not wait", file: "internal/sim/memstore/cover.go",
		old: "	ended := s.hold(hold, out)\n",
		new: `	ended := s.hold(hold, out)
	for _, id := range out.Held {
		db.slots[k] = id
		out.Released = append(out.Released, db.release(db.live[id]))
	}
`,
		why: "the new run starts beside the one that it covers", seeds: 250,
	},
	{
		name: "a slot of an instance leaks", file: "executor/ledger.go",
		old: "		e.slot = false\n		l.taken--\n", new: "		e.slot = false\n",
		why: "an instance has less and less room", seeds: 50,
	},
	{
		name: "a death verdict ignores the stream", file: "dispatcher/verdict/death.go",
		old: "	settled, err := j.Results.AllSettled(ctx)\n	return err == nil && settled, successor, err\n", new: "	return true, successor, nil\n",
		why: "an attempt is named lost whose result is on its way", seeds: 1000, rare: true,
	},
	{
		name: "a re-offer starts again", file: "executor/ledger.go",
		old: "		if v, known := e.answer(b); known {\n", new: "		if v, known := e.answer(b); known && b.bind <= e.bind {\n",
		why: "an attempt whose acceptance was lost is started twice", seeds: 1000, rare: true,
	},
	{
		name: "the spool lets go at the acknowledgement", file: "executor/report.go",
		old: "			p.sent = now\n", new: "			p.sent = now\n			r.settle(attemptKey{p.result.RunID, p.result.Attempt}, p.result.BootID)\n",
		why: "a result in a stream that is wiped is forgotten", seeds: 500, rare: true,
	},
	{
		name: "silence while NATS is away counts", file: "dispatcher/peer/hearing.go",
		old: "	return !h.since.IsZero() && time.Since(h.since) > h.enough && between(h.checked, time.Now()) <= stall\n",
		new: "	return true\n",
		why: "an outage of NATS names runs lost", seeds: 500, rare: true,
	},
	{
		name: "what is missed is not written down", file: "internal/plan/plan.go",
		old: "	d.judge(j, missed, now, set)\n", new: "	if len(missed.stranded) > 0 {\n		d.judge(j, missed, now, set)\n	}\n",
		why: "fire times that were missed are neither run nor in the ledger", seeds: 1000, rare: true,
	},
	{
		name: "stranded runs are left", file: "scheduler/scheduler.go",
		old: "	for stranded := true; stranded; {\n", new: "	for stranded := false; stranded; {\n",
		why: "runs that a dead scheduler planned stay pending", seeds: 1000,
	},
	{
		name: "a reconciler that asks nobody", file: "dispatcher/verdict/verdict.go",
		old: "		every(time.Second, \"cannot find offers without an answer, retrying\", j.askSilent),\n", new: "",
		why: "a run whose offer or answer was lost stays queued", seeds: 500,
	},
}

// root is the module's directory.
const root = "../.."

// Every planted bug can still be planted: its text occurs once in its file.
func TestMutationsFit(t *testing.T) {
	for _, m := range mutations {
		text, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), m.old); n != 1 {
			t.Errorf("%s: its text occurs %d times in %s:\n%s", m.name, n, m.file, m.old)
		}
	}
}

// TestPlantedBugs builds the simulation once for each mutation, without touching the files, and lets it search until it
// finds something. Those that take many seeds are planted when SIM_PLANTED is "all", or a part of their names.
func TestPlantedBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: planted bugs, which take minutes")
	}
	asked := os.Getenv("SIM_PLANTED")
	for _, m := range mutations {
		if asked == "all" || (asked == "" && !m.rare) || (asked != "" && strings.Contains(m.name, asked)) {
			t.Run(m.name, func(t *testing.T) { plant(t, m) })
		}
	}
}

func plant(t *testing.T, m mutation) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	file, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(dir, "changed.go")
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{changed: strings.Replace(string(text), m.old, m.new, 1), overlay: string(replace)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "sim.test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil { //nolint:gosec // our own names
		t.Fatalf("build with the bug: %v\n%s", err, out)
	}
	search := exec.CommandContext(ctx, binary, "-test.run", "^TestSeeds$", "-test.timeout", "10m") //nolint:gosec // our own binary
	search.Env = append(os.Environ(), fmt.Sprint("SIM_SEEDS=", m.seeds), "SIM_STOP=1")
	out, err := search.CombinedOutput()
	found := strings.Index(string(out), "FAULT ")
	if err != nil && found < 0 {
		t.Fatalf("the simulation did not run to its end (%v):\n%.4000s", err, out)
	}
	if err == nil {
		t.Fatalf("%d seeds do not find it: %s", m.seeds, m.why)
	}
	line, _, _ := strings.Cut(string(out[found:]), "\n")
	at := strings.LastIndex(string(out[:found]), "seed ")
	t.Logf("found by %.12s: %.200s", out[at:], line)
}
