package sdktest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/wire"
)

// scriptFunc implements the script runner with a function.
type scriptFunc func(ctx context.Context, run executor.Run, script executor.Script) error

func (f scriptFunc) RunScript(ctx context.Context, run executor.Run, script executor.Script) error {
	return f(ctx, run, script)
}

// echoScripts returns a runner that uses a script's code as its output or error.
func echoScripts(_ context.Context, run executor.Run, s executor.Script) error {
	switch code := string(s.Code); code {
	case "bad":
		return executor.BadScript(errors.New("line 1: no"))
	case "gone":
		return executor.Unsupported(errors.New("no interpreter"))
	default:
		return run.SetOutput(fmt.Sprintf("%s %d %s", s.Language, s.Version, code))
	}
}

func (w *world) startScripts(c executor.Config) *instance {
	w.t.Helper()
	e, err := executor.New(c)
	must(w.t, err)
	e.RegisterScripts(scriptFunc(echoScripts), "sh", "python")
	return w.run(e)
}

// sumOf returns the digest that identifies a script on the wire.
func sumOf(code []byte) string {
	sum := sha256.Sum256(code)
	return hex.EncodeToString(sum[:])
}

func newScriptOffer(runID, code string) wire.Offer {
	o := newOffer(runID, "")
	o.Script = &wire.Script{Language: "sh", Version: 3, SHA256: sumOf([]byte(code))}
	return o
}

func (i *instance) bring(code string) wire.ControlReply {
	return i.control(wire.Control{Op: wire.OpScript, SHA256: sumOf([]byte(code)), Code: []byte(code)})
}

func TestScriptIsAskedForOnce(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	i := w.startScripts(c)
	kv, err := w.js.KeyValue(t.Context(), wire.BucketInstances)
	must(t, err)
	entry, err := kv.Get(t.Context(), "g.i1")
	must(t, err)
	var beat wire.Heartbeat
	must(t, wire.Decode(entry.Value(), &beat))
	if !slices.Equal(beat.Languages, []string{"python", "sh"}) {
		t.Errorf("the heartbeat has languages %v", beat.Languages)
	}
	// Two runs of one script wait for its code. The executor requests it once and then starts both.
	ans := i.offer(newScriptOffer("r1", "one"), newScriptOffer("r2", "one"), newScriptOffer("r3", "two"))
	if want := []string{sumOf([]byte("one")), sumOf([]byte("two"))}; !slices.Equal(ans.Scripts, want) || ans.Load.Running != 3 {
		t.Fatalf("answer %s, want scripts %v", asJSON(ans), want)
	}
	if rep := i.control(wire.Control{Op: wire.OpScript, SHA256: sumOf([]byte("one")), Code: []byte("another")}); rep.Error == "" {
		t.Error("code with a wrong digest was accepted")
	}
	if rep := i.control(wire.Control{Op: wire.OpScript, SHA256: "../x", Code: []byte("x")}); rep.Error == "" {
		t.Error("a malformed digest was accepted")
	}
	if rep := i.bring("one"); rep.Error != "" {
		t.Fatal(rep.Error)
	}
	for _, id := range []string{"r1", "r2"} {
		if res := w.result(id); res.Outcome != wire.Succeeded || res.Output != "sh 3 one" {
			t.Errorf("%s: %s", id, asJSON(res))
		}
	}
	// A run that waits for its code can be killed.
	i.control(wire.Control{Op: wire.OpKill, Runs: []wire.Ref{{RunID: "r3", Attempt: 1}}, Reason: "killed"})
	if res := w.result("r3"); res.Outcome != wire.Unstarted || res.Reason != "killed" {
		t.Errorf("killed before its code came: %s", asJSON(res))
	}
	if ans := i.offer(newScriptOffer("r4", "one")); len(ans.Scripts) != 0 {
		t.Errorf("the executor requested %v again", ans.Scripts)
	}
	w.result("r4")
	must(t, i.end())

	// A later process of the instance has the code too, unless the file was changed.
	i = w.startScripts(c)
	if ans := i.offer(newScriptOffer("r5", "one")); len(ans.Scripts) != 0 {
		t.Errorf("after a restart, the executor requested %v again", ans.Scripts)
	}
	if res := w.result("r5"); res.Output != "sh 3 one" {
		t.Errorf("from disk: %s", asJSON(res))
	}
	file := filepath.Join(c.SpoolDir, "g.i1", "scripts", sumOf([]byte("one")))
	if info, err := os.Stat(filepath.Dir(file)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("other users can access the cache: %v, %v", info.Mode(), err)
	}
	must(t, os.WriteFile(file, []byte("evil"), 0o600))
	wantVerdict(t, i.offer(newScriptOffer("r6", "one")), wire.Accepted, "")
	if res := w.result("r6"); res.Outcome != wire.Unstarted {
		t.Errorf("a script that was changed on disk: %s", asJSON(res))
	}
	if ans := i.offer(newScriptOffer("r7", "one")); len(ans.Scripts) != 1 {
		t.Errorf("the executor does not request a script that was changed on disk")
	}
	i.bring("one")
	if res := w.result("r7"); res.Output != "sh 3 one" {
		t.Errorf("brought again: %s", asJSON(res))
	}
	must(t, i.end())
}

func TestScriptEndings(t *testing.T) {
	w := newWorld(t)
	i := w.startScripts(w.config())
	other := newScriptOffer("r0", "x")
	other.Script.Language = "node"
	wantVerdict(t, i.offer(other), wire.Refused, wire.RefusedUnsupported)
	odd := newScriptOffer("r1", "x")
	odd.Script.SHA256 = "../../etc/passwd"
	wantVerdict(t, i.offer(odd), wire.Refused, wire.RefusedUnsupported)
	for code, want := range map[string]wire.Result{
		"bad":  {Outcome: wire.Failed, Reason: "bad_script", Message: "line 1: no", Permanent: true},
		"gone": {Outcome: wire.Failed, Reason: "unsupported", Message: "no interpreter"},
	} {
		i.offer(newScriptOffer(code, code))
		i.bring(code)
		res := w.result(code)
		if res.Outcome != want.Outcome || res.Reason != want.Reason || res.Message != want.Message || res.Permanent != want.Permanent {
			t.Errorf("%s: %s", code, asJSON(res))
		}
	}
	must(t, i.end())
}
