package memstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/plan"
	"github.com/belfryhq/belfry/internal/schedule"
)

// These periods are the same in internal/store.
const (
	strandedAfter = 2 * time.Second
	timeoutGrace  = 30 * time.Second
)

// DB is the database of all simulated processes.
type DB struct {
	settings plan.Settings
	ahead    atomic.Int64 // how far Advance has moved the database's clock, in nanoseconds

	mu         sync.Mutex // held for a transaction
	lastJob    domain.JobID
	jobs       map[domain.JobID]*job
	versions   map[versionKey]*Version
	due        map[domain.JobID]*dueRow
	live       map[domain.RunID]*Run
	waiting    map[domain.RunID]*waitRow
	slots      map[slotKey]domain.RunID // the owner; the zero id if the slot is free
	broadcasts map[domain.RunID]*broadcast
	history    map[domain.RunID]*Run
	attempts   map[domain.RunID][]Attempt
	late       map[attemptKey]engine.Ended
	missed     map[domain.JobID][]domain.Missed
	routes     map[domain.JobID]int64
	scripts    map[domain.JobID][]string // the code of every version, from 1
	uses       map[domain.JobID]uses
	pauses     []domain.Pause
	steps      []domain.Disturbance // of the database's clock, by Advance
	followUps  []engine.FollowUp
	listeners  map[*func()]bool
	notified   bool // this transaction wakes the schedulers when it commits
}

type versionKey struct {
	job     domain.JobID
	version int
}

type attemptKey struct {
	run     domain.RunID
	attempt int
}

type slotKey struct {
	job      domain.JobID
	instance string // "" in scope cluster
}

type job struct {
	id        domain.JobID
	spec      domain.JobSpec
	version   int
	createdAt time.Time
	updatedAt time.Time
}

// Version is a version of a job, with the period in which it was current.
type Version struct {
	engine.Definition
	From, To time.Time // To is zero for the current version
	Change   string

	compiled *schedule.Schedule
}

// dueRow is the planning state of a job: when it is planned next, and which fire times are decided.
type dueRow struct {
	version  int
	nextFire time.Time
	nextDue  time.Time
	decided  time.Time
	chained  bool
	parked   bool // its fire times wait for the end of a pause
}

// Run is a run as stored in the database, unfinished or final.
type Run struct {
	engine.LiveRun
	Held            bool
	HeldBy          domain.RunID
	HeldOn          string
	Admitted        bool
	Replanned       bool
	RungAt          time.Time
	GiveUpAt        time.Time
	KillRequestedAt time.Time
	CreatedAt       time.Time
	Reason          domain.Reason
	Message         string
	Notes           explain.Notes // of Message
	KillWhy         explain.Note
	Waiting         explain.Note
	Output          string
	LatenessMS      *int64
	FinishedAt      time.Time
}

// Attempt is an ended attempt that was followed by a retry.
type Attempt struct {
	engine.Ended
}

type waitRow struct {
	key      engine.WaitingKey
	dueAt    time.Time
	deadline time.Time
}

type broadcast struct{ total, remaining, succeeded, cancelled int }

// New returns an empty database.
func New() *DB {
	return &DB{
		settings: plan.DefaultSettings(), jobs: make(map[domain.JobID]*job), versions: make(map[versionKey]*Version),
		due: make(map[domain.JobID]*dueRow), live: make(map[domain.RunID]*Run), waiting: make(map[domain.RunID]*waitRow),
		slots: make(map[slotKey]domain.RunID), broadcasts: make(map[domain.RunID]*broadcast), history: make(map[domain.RunID]*Run),
		attempts: make(map[domain.RunID][]Attempt), late: make(map[attemptKey]engine.Ended),
		missed: make(map[domain.JobID][]domain.Missed), routes: make(map[domain.JobID]int64), uses: make(map[domain.JobID]uses),
		scripts: make(map[domain.JobID][]string), listeners: make(map[*func()]bool),
	}
}

// Advance moves the database's clock forward. Like store.Store, the database notices a step of more than a second.
func (db *DB) Advance(d time.Duration) {
	db.tx(func() {
		from := db.now()
		db.ahead.Add(int64(d))
		if d > time.Second {
			db.steps = append(db.steps, domain.Disturbance{Kind: domain.ClockStep, From: from, To: db.now(), Step: d})
		}
	})
}

// now returns the time of the database's clock, with the precision of Postgres.
func (db *DB) now() time.Time {
	return time.Now().Add(time.Duration(db.ahead.Load())).Round(0).UTC().Truncate(time.Microsecond)
}

// tx runs f as a transaction, alone. If f set notified, tx then wakes the schedulers.
func (db *DB) tx(f func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	f()
	if db.notified {
		db.notified = false
		for wake := range db.listeners {
			(*wake)()
		}
	}
}

// Store is the access of one process to the database.
type Store struct {
	db     *DB
	offset atomic.Int64 // of the database's clock from this process's clock, as last measured, in nanoseconds
}

// Store returns the access of a new process, which has measured the database's clock exactly.
func (db *DB) Store() *Store {
	s := &Store{db: db}
	s.offset.Store(db.ahead.Load())
	return s
}

// Now returns this process's estimate of the database's clock.
func (s *Store) Now() time.Time {
	return time.Now().Add(time.Duration(s.offset.Load())).Round(0).UTC().Truncate(time.Millisecond)
}

// Skew makes the process's estimate of the database's clock wrong by d, until SyncClock is called.
func (s *Store) Skew(d time.Duration) { s.offset.Store(s.db.ahead.Load() + int64(d)) }

// SyncClock measures the database's clock.
func (s *Store) SyncClock(context.Context) error {
	s.offset.Store(s.db.ahead.Load())
	return nil
}

// Listen calls wake at once and for every notification, until ctx ends.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	s.db.tx(func() { s.db.listeners[&wake] = true })
	wake()
	<-ctx.Done()
	s.db.tx(func() { delete(s.db.listeners, &wake) })
	return nil
}

// MakeDays does nothing, because there are no partitions.
func (s *Store) MakeDays(context.Context, []time.Time) error { return nil }

// Vacuum does nothing.
func (s *Store) Vacuum(context.Context, bool) error { return nil }

// TendUsage does nothing, because simulated groups have no limits.
func (s *Store) TendUsage(context.Context) error { return nil }

// CountLiveRuns does nothing, because simulated groups have no limits.
func (s *Store) CountLiveRuns(context.Context) error { return nil }

// Definitions returns the given versions of jobs.
func (s *Store) Definitions(_ context.Context, runs []engine.Due) (engine.Definitions, error) {
	out := make(engine.Definitions)
	s.db.tx(func() {
		for _, r := range runs {
			v := s.db.versions[versionKey{r.JobID, r.JobVersion}]
			if v != nil {
				out[engine.VersionKey{Job: r.JobID, Version: r.JobVersion}] = &v.Definition
			}
		}
	})
	return out, nil
}

func (db *DB) def(r *Run) *engine.Definition {
	v := db.versions[versionKey{r.JobID, r.JobVersion}]
	if v == nil {
		panic(fmt.Sprintf("memstore: run %s has no job version", r.ID))
	}
	return &v.Definition
}

// liveSorted returns the unfinished runs for which keep returns true, sorted by id.
func (db *DB) liveSorted(keep func(*Run) bool) []*Run {
	var out []*Run
	for _, r := range db.live {
		if keep(r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *Run) int { return compareID(a.ID, b.ID) })
	return out
}

func compareID(a, b domain.RunID) int { return bytes.Compare(a[:], b[:]) }

func byDue(a, b *Run) int {
	if c := a.DueAt.Compare(b.DueAt); c != 0 {
		return c
	}
	return compareID(a.ID, b.ID)
}

func first[T any](all []T, limit int) []T { return all[:min(len(all), limit)] }

func liveRuns(rows []*Run) []engine.LiveRun {
	out := make([]engine.LiveRun, len(rows))
	for i, r := range rows {
		out[i] = r.LiveRun
	}
	return out
}

func change(r *Run) engine.Change {
	return engine.Change{
		RunID: r.ID, JobID: r.JobID, JobVersion: r.JobVersion, Group: r.Group, Cause: r.Cause, State: r.State, Reason: r.Reason,
		FireTime: r.FireTime, Attempt: r.Attempt, LatenessMS: r.LatenessMS,
	}
}

func at(t time.Time) *time.Time { return &t }
