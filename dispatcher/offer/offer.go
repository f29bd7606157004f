// Package offer sends bound runs to their instances and acts on the answers.
//
// An offer is sent on one of two lanes, so that slow jobs do not delay others: see lane.go. An offer without an answer may or may
// not have reached its instance. Package verdict asks the instance about the attempt.
package offer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/roster"
	"github.com/belfryhq/belfry/dispatcher/settle"
	"github.com/belfryhq/belfry/dispatcher/waiting"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// Store defines the database operations that the sender needs.
type Store interface {
	Now() time.Time // the database's clock
	Definitions(ctx context.Context, runs []engine.Due) (engine.Definitions, error)
	ParentOutputs(ctx context.Context, parents []domain.RunID) (map[domain.RunID]string, error)
	ScriptCode(ctx context.Context, job domain.JobID, version int) (string, error)
	Unbind(ctx context.Context, refused []engine.Refusal) (waiting, killed []engine.LiveRun, err error)
}

// Config holds the dependencies of a Sender. All fields but Registry are required.
type Config struct {
	Store    Store
	Conn     *nats.Conn // without a reconnect buffer: an offer is sent now or not at all
	Peers    *peer.Peers
	Roster   *roster.Roster
	Recorder *settle.Recorder
	Waiting  *waiting.Kinds
	Log      *slog.Logger
	Registry prometheus.Registerer
	// Release fires held runs whose turn has come. The sender calls it when the answer to an offer ended a run.
	Release func(ctx context.Context, runs []engine.Due)
	// Tracer records offers as spans. If it is nil, an offer has the trace context of its run's caller, if any.
	Tracer Tracer
	// Trace is called at named points: "bound" before offers are sent, "offered" after an answer, before it is processed.
	Trace func(point string)
}

// Tracer records offers. Its methods must not block.
type Tracer interface {
	// Traceparent returns the trace context that the offer of a run has.
	Traceparent(run *engine.LiveRun) string
	// Offered records that runs were offered at an instant, on the process's clock, and what the answer was: "accepted", "refused",
	// "ended", "no_answer" or "no_responders".
	Offered(runs []engine.LiveRun, answers func(*engine.LiveRun) string, sent time.Time)
}

// Sender sends offers. Create one with New. It is safe for concurrent use.
type Sender struct {
	Config
	sent *prometheus.CounterVec

	underWay sync.WaitGroup // offers without an answer yet, and functions on the slow lane
	fast     lane
	slow     lane
	pool     *pool
	late     lateness
}

// fastOffers limits the messages of the fast lane without an answer. Further offers are not sent, and package verdict finds their
// runs.
const fastOffers = 1024

// New returns a sender.
func New(cfg Config) *Sender {
	s := &Sender{Config: cfg, sent: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belfry_offers_total", Help: "Attempts offered to instances, by the answer.",
	}, []string{"verdict"})}
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "belfry_dispatch_seconds", Help: "Time from sending a message of offers until its answer, by lane.",
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2},
	}, []string{"lane"})
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(s.sent, took)
	}
	s.fast = lane{inFlight: make(chan struct{}, fastOffers), took: took.WithLabelValues("fast")}
	s.slow = lane{inFlight: make(chan struct{}, slowOffers), waits: true, took: took.WithLabelValues("slow")}
	s.pool = newPool(slowWorkers, slowQueue, &s.underWay)
	return s
}

// Wait returns when the answers to all offers are processed, and the work of the slow lane is done.
func (s *Sender) Wait() { s.underWay.Wait() }

// answerTimeout is how long the sender waits for an answer. After that, it is unknown whether the instance has the offers.
const answerTimeout = 2 * time.Second

// processTimeout bounds the work that follows an answer.
const processTimeout = 10 * time.Second

// Beats are the heartbeats that offers to boots may rely on. They have to be captured *before* the transaction that binds the
// runs: see "The fence" in package dispatcher.
type Beats map[peer.Boot]int64

// Send offers bound runs to their instances. It returns when all offers are sent, and processes the answers in the
// background. first is true if these bindings were never offered before. If such an offer reaches no process, its attempt has
// certainly not started.
func (s *Sender) Send(ctx context.Context, runs []engine.LiveRun, relies Beats, first bool) {
	fast, slow := s.late.split(runs, time.Now())
	s.sendOn(ctx, &s.fast, fast, relies, first)
	if len(slow) == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if !s.Aside(func() {
		ctx, cancel := context.WithTimeout(ctx, SlowTimeout)
		defer cancel()
		s.sendOn(ctx, &s.slow, slow, relies, first)
	}) {
		s.sent.WithLabelValues("unsent").Add(float64(len(slow)))
	}
}

// SendSlow offers runs that were never offered before. The caller must already run on the slow lane.
func (s *Sender) SendSlow(ctx context.Context, runs []engine.LiveRun, relies Beats) {
	s.sendOn(ctx, &s.slow, runs, relies, true)
}

func (s *Sender) sendOn(ctx context.Context, l *lane, runs []engine.LiveRun, relies Beats, first bool) {
	if len(runs) == 0 {
		return
	}
	s.Trace("bound")
	defs, parents, err := s.details(ctx, runs)
	if err != nil {
		s.warn(ctx, "cannot prepare offers, a reconciler sends them", err)
		return
	}
	for b, runs := range peer.ByBoot(runs) {
		//sim:seam beat-of-offer
		beat, known := relies[b]
		if !known { // the executor would treat an offer without a beat as an offer of an older server
			s.Log.ErrorContext(ctx, "cannot send offers because no heartbeat is known that they can rely on, a reconciler sends them",
				"group", b.Group, "instance", b.Instance, "runs", len(runs))
			s.sent.WithLabelValues("unsent").Add(float64(len(runs)))
			continue
		}
		messages, oversized := s.messages(b, beat, runs, defs, parents)
		s.found(ctx, "", oversized)
		for _, m := range messages {
			s.sendMessage(ctx, l, b, m, first)
		}
	}
}

// found settles attempts and fires the runs that this releases.
func (s *Sender) found(ctx context.Context, kind string, ended []engine.Ended) {
	if _, released := s.Recorder.Found(ctx, kind, ended); len(released) > 0 {
		s.Release(ctx, released)
	}
}

// sendMessage sends one message of offers. If too many messages have no answer yet, it leaves the offers to a reconciler.
func (s *Sender) sendMessage(ctx context.Context, l *lane, b peer.Boot, m message, first bool) {
	n := len(m.runs)
	if !l.begin(ctx) {
		s.sent.WithLabelValues("unsent").Add(float64(n))
		return
	}
	s.Roster.Offered(b.Group, b.Instance, b.ID, n)
	// The answer is processed even if the caller's context has ended, because that context stops only new work.
	s.underWay.Go(func() {
		defer l.end()
		s.await(context.WithoutCancel(ctx), l, b, m, first)
	})
}

// details reads the other content of offers: definitions that are not in memory, and the outputs of parents.
func (s *Sender) details(ctx context.Context, runs []engine.LiveRun) (engine.Definitions, map[domain.RunID]string, error) {
	var keys []engine.Due
	var parentIDs []domain.RunID
	for i := range runs {
		r := &runs[i]
		if r.Def == nil {
			keys = append(keys, engine.Due{JobID: r.JobID, JobVersion: r.JobVersion})
		}
		if r.ParentRunID != nil {
			parentIDs = append(parentIDs, *r.ParentRunID)
		}
	}
	defs, err := s.Store.Definitions(ctx, keys)
	if err != nil || len(parentIDs) == 0 {
		return defs, nil, err
	}
	parents, err := s.Store.ParentOutputs(ctx, parentIDs)
	return defs, parents, err
}

// await sends one message of offers and processes the answer.
func (s *Sender) await(ctx context.Context, l *lane, b peer.Boot, m message, first bool) {
	count := float64(len(m.runs))
	if first && !s.Peers.Connected() { // for example because this process was frozen after it bound the runs
		s.sent.WithLabelValues("unsent").Add(count)
		s.returned(ctx, m.runs, explain.Of(explain.NATSUnavailable))
		return
	}
	sent := time.Now()
	ask, cancel := context.WithTimeout(ctx, answerTimeout)
	reply, err := s.Conn.RequestWithContext(ask, wire.TriggerSubject(b.Group, b.Instance), m.data)
	cancel()
	took := time.Since(sent)
	l.took.Observe(took.Seconds())
	if took > lateAfter {
		s.late.note(m.runs, time.Now())
	}
	s.Trace("offered")
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		s.sent.WithLabelValues("no_responders").Add(count)
		s.offered(m.runs, sent, "no_responders")
		s.Roster.Drop(b.Group, b.Instance, b.ID)
		if first {
			s.returned(ctx, m.runs, explain.Of(explain.InstanceAbsent, b.Instance))
		}
		return
	case err != nil:
		s.sent.WithLabelValues("no_answer").Add(count) // the instance may have the offers
		s.offered(m.runs, sent, "no_answer")
		return
	}
	var a wire.Answer
	if err := wire.Decode(reply.Data, &a); err != nil || a.Instance != b.Instance {
		s.Log.WarnContext(ctx, "cannot read the answer to offers, a reconciler asks the instance", "group", b.Group, "instance", b.Instance, "err", err)
		s.sent.WithLabelValues("bad_answer").Add(count)
		return
	}
	if s.Tracer != nil {
		s.Tracer.Offered(m.runs, verdictOf(&a), sent)
	}
	ctx, cancel = context.WithTimeout(ctx, processTimeout)
	defer cancel()
	s.Answered(ctx, b, m.runs, &a)
}

// offered records offers without verdicts.
func (s *Sender) offered(runs []engine.LiveRun, sent time.Time, answer string) {
	if s.Tracer != nil {
		s.Tracer.Offered(runs, func(*engine.LiveRun) string { return answer }, sent)
	}
}

// verdictOf returns a function that finds the verdict on a run.
func verdictOf(a *wire.Answer) func(*engine.LiveRun) string {
	verdicts := make(map[string]string, len(a.Verdicts))
	for _, v := range a.Verdicts {
		verdicts[v.RunID] = v.Verdict
	}
	return func(r *engine.LiveRun) string { return verdicts[r.ID.String()] }
}

// returned unbinds runs whose offer certainly reached no instance.
func (s *Sender) returned(ctx context.Context, runs []engine.LiveRun, why explain.Note) {
	ctx, cancel := context.WithTimeout(ctx, processTimeout)
	defer cancel()
	s.Refused(ctx, runs, func(domain.RunID) explain.Note { return why }, false)
	s.Waiting.Wake()
}

// Answered processes an instance's verdicts on offers.
func (s *Sender) Answered(ctx context.Context, b peer.Boot, runs []engine.LiveRun, a *wire.Answer) {
	if a.BootID != b.ID {
		// Another process with this name answered. The boot that the runs are bound to may be alive and may have received the
		// offers. Only a death verdict frees the runs.
		s.sent.WithLabelValues("other_boot").Add(float64(len(runs)))
		s.Roster.Drop(b.Group, b.Instance, b.ID)
		return
	}
	s.Roster.Load(b.Group, b.Instance, b.ID, a.Load)
	verdicts := make(map[string]wire.Verdict, len(a.Verdicts))
	for _, v := range a.Verdicts {
		verdicts[v.RunID] = v
	}
	var temporary, permanent, ended []engine.LiveRun
	why := make(map[domain.RunID]explain.Note)
	refusal := ""
	for _, r := range runs {
		v, ok := verdicts[r.ID.String()]
		switch {
		case !ok || v.Attempt != r.Attempt:
			s.sent.WithLabelValues("no_verdict").Inc()
		case v.Verdict == wire.Accepted:
			s.sent.WithLabelValues(wire.Accepted).Inc()
		case v.Verdict == wire.Ended:
			s.sent.WithLabelValues(wire.Ended).Inc()
			ended = append(ended, r)
		case v.Verdict == wire.Refused:
			reason := knownRefusal(v.Reason)
			s.sent.WithLabelValues("refused_" + reason).Inc()
			why[r.ID], refusal = explain.Of(explain.Refused, b.Instance, reason), reason
			switch reason {
			case wire.RefusedFull, wire.RefusedLease, wire.RefusedStale:
				temporary = append(temporary, r)
			default:
				permanent = append(permanent, r)
			}
		}
	}
	because := func(id domain.RunID) explain.Note { return why[id] }
	again := s.Refused(ctx, temporary, because, false) + s.Refused(ctx, permanent, because, true)
	// If all refused runs have a kill request, the instance refused them because the kill arrived before the offer. Then other runs
	// can still be offered to it.
	if again > 0 {
		if a.Load.Running < a.Load.Capacity {
			s.Roster.Shun(b.Group, b.Instance, b.ID, refusal, shunFor)
		}
		s.Waiting.Wake()
	}
	s.settleEnded(ctx, b, ended, verdicts)
	if len(a.Scripts) > 0 {
		s.handScripts(ctx, b, runs, a.Scripts)
	}
}

// settleEnded settles attempts that their instance has already run. The database has lost their end if it was restored, or failed
// over without its last commits. If the instance still has the result, settleEnded uses it; otherwise it uses only the outcome.
func (s *Sender) settleEnded(ctx context.Context, b peer.Boot, runs []engine.LiveRun, verdicts map[string]wire.Verdict) {
	for part := range slices.Chunk(runs, peer.ControlBatch) {
		reply, err := s.Peers.Ask(ctx, b.Group, b.Instance, wire.Control{Op: wire.OpStatus, Runs: peer.Refs(part)})
		if err != nil || reply.BootID != b.ID {
			continue // a reconciler asks again
		}
		known := peer.Statuses(reply)
		var ended []engine.Ended
		for _, r := range part {
			switch st := known[r.ID.String()]; {
			case st.Status == wire.StatusAccepted || st.Status == wire.StatusRunning: // the answers contradict each other
			case st.Status == wire.StatusDone && st.Result != nil:
				ended = append(ended, s.Recorder.FromStatus(&r, st)...)
			default:
				ended = append(ended, s.Recorder.EndedBefore(&r, verdicts[r.ID.String()].Outcome))
			}
		}
		s.found(ctx, "ended_before", ended)
	}
}

// shunFor is how long an instance gets no offers after it has refused one although it seemed to have room.
const shunFor = 500 * time.Millisecond

// knownRefusal returns a known reason unchanged, and "other" for any other text, which must not get into metric labels and messages.
func knownRefusal(reason string) string {
	switch reason {
	case wire.RefusedFull, wire.RefusedDraining, wire.RefusedNoHandler, wire.RefusedLease, wire.RefusedStale, wire.RefusedUnsupported:
		return reason
	}
	return "other"
}

// Refused unbinds runs that their instance certainly will not start, so that they are routed again. avoid is true for permanent
// refusals: the runs then return to that instance only if no other instance is alive, even if the others are full. Refused
// returns how many runs wait again. The caller wakes the assigner.
func (s *Sender) Refused(ctx context.Context, runs []engine.LiveRun, why func(domain.RunID) explain.Note, avoid bool) int {
	if len(runs) == 0 {
		return 0
	}
	in := make([]engine.Refusal, len(runs))
	for i, r := range runs {
		in[i] = engine.Refusal{RunID: r.ID, Attempt: r.Attempt, Bind: r.Bind, Why: why(r.ID)}
		if avoid {
			in[i].Avoid = r.Instance
		}
	}
	again, killed, err := s.Store.Unbind(ctx, in)
	if err != nil {
		s.warn(ctx, "cannot unbind refused runs, a reconciler unbinds them", err)
		return 0
	}
	var ended []engine.Ended
	for _, r := range killed {
		ended = append(ended, s.Recorder.KilledUnbound(&r))
	}
	s.found(ctx, "", ended)
	return len(again)
}

func (s *Sender) warn(ctx context.Context, failure string, err error) {
	if ctx.Err() == nil {
		s.Log.WarnContext(ctx, failure, "err", err)
	}
}
