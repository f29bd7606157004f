package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/announce"
	"github.com/belfryhq/belfry/dispatcher/fire"
	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/dispatcher/kill"
	"github.com/belfryhq/belfry/dispatcher/offer"
	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/results"
	"github.com/belfryhq/belfry/dispatcher/roster"
	"github.com/belfryhq/belfry/dispatcher/settle"
	"github.com/belfryhq/belfry/dispatcher/waiting"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Stores holds the database operations that Firing needs, one field for each package. All fields may hold the same value.
type Stores struct {
	Announce announce.Store
	Settle   settle.Store
	Offer    offer.Store
	Kill     kill.Store
	Fire     fire.Store
}

// Config holds the dependencies and settings of a dispatcher. Stores, Conn and Log are required.
type Config struct {
	Stores   Stores
	Conn     *nats.Conn // without a reconnect buffer: an offer is sent now or not at all
	Log      *slog.Logger
	Registry prometheus.Registerer
	// Limits returns the limits of groups. If it is nil, the defaults apply to all groups.
	Limits roster.Limits
	// Closed is called with the names of the removed instances when a group has more instances than its limit. It may be
	// nil.
	Closed func(group string, instances []string)
	// LostAfter is the time from an instance's death within which its attempts are declared lost. Values below 15 s count as
	// 15 s.
	LostAfter time.Duration
	// HeardFor is how long NATS must have been available before an instance without heartbeats can be declared dead. The
	// default is 13 s. Tests shorten it.
	HeardFor time.Duration
	// Bounds limits the results that this process holds. Zero fields have the defaults. Tests lower them.
	Bounds intake.Bounds
	// Tracer records spans of runs. If it is nil, nothing is recorded.
	Tracer Tracer
	// Trace is called at named points, so that a test can end the process there: "bound" when bindings are committed and no
	// offer is sent yet, "offered" when an answer has arrived and is not processed yet.
	Trace func(point string)
}

// Tracer records spans of runs. Its methods must not block.
type Tracer interface {
	offer.Tracer
	// Finished is called with changes of runs after their commit.
	Finished(changes []engine.Change)
}

// Firing is the part of the dispatcher that fires and kills runs. Schedulers, consoles and dispatchers have one. Create one with
// NewFiring and call Watch. It is safe for concurrent use.
type Firing struct {
	cfg       Config
	js        jetstream.JetStream
	peers     *peer.Peers
	letters   *intake.DeadLetters
	roster    *roster.Roster
	waiting   *waiting.Kinds
	announcer *announce.Announcer
	recorder  *settle.Recorder
	sender    *offer.Sender
	killer    *kill.Killer
	firer     *fire.Firer
	lag       *results.LagMeter
	ready     chan struct{}
}

// NewFiring returns the firing part of a dispatcher.
func NewFiring(cfg Config) (*Firing, error) {
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "use JetStream", err)
	}
	if cfg.Trace == nil {
		cfg.Trace = func(string) {}
	}
	f := &Firing{cfg: cfg, js: js, roster: roster.New(js, cfg.Log), waiting: waiting.NewKinds(), lag: results.NewLagMeter(js), ready: make(chan struct{})}
	f.peers = peer.New(cfg.Conn, js, cfg.HeardFor, f.roster.Reconnected)
	f.letters = intake.NewDeadLetters(js, cfg.Stores.Fire.Now, cfg.Log, cfg.Registry)
	f.announcer = announce.New(cfg.Stores.Announce, cfg.Conn, f.peers, cfg.Log)
	if cfg.Tracer != nil {
		f.announcer.Finished = cfg.Tracer.Finished
	}
	f.recorder = settle.New(cfg.Stores.Settle, f.announcer, f.waiting, cfg.Log, cfg.Registry)
	f.sender = offer.New(offer.Config{
		Store: cfg.Stores.Offer, Conn: cfg.Conn, Peers: f.peers, Roster: f.roster, Recorder: f.recorder, Waiting: f.waiting, Log: cfg.Log,
		Registry: cfg.Registry, Release: f.release, Trace: cfg.Trace, Tracer: cfg.Tracer,
	})
	f.killer = kill.New(cfg.Stores.Kill, f.peers, f.recorder, cfg.Log)
	f.firer = fire.New(fire.Config{
		Store: cfg.Stores.Fire, Peers: f.peers, Roster: f.roster, Sender: f.sender, Killer: f.killer, Recorder: f.recorder,
		Announcer: f.announcer, Waiting: f.waiting, Log: cfg.Log, Registry: cfg.Registry,
	})
	return f, nil
}

// release lets the sender call the firer, which is created after the sender.
func (f *Firing) release(ctx context.Context, runs []engine.Due) { f.firer.Release(ctx, runs) }

// Watch updates the roster and the state of the connection to NATS. The other methods need both. Watch blocks until ctx ends and
// the answers to all offers are processed. It is called once.
func (f *Firing) Watch(ctx context.Context) error {
	signalling, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var signals sync.WaitGroup
	signals.Go(func() { f.signalLoop(signalling) })
	lifecycle.Together(ctx, f.awaitRoster, f.watchRoster, f.keepLimits, f.malformedLoop, f.peers.Run, f.firer.Run)
	f.sender.Wait()
	stop()
	signals.Wait()
	return nil
}

// Ready returns a channel that is closed when Watch knows the live instances, or after two seconds without an answer of
// NATS. Runs that are fired earlier find no instance and wait for an assigner.
func (f *Firing) Ready() <-chan struct{} { return f.ready }

const rosterWait = 2 * time.Second

func (f *Firing) awaitRoster(ctx context.Context) {
	defer close(f.ready)
	timer := time.NewTimer(rosterWait)
	defer timer.Stop()
	select {
	case <-f.roster.Known():
	case <-timer.C:
	case <-ctx.Done():
	}
}

// waitingSubject carries the signal that a run waits in a process without an assigner. It has no body.
const waitingSubject = wire.Prefix + "waiting"

// tellPause is the time between two such signals of a process.
const tellPause = 100 * time.Millisecond

// signalLoop passes the signals that a run waits to the assigners of other processes. If a signal is lost, they find the run
// within a second.
func (f *Firing) signalLoop(ctx context.Context) {
	for more := true; more; {
		select {
		case <-f.waiting.Elsewhere():
		case <-ctx.Done():
			select {
			case <-f.waiting.Elsewhere():
				more = false
			default:
				return
			}
		}
		if err := f.cfg.Conn.Publish(waitingSubject, nil); err != nil {
			f.cfg.Log.DebugContext(ctx, "cannot signal that a run waits, an assigner finds it within a second", "err", err)
		}
		lifecycle.Pause(ctx, tellPause)
	}
}

// hearLoop passes the signals of other processes to the assigner of this one.
func (f *Firing) hearLoop(ctx context.Context) {
	sub, err := f.cfg.Conn.Subscribe(waitingSubject, func(*nats.Msg) { f.waiting.Heard() })
	if err != nil {
		f.cfg.Log.WarnContext(ctx, "cannot subscribe to signals of waiting runs, the assigner finds the runs within a second", "err", err)
		return
	}
	<-ctx.Done()
	_ = sub.Unsubscribe() // fails only if the connection is closed
}

func (f *Firing) watchRoster(ctx context.Context) {
	if err := f.roster.Run(ctx); err != nil {
		f.cfg.Log.ErrorContext(ctx, "the roster ended, this process sees no instances", "err", err)
	}
}

func (f *Firing) keepLimits(ctx context.Context) {
	if f.cfg.Limits != nil {
		f.roster.KeepLimits(ctx, f.cfg.Limits)
	}
}

// malformedLoop moves values that are not heartbeats to the dead letters. Every process that watches the bucket does so;
// JetStream stores the first dead letter of each key.
func (f *Firing) malformedLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-f.roster.Malformed():
			letter := wire.DeadLetter{Subject: wire.InstanceSubject(s.Key), Data: s.Value}
			if err := f.letters.SetAsideOnce(ctx, "heartbeat "+s.Key, "heartbeat", letter, s.Reason); err != nil && ctx.Err() == nil {
				f.cfg.Log.WarnContext(ctx, "cannot store a malformed heartbeat as a dead letter, it is dropped", "key", s.Key, "err", err)
			}
		}
	}
}

// Fire routes runs, binds them and offers them: see fire.Firer.
func (f *Firing) Fire(ctx context.Context, runs []engine.Due) (later []engine.Due, err error) {
	return f.firer.Fire(ctx, runs)
}

// Kill requests the end of an unfinished run: see kill.Killer.
func (f *Firing) Kill(ctx context.Context, id domain.RunID, by string) error {
	released, err := f.killer.Kill(ctx, id, by)
	f.firer.Release(ctx, released)
	return err
}

// Killed sends kills that a transaction has recorded: see kill.Killer.
func (f *Firing) Killed(ctx context.Context, out engine.KillResult) {
	f.firer.Release(ctx, f.killer.Killed(ctx, out))
}

// Ended publishes and counts runs that a transaction has ended although none of their attempts ended.
func (f *Firing) Ended(runs []engine.Change) { f.recorder.Dropped(runs) }

// Instances lists the live instances of a group, or of all groups if group is empty.
func (f *Firing) Instances(group string) []domain.Instance { return f.roster.Instances(group) }

// Alive reports whether an instance is alive and within the limit of its group.
func (f *Firing) Alive(group, instance string) bool { return f.roster.Belongs(group, instance) }

// Drain asks an instance to take no more runs: see peer.Peers.
func (f *Firing) Drain(ctx context.Context, group, instance string) error {
	return f.peers.Drain(ctx, group, instance)
}

// DeadLetter moves a message to the dead-letter stream: see intake.DeadLetters.
func (f *Firing) DeadLetter(ctx context.Context, kind, subject string, data []byte, reason error) {
	f.letters.DeadLetter(ctx, kind, subject, data, reason)
}

// SetAside is DeadLetter for callers that can retry: see intake.DeadLetters.
func (f *Firing) SetAside(ctx context.Context, kind string, letter wire.DeadLetter, reason error) error {
	return f.letters.SetAside(ctx, kind, letter, reason)
}

// ResultsLag estimates how late results are settled. It must not be called concurrently.
func (f *Firing) ResultsLag(ctx context.Context) (time.Duration, error) { return f.lag.Lag(ctx) }
