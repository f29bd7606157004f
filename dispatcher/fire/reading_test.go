package fire

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/dispatcher/waiting"
)

// The first fire after a rest reads what runs wait for. A process with an assigner never does.
func TestReading(t *testing.T) {
	t.Parallel()
	var r reading
	now := time.Now()
	if r.fires(now) {
		t.Error("with an assigner, a fire reads the set")
	}
	r.reads.Store(true)
	if !r.fires(now) || !r.firedAt().Equal(now) {
		t.Error("the first fire does not read the set")
	}
	r.at = now
	if r.fires(now.Add(2 * waiting.Poll)) {
		t.Error("a fire reads a set that is new enough")
	}
	if !r.fires(now.Add(2*waiting.Poll + 1)) {
		t.Error("a fire uses an old set")
	}
}
