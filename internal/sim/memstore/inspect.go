package memstore

import (
	"maps"
	"slices"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// Runs returns copies of all runs, unfinished and final, by id.
func (db *DB) Runs() []Run {
	var out []Run
	db.tx(func() {
		for _, m := range []map[domain.RunID]*Run{db.live, db.history} {
			for _, r := range m {
				out = append(out, *r)
			}
		}
	})
	slices.SortFunc(out, func(a, b Run) int { return compareID(a.ID, b.ID) })
	return out
}

// Unfinished counts the runs that are not final.
func (db *DB) Unfinished() (n int) {
	db.tx(func() { n = len(db.live) })
	return n
}

// Attempts returns the ended attempts of a run that were followed by a retry.
func (db *DB) Attempts(id domain.RunID) (out []Attempt) {
	db.tx(func() { out = slices.Clone(db.attempts[id]) })
	return out
}

// Missed returns the entries of a job in the missed ledger.
func (db *DB) Missed(id domain.JobID) (out []domain.Missed) {
	db.tx(func() { out = slices.Clone(db.missed[id]) })
	return out
}

// Versions returns the versions of all jobs, by job and number.
func (db *DB) Versions() map[domain.JobID][]Version {
	out := make(map[domain.JobID][]Version)
	db.tx(func() {
		for _, k := range slices.SortedFunc(maps.Keys(db.versions), func(a, b versionKey) int {
			if a.job != b.job {
				return int(a.job - b.job)
			}
			return a.version - b.version
		}) {
			out[k.job] = append(out[k.job], *db.versions[k])
		}
	})
	return out
}

// OwnedSlots counts the block slots that have an owner, even if the owner has ended.
func (db *DB) OwnedSlots() (n int) {
	db.tx(func() {
		for _, owner := range db.slots {
			if !owner.IsZero() {
				n++
			}
		}
	})
	return n
}

// Late returns the results that arrived after their attempts had been ended without them.
func (db *DB) Late(id domain.RunID, attempt int) (e engine.Ended, ok bool) {
	db.tx(func() { e, ok = db.late[attemptKey{id, attempt}] })
	return e, ok
}

// FollowUps counts the follow-ups that no worker has taken.
func (db *DB) FollowUps() (n int) {
	db.tx(func() { n = len(db.followUps) })
	return n
}
