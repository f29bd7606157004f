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

// The bounds of time that internal/store has, too.
const (
	strandedAfter = 2 * time.Second
	timeoutGrace  = 30 * time.Second
)

// DB is the database of all simulated processes.
type DB struct {
	settings plan.Settings
	ahead    atomic.Int64 // of the database's clock, by Advance

	mu         sync.Mutex // a transaction
	lastJob    domain.JobID
	jobs       map[domain.JobID]*job
	versions   map[versionKey]*Version
	due        map[domain.JobID]*dueRow
	live       map[domain.RunID]*Run
	waiting    map[domain.RunID]*waitRow
	slots      map[slotKey]domain.RunID // the zero id: free
	broadcasts map[domain.RunID]*broadcast
	history    map[domain.RunID]*Run
	attempts   map[domain.RunID][]Attempt
	late       map[attemptKey]engine.Ended
	missed     map[domain.JobID][]domain.Missed
	routes     map[domain.JobID]int64
	scripts    map[domain.JobID][]string // the code of every version, from 1
	uses       map[domain.JobID]uses
	pauses     []domain.Pause
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

// Version is a job version, and when it held.
type Version struct {
	engine.Definition
	From, To time.Time // To is zero for the one that holds
	Change   string

	compiled *schedule.Schedule
}

// dueRow is when a job is to be looked at next.
type dueRow struct {
	version  int
	nextFire time.Time
	nextDue  time.Time
	decided  time.Time
	chained  bool
	parked   bool // its group's pause holds it up
}

// Run is a run as the database holds it, unfinished or final.
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
	Waiting         explain.Note
	Output          string
	LatenessMS      *int64
	FinishedAt      time.Time
}

// Attempt is an ended attempt of a run that went on.
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

// Advance puts the database's clock forward.
func (db *DB) Advance(d time.Duration) { db.ahead.Add(int64(d)) }

// now is the database's clock, with the precision that Postgres has.
func (db *DB) now() time.Time {
	return time.Now().Add(time.Duration(db.ahead.Load())).Round(0).UTC().Truncate(time.Microsecond)
}

// tx runs f alone, and wakes the schedulers afterwards if it asked for that.
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

// Store is one process's side of the database.
type Store struct {
	db     *DB
	offset atomic.Int64 // of the database's clock, as this process measured it
}

// Store returns a process's side of the database, its clock well measured.
func (db *DB) Store() *Store {
	s := &Store{db: db}
	s.offset.Store(db.ahead.Load())
	return s
}

// Now returns the database's clock as this process believes it to be.
func (s *Store) Now() time.Time {
	return time.Now().Add(time.Duration(s.offset.Load())).Round(0).UTC().Truncate(time.Millisecond)
}

// Skew puts the process's idea of the database's clock wrong until it measures it again.
func (s *Store) Skew(d time.Duration) { s.offset.Store(s.db.ahead.Load() + int64(d)) }

// SyncClock measures the database's clock.
func (s *Store) SyncClock(context.Context) error {
	s.offset.Store(s.db.ahead.Load())
	return nil
}

// Listen calls wake for every notification until ctx ends.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	s.db.tx(func() { s.db.listeners[&wake] = true })
	wake()
	<-ctx.Done()
	s.db.tx(func() { delete(s.db.listeners, &wake) })
	return nil
}

// MakeDays has nothing to do.
func (s *Store) MakeDays(context.Context, []time.Time) error { return nil }

// Vacuum has nothing to do.
func (s *Store) Vacuum(context.Context) error { return nil }

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

// liveSorted returns the unfinished runs that keep approves of, by id.
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
