package offer

import (
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/settle"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// clockStore is a recorder's store of which the test uses only the clock.
type clockStore struct{ settle.Store }

func (clockStore) Now() time.Time { return time.Unix(0, 0) }

// A run whose offer exceeds the maximum message size ends with an explanation.
func TestOversizedOfferEnds(t *testing.T) {
	s := &Sender{Config: Config{Store: definitions{}, Recorder: settle.New(clockStore{}, nil, nil, nil, nil)}}
	b := peer.Boot{Group: "g", Instance: "a", ID: "b"}
	def := &engine.Definition{JobID: 1, Version: 1}
	def.Param = strings.Repeat("p", maxOffer)
	defs := engine.Definitions{{Job: 1, Version: 1}: def}
	small := "small"
	runs := []engine.LiveRun{{JobID: 1, JobVersion: 1, Attempt: 1, Bind: 3}, {JobID: 1, JobVersion: 1, Attempt: 1, Param: &small}}
	messages, oversized := s.messages(b, 1, runs, defs, nil)
	if len(messages) != 1 || len(messages[0].runs) != 1 || len(oversized) != 1 || oversized[0].Reason != domain.ReasonUnsupported || oversized[0].Bind != 3 ||
		oversized[0].Why.Code() != explain.OfferTooLarge {
		t.Errorf("%d messages, oversized %+v", len(messages), oversized)
	}
}
