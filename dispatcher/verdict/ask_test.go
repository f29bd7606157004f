package verdict

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfryhq/belfry/dispatcher/settle"
)

// Groups with few silent runs share a query, and a group with many has its own. Groups whose results have to wait do not delay the
// questions about the others.
func TestBundles(t *testing.T) {
	runs := map[string]int{"a": silentBatch + 1, "b": silentBatch / 2, "c": silentBatch / 2, "d": 1, "late": 1, "later": 1}
	after := func(group string) time.Duration {
		return map[string]time.Duration{"late": 3 * time.Second, "later": 4 * time.Second}[group] + settle.LongRun
	}
	want := "[{[a] 501 500000000} {[b c] 500 500000000} {[d] 1 500000000} {[late later] 2 4500000000}]"
	if got := fmt.Sprint(bundles(runs, after)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
