package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/event/match"
	"github.com/belfryhq/belfry/internal/store/event/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Engine is the part of the engine's store that events need.
type Engine interface {
	Pool() *pgxpool.Pool
	Now() time.Time
	Tx(ctx context.Context, f func(tx pgx.Tx) error) error
	PlanEventRunsTx(ctx context.Context, tx pgx.Tx, runs []event.Run) (gone map[domain.JobID]bool, ended []engine.Change, err error)
	// Ended is called after the commit, with the runs that PlanEventRunsTx has ended.
	Ended(runs []engine.Change)
}

// Store keeps triggers and events in Postgres. It is safe for concurrent use. Every error is a domain.Error.
type Store struct {
	engine   Engine
	q        *sqlcgen.Queries
	compiled *lru.Cache[compiledKey, *match.Compiled]
	days     sync.Map // of time.Time: days whose partition exists
}

type compiledKey struct {
	id      int64
	version int32
}

// MaxTriggers is the maximum number of event triggers.
const MaxTriggers = 10_000

const (
	compiledKept = 2000 // each takes about 50 kB
	changedTries = 10
)

// New returns a Store that uses the engine's store.
func New(engine Engine) (*Store, error) {
	cache, err := lru.New[compiledKey, *match.Compiled](compiledKept)
	if err != nil {
		return nil, fmt.Errorf("create the cache of event triggers: %w", err)
	}
	return &Store{engine: engine, q: sqlcgen.New(engine.Pool()), compiled: cache}, nil
}

// Accepted is the result for an incoming event.
type Accepted struct {
	event.Event
	Repeated  bool // the event had been accepted before; Event is the record of the first time
	OtherBody bool // Repeated, with other data than the first time
}

// Accept accepts all events or none. The results are in the order of the events.
func (s *Store) Accept(ctx context.Context, in []event.Incoming) ([]Accepted, error) {
	now := s.engine.Now().UTC().Truncate(time.Millisecond)
	if err := s.makeDay(ctx, now); err != nil {
		return nil, err
	}
	a := &accepting{s: s, now: now, in: in, ids: make([]domain.RunID, len(in)), views: make([]*match.View, len(in))}
	for i := range in {
		a.ids[i] = domain.NewRunID(now)
		a.views[i] = match.NewView(a.ids[i], &in[i])
	}
	for try := 1; ; try++ {
		err := a.once(ctx)
		if err == nil {
			s.engine.Ended(a.ended)
			return a.answers(ctx)
		}
		if !errors.Is(err, errChanged) {
			return nil, pgerr.Translate(err)
		}
		if try == changedTries {
			return nil, domain.NewError(domain.Unavailable, "the event triggers were changed during each attempt; try again")
		}
	}
}

// errChanged means that triggers were edited while they were evaluated.
var errChanged = errors.New("event triggers have changed")

// accepting is the state of one Accept.
type accepting struct {
	s     *Store
	now   time.Time
	in    []event.Incoming
	ids   []domain.RunID
	views []*match.View

	records []event.Event
	runs    [][]event.Run
	repeats []repeat
	ended   []engine.Change // runs that were skipped
}

// repeat identifies the event that an incoming event repeats.
type repeat struct {
	of        domain.RunID // zero: no repeat
	otherBody bool
}

// once evaluates the triggers and writes the resulting runs and records.
func (a *accepting) once(ctx context.Context) error {
	if err := a.knownBefore(ctx, a.s.q); err != nil {
		return err
	}
	heads := a.heads()
	triggers, err := a.s.candidates(ctx, heads)
	if err != nil {
		return err
	}
	a.records, a.runs = make([]event.Event, len(a.in)), make([][]event.Run, len(a.in))
	for i := range a.in {
		if a.repeats[i].of.IsZero() {
			a.decide(ctx, i, triggers)
		}
		if ctx.Err() != nil {
			return ctx.Err() // evaluations may have failed because the context ended
		}
	}
	return a.s.engine.Tx(ctx, func(tx pgx.Tx) error {
		q := a.s.q.WithTx(tx)
		if err := a.takeKeys(ctx, q); err != nil {
			return err
		}
		now, err := q.CandidateVersions(ctx, sqlcgen.CandidateVersionsParams{Heads: heads, MaxRows: MaxTriggers})
		if err != nil {
			return err
		}
		if !slices.EqualFunc(triggers, now, func(t *match.Compiled, v sqlcgen.CandidateVersionsRow) bool {
			return t.ID == v.ID && t.Version == int(v.Version) && t.Group == v.GroupName
		}) {
			return errChanged
		}
		return a.write(ctx, tx, q)
	})
}

// heads returns the lookup keys for the triggers of the new events.
func (a *accepting) heads() []string {
	var heads []string
	for i := range a.in {
		if a.repeats[i].of.IsZero() {
			heads = append(heads, event.Heads(a.in[i].Name)...)
		}
	}
	slices.Sort(heads)
	return slices.Compact(heads)
}

// knownBefore finds repeats, including those within the batch.
func (a *accepting) knownBefore(ctx context.Context, q *sqlcgen.Queries) error {
	a.repeats = make([]repeat, len(a.in))
	first := make(map[string]int)
	var digests [][]byte
	for i := range a.in {
		d := a.in[i].Digest()
		if d == nil {
			continue
		}
		if f, twice := first[string(d)]; twice {
			a.repeats[i] = repeat{of: a.ids[f], otherBody: string(a.in[f].Data) != string(a.in[i].Data)}
			continue
		}
		first[string(d)] = i
		digests = append(digests, d)
	}
	if len(digests) == 0 {
		return nil
	}
	rows, err := q.Keys(ctx, digests)
	if err != nil {
		return err
	}
	known := make(map[string]sqlcgen.KeysRow, len(rows))
	for _, r := range rows {
		known[string(r.Digest)] = r
	}
	for i := range a.in {
		if r, ok := known[string(a.in[i].Digest())]; ok {
			a.repeats[i] = repeat{of: r.EventID, otherBody: string(r.Body) != string(a.in[i].BodyDigest())}
		}
	}
	return nil
}

// takeKeys takes the keys of the new events. If another transaction took one of them since knownBefore, Accept starts
// over.
func (a *accepting) takeKeys(ctx context.Context, q *sqlcgen.Queries) error {
	p := sqlcgen.TakeKeysParams{At: a.now}
	for i := range a.in {
		if d := a.in[i].Digest(); d != nil && a.repeats[i].of.IsZero() {
			p.Digests = append(p.Digests, d)
			p.EventIds = append(p.EventIds, a.ids[i])
			p.Bodies = append(p.Bodies, a.in[i].BodyDigest())
		}
	}
	if len(p.Digests) == 0 {
		return nil
	}
	taken, err := q.TakeKeys(ctx, p)
	if err == nil && len(taken) < len(p.Digests) {
		return errChanged
	}
	return err
}

func (a *accepting) decide(ctx context.Context, i int, triggers []*match.Compiled) {
	in := &a.in[i]
	var matching []*match.Compiled
	for _, t := range triggers {
		if event.Matches(t.Name, in.Name) && (in.Only == nil || slices.Contains(in.Only, t.Group)) {
			matching = append(matching, t)
		}
	}
	e := event.Event{
		ID: a.ids[i], Name: in.Name, Source: in.Source, Type: in.Type, Subject: in.Subject, Key: in.Key,
		Time: domain.At(in.Time), ReceivedAt: domain.At(a.now), Via: in.Via, SentBy: in.SentBy, DataBytes: len(in.Data),
	}
	if in.Time.IsZero() {
		e.Time = e.ReceivedAt
	}
	if len(in.Data) <= event.MaxKeptBytes {
		e.Data = in.Data
	}
	e.Deliveries, a.runs[i] = match.Decide(ctx, a.views[i], matching)
	a.records[i] = e
}

// write plans the runs and writes the records of the new events.
func (a *accepting) write(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries) error {
	gone, ended, err := a.s.engine.PlanEventRunsTx(ctx, tx, slices.Concat(a.runs...))
	if err != nil {
		return err
	}
	a.ended = ended
	var p sqlcgen.InsertEventsParams
	for i := range a.in {
		if !a.repeats[i].of.IsZero() {
			continue
		}
		e := &a.records[i]
		groups := []string{}
		for j := range e.Deliveries {
			d := &e.Deliveries[j]
			if gone[d.JobID] && d.RunID != nil {
				d.Outcome, d.Why, d.RunID = event.DeliveryNoJob, "the job was deleted meanwhile", nil
			}
			groups = append(groups, d.Group)
		}
		slices.Sort(groups)
		encodedGroups, err := json.Marshal(slices.Compact(groups))
		if err != nil {
			return err
		}
		deliveries, err := json.Marshal(e.Deliveries)
		if err != nil {
			return err
		}
		p.Ids = append(p.Ids, e.ID)
		p.Names = append(p.Names, e.Name)
		p.Sources = append(p.Sources, e.Source)
		p.Types = append(p.Types, e.Type)
		p.Subjects = append(p.Subjects, e.Subject)
		p.Keys = append(p.Keys, e.Key)
		p.Ats = append(p.Ats, e.Time.Time)
		p.ReceivedAts = append(p.ReceivedAts, e.ReceivedAt.Time)
		p.Vias = append(p.Vias, string(e.Via))
		p.SentBys = append(p.SentBys, e.SentBy)
		p.DataBytes = append(p.DataBytes, int32(e.DataBytes))
		p.Datas = append(p.Datas, string(e.Data))
		p.Groups = append(p.Groups, encodedGroups)
		p.Deliveries = append(p.Deliveries, deliveries)
	}
	if len(p.Ids) == 0 {
		return nil
	}
	return q.InsertEvents(ctx, p)
}

// answers returns the new events' records and, for repeats, the earlier records.
func (a *accepting) answers(ctx context.Context) ([]Accepted, error) {
	out := make([]Accepted, len(a.in))
	byID := make(map[domain.RunID]event.Event)
	for i := range a.in {
		if a.repeats[i].of.IsZero() {
			out[i].Event = a.records[i]
			byID[a.ids[i]] = a.records[i]
		}
	}
	for i, r := range a.repeats {
		if r.of.IsZero() {
			continue
		}
		e, known := byID[r.of]
		if !known {
			var err error
			e, err = a.s.Event(ctx, r.of)
			if domain.CodeOf(err) == domain.NotFound && err != nil {
				e, err = event.Event{ID: r.of, Name: a.in[i].Name, Key: a.in[i].Key, Deliveries: []event.Delivery{}}, nil // its record was dropped
			}
			if err != nil {
				return nil, err
			}
		}
		out[i] = Accepted{Event: e, Repeated: true, OtherBody: r.otherBody}
	}
	return out, nil
}

// candidates returns the triggers that may match, compiled.
func (s *Store) candidates(ctx context.Context, heads []string) ([]*match.Compiled, error) {
	if len(heads) == 0 {
		return nil, nil
	}
	rows, err := s.q.Candidates(ctx, sqlcgen.CandidatesParams{Heads: heads, MaxRows: MaxTriggers})
	if err != nil {
		return nil, err
	}
	triggers := make([]*match.Compiled, len(rows))
	for i, r := range rows {
		k := compiledKey{r.ID, r.Version}
		t, known := s.compiled.Get(k)
		if !known {
			t = match.Compile(r.ID, int(r.Version), &event.TriggerSpec{
				Name: r.Name, JobID: domain.JobID(r.JobID), Filter: r.Filter, Param: r.Param, Enabled: r.Enabled,
			})
			s.compiled.Add(k, t)
		}
		own := *t
		own.Group = r.GroupName // the job may have moved to another group
		triggers[i] = &own
	}
	return triggers, nil
}

// makeDay creates the partition of a day.
func (s *Store) makeDay(ctx context.Context, at time.Time) error {
	day := at.Truncate(24 * time.Hour)
	if _, made := s.days.Load(day); made {
		return nil
	}
	if _, err := s.engine.Pool().Exec(ctx, `SELECT make_event_day($1::date)`, day); err != nil {
		return pgerr.Translate(err)
	}
	s.days.Store(day, true)
	return nil
}
