package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The baseline's subjects and stream.
const (
	baselineOffers  = "baseline.offers"
	baselineResults = "baseline.results"
	baselineStream  = "BASELINE"
)

// baselineBoot is the boot id in the baseline's messages and rows.
const baselineBoot = "019a9d2c7b408000"

// baselineOffer is the offer of a run to the responder. It has the fields that an executor needs.
type baselineOffer struct {
	RunID    string    `json:"run_id"`
	Attempt  int       `json:"attempt"`
	JobID    int64     `json:"job_id"`
	JobName  string    `json:"job_name"`
	Group    string    `json:"group"`
	Handler  string    `json:"handler"`
	Param    string    `json:"param"`
	Cause    string    `json:"cause"`
	FireTime time.Time `json:"fire_time"`
	DueAt    time.Time `json:"due_at"`
	Now      time.Time `json:"now"`
}

// baselineResult is the result of a run. It has the fields that a dispatcher needs.
type baselineResult struct {
	RunID      string    `json:"run_id"`
	Attempt    int       `json:"attempt"`
	Instance   string    `json:"instance"`
	BootID     string    `json:"boot_id"`
	Outcome    string    `json:"outcome"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
}

// The responder batches results like an executor.
const (
	resultBatch = 100
	resultEvery = 20 * time.Millisecond
)

// runResponder accepts offers, starts an empty handler at each due instant, and publishes the results in batches.
func (p *part) runResponder(ctx context.Context) error {
	var late Histogram
	p.take = late.Take
	nc, js, err := connectNATS(p.order)
	if err != nil {
		return err
	}
	defer nc.Close()
	results := make(chan baselineResult, 65536)
	start := func(o baselineOffer) {
		started := time.Now()
		late.Add(started.Sub(o.DueAt))
		results <- baselineResult{
			RunID: o.RunID, Attempt: o.Attempt, Instance: "executor-1", BootID: baselineBoot, Outcome: "succeeded",
			StartedAt: started.UTC(), FinishedAt: time.Now().UTC(),
		}
	}
	sub, err := nc.Subscribe(baselineOffers, func(m *nats.Msg) {
		var offers []baselineOffer
		if err := json.Unmarshal(m.Data, &offers); err != nil || m.Respond([]byte(`{"accepted":true}`)) != nil {
			return // the request of the pipeline times out, which is reported
		}
		atDue(offers, func(o baselineOffer) { go start(o) })
	})
	if err != nil {
		return fmt.Errorf("subscribe to offers: %w", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	p.ready()
	return shipResults(ctx, js, results)
}

// atDue starts the offers that are due now. The others start by one timer for each due instant.
func atDue(offers []baselineOffer, start func(baselineOffer)) {
	for len(offers) > 0 {
		n := 1
		for n < len(offers) && offers[n].DueAt.Equal(offers[0].DueAt) {
			n++
		}
		same := offers[:n]
		offers = offers[n:]
		run := func() {
			for _, o := range same {
				start(o)
			}
		}
		if wait := time.Until(same[0].DueAt); wait > 0 {
			time.AfterFunc(wait, run)
		} else {
			run()
		}
	}
}

// shipResults publishes a full batch at once, and a smaller batch when resultEvery has passed since the last one.
func shipResults(ctx context.Context, js jetstream.JetStream, results <-chan baselineResult) error {
	batch := make([]baselineResult, 0, resultBatch)
	var last time.Time
	var timer <-chan time.Time
	flush := func() error {
		timer, last = nil, time.Now()
		data, err := json.Marshal(batch)
		if err != nil {
			return err
		}
		batch = batch[:0]
		_, err = js.PublishAsync(baselineResults, data)
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-results:
			batch = append(batch, r)
			if len(batch) < resultBatch && timer == nil {
				timer = time.After(max(0, resultEvery-time.Since(last)))
			}
			if len(batch) < resultBatch {
				continue
			}
		case <-timer:
		}
		if err := flush(); err != nil {
			return fmt.Errorf("publish results: %w", err)
		}
	}
}

// connectNATS connects as the system user.
func connectNATS(o Order) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(o.NATS, nats.UserInfo(systemUser, o.Password), nats.Name("belfry bench "+o.Part))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to NATS: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(256))
	if err != nil {
		nc.Close()
		return nil, nil, errors.Join(err)
	}
	return nc, js, nil
}
