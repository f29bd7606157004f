package settle

import (
	"log/slog"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// An executor can report only some of the reasons. In results and in status answers, every other reason becomes handler_error. A
// verdict "ended" has no reason, so the reason follows from its outcome.
func TestReportedReasons(t *testing.T) {
	id := domain.RunID{1}
	recorder := &Recorder{log: slog.New(slog.DiscardHandler), store: clock{}}
	for reported, want := range map[string]domain.Reason{
		"": domain.ReasonHandlerError, "handler_error": domain.ReasonHandlerError, "handler_panic": domain.ReasonHandlerPanic,
		"handler_not_found": domain.ReasonHandlerNotFound, "timeout": domain.ReasonTimeout, "drained": domain.ReasonDrained,
		"killed": domain.ReasonKilled, "bad_script": domain.ReasonBadScript, "unsupported": domain.ReasonUnsupported,
		"lost": domain.ReasonHandlerError, "no_executor": domain.ReasonHandlerError, "queue_full": domain.ReasonHandlerError,
		"discarded": domain.ReasonHandlerError, "covered": domain.ReasonHandlerError, "job_deleted": domain.ReasonHandlerError, "made up": domain.ReasonHandlerError,
	} {
		res := wire.Result{
			Instance: "a", BootID: "b", RunID: id.String(), Attempt: 1, Outcome: wire.Failed, Reason: reported, FinishedAt: wire.Time{Time: time.Now()},
		}
		if e, err := EndedOf("g", res); err != nil || e.Reason != want {
			t.Errorf("%q in a result is taken as %q, %v", reported, e.Reason, err)
		}
		run := &engine.LiveRun{ID: id, Attempt: 1, Group: "g"}
		if ended := recorder.FromStatus(run, wire.Status{Status: wire.StatusDone, Result: &res}); len(ended) != 1 || ended[0].Reason != want {
			t.Errorf("%q in a status is taken as %+v", reported, ended)
		}
	}
	for outcome, want := range map[string]domain.Reason{
		wire.Succeeded: domain.NoReason, wire.Failed: domain.ReasonHandlerError, wire.Cancelled: domain.ReasonKilled, "made up": domain.ReasonHandlerError,
	} {
		if e := recorder.EndedBefore(&engine.LiveRun{ID: id, Attempt: 1}, outcome); e.Reason != want {
			t.Errorf("the verdict ended with %q is taken as %q", outcome, e.Reason)
		}
	}
	covered := wire.Result{
		Instance: "a", BootID: "b", RunID: id.String(), Attempt: 1, Outcome: wire.Cancelled, Reason: "covered", FinishedAt: wire.Time{Time: time.Now()},
	}
	if e, err := EndedOf("g", covered); err != nil || e.Reason != domain.ReasonCovered {
		t.Errorf("a cancelled attempt that a later run covers is taken as %q, %v", e.Reason, err)
	}
}

// Postgres would refuse a text with a NUL, and with it all results of a batch.
func TestBootIDsOfResults(t *testing.T) {
	for boot, valid := range map[string]bool{"b": true, "": false, "b\x00": false} {
		_, err := EndedOf("g", wire.Result{
			Instance: "a", BootID: boot, RunID: domain.RunID{1}.String(), Attempt: 1, Outcome: wire.Succeeded, FinishedAt: wire.Time{Time: time.Now()},
		})
		if (err == nil) != valid {
			t.Errorf("boot id %q: %v", boot, err)
		}
	}
}

// clock is a store that knows only the time.
type clock struct{ Store }

func (clock) Now() time.Time { return time.Now() }
