package view

import (
	"context"
	"math"
	"runtime"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// RunSearch is a text to search for in the message, the output and the param of runs.
type RunSearch struct {
	Text   string // plain text; case is ignored
	Masked bool   // compare the texts with their secrets masked, as viewers read them
}

// FoundRuns is a page of a search.
type FoundRuns struct {
	Runs []domain.Run // newest first, with long texts cut as in lists
	Next domain.RunID // the Before of the next page; zero if the search has ended
	// SearchedBackTo is the instant from which on all runs that the filter admits are searched, in the sense of RunFilter.From. After
	// the last page it is From or, without From, the instant of the oldest run. It is zero if there is no run.
	SearchedBackTo time.Time
}

// searchBounds limit the work of a page.
type searchBounds struct {
	runs int           // whose texts are read
	time time.Duration // checked after each batch
	wait time.Duration // for the end of other searches
}

var pageBounds = searchBounds{runs: 20_000, time: 2 * time.Second, wait: 5 * time.Second}

const (
	// Texts are read in batches. The size of a batch follows the size of the texts of the previous one, so that a batch of the
	// largest texts (144 KiB for each run) has about two megabytes. If the texts suddenly grow, one batch can have 36 MiB.
	smallBatch = 16
	largeBatch = 250
	batchBytes = 1 << 20
)

// searchesAtOnce returns how many searches may run at the same time. The rest of the processors and of the connections is for other requests.
func searchesAtOnce() int { return max(1, min(4, runtime.GOMAXPROCS(0)/2)) }

// SearchRuns returns the runs that match the filter and whose message, output or param contains a text. A page can be short or empty and
// still have a Next. Limited means that too many searches run.
func (s *Store) SearchRuns(ctx context.Context, f RunFilter, q RunSearch) (FoundRuns, error) {
	found := FoundRuns{Runs: []domain.Run{}, SearchedBackTo: f.From}
	f.Limit = max(f.Limit, 1)
	if g := f.groups(); g != nil && len(g) == 0 {
		return found, nil
	}
	if err := s.beginSearch(ctx); err != nil {
		return found, err
	}
	defer func() { <-s.searching }()
	w := searchWalk{s: s, f: f, text: strings.ToLower(q.Text), masked: q.Masked, begun: time.Now(), size: largeBatch / 4,
		params: make(map[jobVersion]bool), reached: f.Before}
	next, err := w.page(ctx)
	if err != nil {
		return found, pgerr.Translate(err)
	}
	found.Next = next
	switch {
	case !next.IsZero():
		// Runs of the same millisecond may still be unsearched.
		found.SearchedBackTo = next.Time().Add(time.Millisecond)
	case f.From.IsZero() && !w.reached.IsZero():
		found.SearchedBackTo = w.reached.Time()
	}
	found.Runs, err = s.byID(ctx, w.found, listText)
	return found, err
}

// beginSearch waits for the end of other searches, so that searches do not take all connections of the pool.
func (s *Store) beginSearch(ctx context.Context) error {
	wait := time.NewTimer(s.bounds.wait)
	defer wait.Stop()
	select {
	case s.searching <- struct{}{}:
		return nil
	case <-wait.C:
		return domain.NewError(domain.Limited, "too many searches run at the same time; try again in a few seconds")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// searchWalk is the work on one page of a search.
type searchWalk struct {
	s      *Store
	f      RunFilter
	text   string // in lower case
	masked bool
	begun  time.Time

	found   []domain.RunID
	looked  int          // runs whose texts were compared
	reached domain.RunID // all runs from here up are searched
	size    int          // of the next batch
	params  map[jobVersion]bool
}

// jobVersion is the version of a job whose param a run has. Most runs have no other param, so a page compares it once.
type jobVersion struct {
	job     int64
	version int32
}

// page walks until the page ends. next is zero if no run is left.
func (w *searchWalk) page(ctx context.Context) (next domain.RunID, err error) {
	lo, hi := idRange(w.f)
	for more := true; more; {
		var keys []key
		if keys, more, err = w.keys(ctx, lo, hi); err != nil {
			return next, err
		}
		todo := admitted(keys)
		for len(todo) > 0 {
			n, err := w.batch(ctx, todo[:min(len(todo), w.size)])
			if err != nil {
				return next, err
			}
			w.reached, todo = todo[n-1], todo[n:]
			if w.full() && (more || len(todo) > 0) {
				return w.reached, nil
			}
		}
		if len(keys) > 0 {
			hi = keys[len(keys)-1].id
			w.reached = hi
		}
		if more && w.full() {
			return w.reached, nil
		}
	}
	return next, nil
}

// full reports whether the page ends.
func (w *searchWalk) full() bool {
	return len(w.found) >= w.f.Limit || w.looked >= w.s.bounds.runs || time.Since(w.begun) > w.s.bounds.time
}

// keys reads the next keys below hi.
func (w *searchWalk) keys(ctx context.Context, lo, hi domain.RunID) ([]key, bool, error) {
	if w.f.BroadcastID.IsZero() && w.f.ParentRunID.IsZero() {
		return w.s.keys(ctx, w.f, lo, hi, scanRows-1)
	}
	all := w.f
	all.Limit = math.MaxInt
	runs, _, err := w.s.family(ctx, all)
	return convert(runs, func(r domain.Run) key { return key{r.ID, true} }), false, err
}

// admitted returns the ids that match the filter. While a run is being moved to the history, keys has it twice.
func admitted(keys []key) []domain.RunID {
	ids := make([]domain.RunID, 0, len(keys))
	for _, k := range keys {
		if n := len(ids); k.fits && (n == 0 || ids[n-1] != k.id) {
			ids = append(ids, k.id)
		}
	}
	return ids
}

// batch compares the texts of runs, which are ordered from new to old, until the page has all its runs. n is how many it compared.
func (w *searchWalk) batch(ctx context.Context, ids []domain.RunID) (n int, err error) {
	rows, err := w.s.q.RunTexts(ctx, sqlcgen.RunTextsParams{Ids: ids, Lo: ids[len(ids)-1], Hi: ids[0]})
	if err != nil {
		return 0, err
	}
	bytes, err := w.readParams(ctx, rows)
	if err != nil {
		return 0, err
	}
	matches := make(map[domain.RunID]bool, len(rows))
	for _, r := range rows {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		bytes += len(r.Message) + len(r.Output) + len(orZero(r.Param))
		// While a run is being moved to the history, both rows may be visible; the final row is valid.
		if _, other := matches[r.ID]; !other || r.Final {
			matches[r.ID] = w.matches(&r)
		}
	}
	w.size = nextSize(len(ids), bytes)
	for n < len(ids) && len(w.found) < w.f.Limit {
		if matches[ids[n]] {
			w.found = append(w.found, ids[n])
		}
		n++
	}
	w.looked += n
	return n, nil
}

// nextSize returns the size of the batch after one of so many runs and bytes.
func nextSize(runs, bytes int) int {
	each := bytes/max(runs, 1) + 1
	return min(max(batchBytes/each, smallBatch), largeBatch)
}

func (w *searchWalk) matches(r *sqlcgen.RunTextsRow) bool {
	param := r.Param == nil && w.params[jobVersion{r.JobID, r.JobVersion}] || r.Param != nil && w.contains(*r.Param)
	return param || w.contains(r.Message) || w.contains(r.Output)
}

// contains reports whether a text contains the searched one. It masks every text, because otherwise the time that a search takes would
// depend on the secrets.
func (w *searchWalk) contains(text string) bool {
	if w.masked {
		text = domain.Mask(text)
	}
	return strings.Contains(strings.ToLower(text), w.text)
}

// readParams compares the params of the versions that appear for the first time on this page, and returns the number of their bytes.
func (w *searchWalk) readParams(ctx context.Context, rows []sqlcgen.RunTextsRow) (bytes int, err error) {
	var in sqlcgen.ParamsOfVersionsParams
	for _, r := range rows {
		of := jobVersion{r.JobID, r.JobVersion}
		if _, known := w.params[of]; known || r.Param != nil {
			continue
		}
		w.params[of] = false
		in.JobIds, in.Versions = append(in.JobIds, of.job), append(in.Versions, of.version)
	}
	if len(in.JobIds) == 0 {
		return 0, nil
	}
	params, err := w.s.q.ParamsOfVersions(ctx, in)
	if err != nil {
		return 0, err
	}
	for _, p := range params {
		bytes += len(p.Param)
		w.params[jobVersion{p.JobID, p.Version}] = w.contains(p.Param)
	}
	return bytes, nil
}
