package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// AlertRules are the limits for alerts about jobs.
type AlertRules struct {
	Every     time.Duration // the minimum time between two alerts of the same kind and job; 0: domain.DefaultAlertEvery
	LateAfter time.Duration // a run that starts later than this causes a late alert; 0: domain.DefaultAlertLateAfter
}

func (r *AlertRules) setDefaults() {
	r.Every = cmp.Or(r.Every, domain.DefaultAlertEvery)
	r.LateAfter = cmp.Or(r.LateAfter, domain.DefaultAlertLateAfter)
}

// alertNotes collects the alerts that one transaction causes. A transaction without jobs that have alerts runs no
// statement for them. Neither does the success of a job without recovery alerts.
type alertNotes struct {
	noted     map[alertKey]*engine.AlertNote
	silent    map[alertKey]bool // counted but not sent: the job has alerts on recovery, but not on failures
	succeeded map[domain.JobID]success
}

type alertKey struct {
	job  domain.JobID
	kind domain.AlertKind
}

// success is the latest success of a job in a batch.
type success struct {
	run     domain.RunID
	version int
	at      time.Time
}

// ended notes the end of a run, or of a broadcast as a whole, identified by the id of its first shard.
func (n *alertNotes) ended(def *definition, run domain.RunID, state domain.State, at time.Time) {
	if len(def.Alert.Channels) == 0 {
		return
	}
	recovery := def.Alert.Wants(domain.AlertRecovered)
	switch {
	case state == domain.Failed && (recovery || def.Alert.Wants(domain.AlertFailed)):
		n.add(def, engine.AlertNote{Kind: domain.AlertFailed, RunID: run, At: domain.At(at), Count: 1})
		if !def.Alert.Wants(domain.AlertFailed) {
			if n.silent == nil {
				n.silent = make(map[alertKey]bool)
			}
			n.silent[alertKey{def.JobID, domain.AlertFailed}] = true
		}
	case state == domain.Succeeded && recovery:
		if n.succeeded == nil {
			n.succeeded = make(map[domain.JobID]success)
		}
		if last := n.succeeded[def.JobID]; !last.at.After(at) {
			n.succeeded[def.JobID] = success{run, def.Version, at}
		}
	}
}

// started notes a run's lateness; latenessMS is nil if the run never started.
func (n *alertNotes) started(def *definition, run domain.RunID, latenessMS *int64, rules AlertRules, at time.Time) {
	if latenessMS != nil && len(def.Alert.Channels) > 0 && *latenessMS > rules.LateAfter.Milliseconds() && def.Alert.Wants(domain.AlertLate) {
		n.add(def, engine.AlertNote{Kind: domain.AlertLate, RunID: run, At: domain.At(at), Count: 1})
	}
}

// missed notes an entry of the missed ledger.
func (n *alertNotes) missed(def *definition, first, last time.Time, count int64, why *explain.Explanation) {
	if !def.Alert.Wants(domain.AlertMissed) {
		return
	}
	n.add(def, engine.AlertNote{
		Kind: domain.AlertMissed, At: domain.At(last), Count: count,
		Missed: &engine.MissedAt{First: domain.At(first), Last: domain.At(last), Why: why.Text, Code: why.Code, Args: why.Args},
	})
}

// add merges a note with the earlier notes of its kind and job. It adds up the counts and keeps the latest note.
func (n *alertNotes) add(def *definition, note engine.AlertNote) {
	k := alertKey{def.JobID, note.Kind}
	note.JobID, note.JobVersion = def.JobID, def.Version
	old := n.noted[k]
	switch {
	case n.noted == nil:
		n.noted = make(map[alertKey]*engine.AlertNote)
	case old == nil:
	case old.At.After(note.At.Time):
		old.Count += note.Count
		return
	default:
		note.Count += old.Count
		if note.Missed != nil && old.Missed != nil {
			note.Missed.First = old.Missed.First
		}
	}
	n.noted[k] = &note
}

// write updates the jobs' alert state and returns the alerts to send now. It must come last in its transaction, because
// alert_state is locked after all other tables.
func (n *alertNotes) write(ctx context.Context, q *sqlcgen.Queries, rules AlertRules, now time.Time) (ups []engine.FollowUp, err error) {
	if len(n.noted) == 0 && len(n.succeeded) == 0 {
		return nil, nil
	}
	if ups, err = n.tell(ctx, q, rules, now); err != nil {
		return nil, err
	}
	recovered, err := n.recover(ctx, q)
	return append(ups, recovered...), err
}

// tell counts the notes and returns those that are not folded.
func (n *alertNotes) tell(ctx context.Context, q *sqlcgen.Queries, rules AlertRules, now time.Time) (ups []engine.FollowUp, err error) {
	if len(n.noted) == 0 {
		return nil, nil
	}
	keys := make([]alertKey, 0, len(n.noted))
	for k := range n.noted {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b alertKey) int { return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.kind, b.kind)) })
	p := sqlcgen.NoteAlertsParams{Now: now, ToldBefore: now.Add(-rules.Every)}
	for _, k := range keys {
		note := n.noted[k]
		p.JobIds = append(p.JobIds, int64(k.job))
		p.Kinds = append(p.Kinds, string(k.kind))
		p.Counts = append(p.Counts, note.Count)
		p.Versions = append(p.Versions, int32(note.JobVersion))
		p.RunIds = append(p.RunIds, note.RunID)
	}
	jobs := slices.Clone(p.JobIds)
	for job := range n.succeeded { // otherwise a recovery here and a failure in another transaction could deadlock
		jobs = append(jobs, int64(job))
	}
	if err := q.LockAlertState(ctx, jobs); err != nil {
		return nil, err
	}
	rows, err := q.NoteAlerts(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		k := alertKey{domain.JobID(r.JobID), domain.AlertKind(r.Kind)}
		note := *n.noted[k]
		switch {
		case n.silent[k]:
			continue
		case r.Telling:
			note.Count, note.Since = r.Told, domain.At(r.Since)
		case r.Folded == note.Count:
			// This is the first folded alert. If no more follow, it is sent when the time is over.
			note.Folded, note.DueAt = true, r.ToldAt.Add(rules.Every)
		default:
			continue
		}
		ups = append(ups, engine.FollowUp{Alert: &note})
	}
	return ups, nil
}

// recover closes the open alerts of jobs that have succeeded since.
func (n *alertNotes) recover(ctx context.Context, q *sqlcgen.Queries) (ups []engine.FollowUp, err error) {
	var jobs []int64
	for job, s := range n.succeeded {
		if failed := n.noted[alertKey{job, domain.AlertFailed}]; failed != nil && failed.At.After(s.at) {
			continue // the failure is the newer one
		}
		jobs = append(jobs, int64(job))
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	slices.Sort(jobs)
	open, err := q.OpenAlerts(ctx, jobs)
	if err != nil || len(open) == 0 {
		return nil, err
	}
	rows, err := q.CloseAlerts(ctx, open)
	for _, r := range rows {
		s := n.succeeded[domain.JobID(r.JobID)]
		ups = append(ups, engine.FollowUp{Alert: &engine.AlertNote{
			Kind: domain.AlertRecovered, JobID: domain.JobID(r.JobID), JobVersion: s.version, RunID: s.run,
			At: domain.At(s.at), Count: r.Failures, Since: domain.At(r.OpenedAt),
		}})
	}
	return ups, err
}

// tellLate enqueues the alerts about late runs that have just been marked as running. For other late runs, the alert is
// enqueued when they end.
func (s *Store) tellLate(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, rows []sqlcgen.RunsLive) error {
	var late []sqlcgen.RunsLive
	var keys []versionKey
	for _, r := range rows {
		if orZero(r.LatenessMs) > s.alerts.LateAfter.Milliseconds() {
			late = append(late, r)
			keys = append(keys, versionKey{domain.JobID(r.JobID), int(r.JobVersion)})
		}
	}
	if len(late) == 0 {
		return nil
	}
	defs, err := s.load(ctx, q, keys)
	if err != nil {
		return err
	}
	var n alertNotes
	for i, r := range late {
		if def := defs[keys[i]]; def != nil {
			n.started(def, r.ID, r.LatenessMs, s.alerts, orZero(r.StartedAt))
		}
	}
	return s.tellNotes(ctx, tx, q, &n, s.Now())
}

// tellUnexplained enqueues the alerts about ledger entries that the audit made. The job version in gap determines the
// channels.
func (s *Store) tellUnexplained(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, gap firecheck.Unexplained, p sqlcgen.InsertMissedParams) error {
	def, err := s.one(ctx, q, versionKey{gap.JobID, gap.Version})
	if err != nil {
		return err
	}
	var n alertNotes
	for i := range p.JobIds {
		n.missed(def, p.Firsts[i], p.Lasts[i], p.Counts[i], explain.Note(p.WhyNotes[i]).Explanation())
	}
	return s.tellNotes(ctx, tx, q, &n, s.Now())
}

func (s *Store) tellNotes(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, n *alertNotes, now time.Time) error {
	ups, err := n.write(ctx, q, s.alerts, now)
	if err != nil || len(ups) == 0 {
		return err
	}
	if err := s.followUps.InsertTx(ctx, tx, ups); err != nil {
		return fmt.Errorf("enqueue alerts: %w", err)
	}
	return nil
}

// TakeFolded returns the folded alerts of a job and kind that should be sent now, or nil, within the transaction that
// completes the follow-up. If it is too early, wait is the remaining time.
func (s *Store) TakeFolded(ctx context.Context, tx pgx.Tx, job domain.JobID, kind domain.AlertKind) (note *engine.AlertNote, wait time.Duration, err error) {
	q := s.q.WithTx(tx)
	r, err := q.AlertStateForUpdate(ctx, sqlcgen.AlertStateForUpdateParams{JobID: int64(job), Kind: string(kind)})
	if errors.Is(err, pgx.ErrNoRows) || (err == nil && r.Folded == 0) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	now := s.Now()
	if wait := r.ToldAt.Add(s.alerts.Every).Sub(now); wait > 0 {
		return nil, wait, nil
	}
	err = q.TellFolded(ctx, sqlcgen.TellFoldedParams{JobID: int64(job), Kind: string(kind), Now: now})
	return &engine.AlertNote{
		Kind: kind, JobID: job, JobVersion: int(r.JobVersion), RunID: orZero(r.RunID), At: domain.At(now),
		Count: r.Folded, Since: domain.At(r.Since),
	}, 0, err
}

// checkChannels adds a job's channels that do not exist to f. It locks the others, so that they are not deleted before
// the job is visible.
func checkChannels(ctx context.Context, q *sqlcgen.Queries, f *domain.Faults, alert *domain.Alert) error {
	names := slices.DeleteFunc(slices.Clone(alert.Channels), func(name string) bool { return !domain.ValidChannelName(name) })
	if len(names) == 0 {
		return nil
	}
	known, err := q.KnownChannels(ctx, names)
	if err != nil {
		return err
	}
	for i, name := range alert.Channels {
		if domain.ValidChannelName(name) && !slices.Contains(known, name) {
			f.Add(fmt.Sprintf("alert.channels[%d]", i), domain.NoChannel(name))
		}
	}
	return nil
}
