package settle

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// An executor can report only some of the reasons. Every other reason becomes handler_error.
func TestReportedReasons(t *testing.T) {
	id := domain.RunID{1}
	for reported, want := range map[string]domain.Reason{
		"": domain.ReasonHandlerError, "handler_error": domain.ReasonHandlerError, "handler_panic": domain.ReasonHandlerPanic,
		"handler_not_found": domain.ReasonHandlerNotFound, "timeout": domain.ReasonTimeout, "drained": domain.ReasonDrained,
		"killed": domain.ReasonKilled, "bad_script": domain.ReasonBadScript, "unsupported": domain.ReasonUnsupported,
		"lost": domain.ReasonHandlerError, "no_executor": domain.ReasonHandlerError, "queue_full": domain.ReasonHandlerError,
		"discarded": domain.ReasonHandlerError, "job_deleted": domain.ReasonHandlerError, "made up": domain.ReasonHandlerError,
	} {
		e, err := EndedOf("g", wire.Result{
			Instance: "a", BootID: "b", RunID: id.String(), Attempt: 1, Outcome: wire.Failed, Reason: reported, FinishedAt: wire.Time{Time: time.Now()},
		})
		if err != nil || e.Reason != want {
			t.Errorf("%q is taken as %q, %v", reported, e.Reason, err)
		}
	}
}
