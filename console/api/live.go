package api

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/stream"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/console/live"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/report"
	"github.com/belfryhq/belfry/internal/store/view"
)

// runGone is a run that a client's list may have, and should have no more.
type runGone struct {
	ID domain.RunID `json:"id"`
}

// runGap says that changes were left out.
type runGap struct{}

func (a *API) registerLive() {
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/runs/stream", Tag: "Runs", Summary: "Follow changes of runs", Needs: account.Viewer,
		Description: "Server-sent events: run (a run that fits the filters changed: the run as the list shows it), gone (one that may have fitted changed, " +
			"and does no more), gap (changes were left out, as there were too many, or could not be heard: read the list again). " +
			"What changes several times within half a second is told once, and at most 100 runs in that time. Read the list once the stream is open: " +
			"what changes from then on is told. Runs that are planned and not yet due are not, and what is told is told by best effort: " +
			"read the list now and then all the same.",
		Responses: stream.Response(a.rest, map[string]reflect.Type{
			"run": reflect.TypeFor[domain.Run](), "gone": reflect.TypeFor[runGone](), "gap": reflect.TypeFor[runGap]()})}, a.runStream)
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/overview/stream", Tag: "Reports", Summary: "Follow how things stand", Needs: account.Viewer,
		Description: "Server-sent events: overview (what GET /overview says of a span that ends now: at first, and when its numbers change, at most once a second).",
		Responses:   stream.Response(a.rest, map[string]reflect.Type{"overview": reflect.TypeFor[domain.Overview]()})}, a.overviewStream)
}

func (a *API) runStream(ctx context.Context, id auth.Identity, in *struct{ RunQuery }) (*rest.Streamed, error) {
	f, err := in.filter(id)
	if err != nil {
		return nil, err
	}
	if err := a.visible.CheckGroup(ctx, id, in.Group); err != nil {
		return nil, err
	}
	parents := []domain.RunID{f.ParentRunID}
	if !f.ParentRunID.IsZero() {
		// What a broadcast causes is caused by each of its shards.
		found, err := a.Views.RunsByID(ctx, parents)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 && found[0].BroadcastID != nil {
			parents = append(parents, *found[0].BroadcastID)
		}
	}
	watcher, err := a.hub.Watch(runFilter(f, parents))
	if err != nil {
		return nil, err
	}
	answer, err := a.streams.Open(id, func(ctx context.Context, s *stream.Stream) {
		defer watcher.Close()
		sendRuns(ctx, s, watcher)
	})
	if err != nil {
		watcher.Close()
	}
	return answer, err
}

// runFilter says which changed runs a list with that filter shows. Whether the caller may see one is judged by its row.
func runFilter(f view.RunFilter, parents []domain.RunID) live.Filter {
	// A list can lose a run to what changes in a run's life, and final runs change no more.
	lasting := f
	lasting.States, lasting.Reason, lasting.Instance = nil, "", ""
	final := len(f.States) > 0 && !slices.ContainsFunc(f.States, func(s domain.State) bool { return !s.Final() })
	loses := !final && (len(f.States) > 0 || f.Reason != "" || f.Instance != "")
	return live.Filter{
		Wants: func(c *domain.Change) bool {
			return f.Sees(c.Group) && (f.JobID == 0 || f.JobID == c.JobID) && (f.Cause == "" || f.Cause == c.Cause) &&
				(!final || slices.Contains(f.States, c.State))
		},
		Judge: func(r *domain.Run) live.Verdict {
			child := f.ParentRunID.IsZero() || r.ParentRunID != nil && slices.Contains(parents, *r.ParentRunID)
			switch {
			case child && f.Fits(r):
				return live.Show
			case child && loses && lasting.Fits(r):
				return live.Gone
			}
			return live.Nothing
		},
	}
}

// runs sends what the watcher gets.
func sendRuns(ctx context.Context, s *stream.Stream, w *live.Watcher) {
	beat := time.NewTicker(stream.Beat)
	defer beat.Stop()
	for s.Flush() == nil {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		case <-w.Wake():
		}
		events, gap := w.Take()
		for _, e := range events {
			if e.Gone {
				s.Event("gone", 0, runGone{e.Run.ID})
			} else {
				s.Event("run", 0, e.Run)
			}
		}
		if gap {
			s.Event("gap", 0, runGap{})
		}
	}
}

const (
	overviewPace = time.Second      // between two looks
	overviewRest = 4                // a look is followed by a rest of so many times what it took
	overviewIdle = 10 * time.Second // after which it is looked without a change: instances come and go, spans move on
)

func (a *API) overviewStream(ctx context.Context, id auth.Identity, in *struct {
	Span  string `query:"span" default:"24h" doc:"How far back runs count, a duration of up to 9600h"`
	Group string `query:"group" doc:"Only runs of this group"`
}) (*rest.Streamed, error) {
	span, err := time.ParseDuration(in.Span)
	if err != nil || span < time.Minute || span > report.HoursKept {
		return nil, problem.Invalid("span", "must be a duration from 1m to 9600h, such as 24h")
	}
	if err := a.visible.CheckGroup(ctx, id, in.Group); err != nil {
		return nil, err
	}
	only := id.Only()
	if in.Group != "" {
		only = []string{in.Group} // that the caller sees it has been checked
	}
	seen := view.RunFilter{Only: only}
	watcher, err := a.hub.Watch(live.Filter{Wants: func(c *domain.Change) bool { return seen.Sees(c.Group) }})
	if err != nil {
		return nil, err
	}
	answer, err := a.streams.Open(id, func(ctx context.Context, s *stream.Stream) {
		defer watcher.Close()
		a.followOverview(ctx, s, watcher, only, span)
	})
	if err != nil {
		watcher.Close()
	}
	return answer, err
}

// followOverview sends the overview whenever it says something else.
func (a *API) followOverview(ctx context.Context, s *stream.Stream, w *live.Watcher, only []string, span time.Duration) {
	var sent []byte
	for {
		now, err := a.gauges.look(ctx, fmt.Sprintf("%q %t %s", only, only == nil, span), func(ctx context.Context) (domain.Overview, error) {
			to := time.Now()
			return a.look(ctx, report.Scope{Only: only, From: to.Add(-span), To: to})
		})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			a.Log.WarnContext(ctx, "a look at how things stand; trying again", "error", err)
		default:
			if said := saying(now); string(said) != string(sent) {
				sent = said
				s.Event("overview", 0, now)
			}
		}
		if s.Flush() != nil {
			return
		}
		pause := time.NewTimer(overviewPace)
		idle := time.NewTimer(overviewIdle)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
		case <-w.Wake():
		case <-idle.C:
		}
		pause.Stop()
		idle.Stop()
	}
}

// saying is what an overview says apart from when it was made.
func saying(o domain.Overview) []byte {
	o.From, o.To, o.CountedThrough = domain.Instant{}, domain.Instant{}, domain.Instant{}
	b, _ := json.Marshal(o) // numbers and texts can be encoded
	return b
}

// gauges looks at how things stand for all streams that ask for the same, so that their number costs nothing, and rests
// after a look for longer the longer it took.
type gauges struct {
	mu     sync.Mutex
	latest map[string]*gauge
}

type gauge struct {
	turn sync.Mutex // held while somebody looks; guards the rest
	now  domain.Overview
	next time.Time // when it may be looked at again
	used time.Time // guarded by gauges.mu
}

func newGauges() *gauges { return &gauges{latest: make(map[string]*gauge)} }

// look returns what was seen less than a moment ago, or looks.
func (g *gauges) look(ctx context.Context, what string, look func(context.Context) (domain.Overview, error)) (domain.Overview, error) {
	one := g.of(what)
	one.turn.Lock()
	defer one.turn.Unlock()
	if time.Now().Before(one.next) {
		return one.now, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rest.RequestTimeout)
	defer cancel()
	start := time.Now()
	now, err := look(ctx)
	if err != nil {
		return now, err
	}
	rest := max(overviewPace*9/10, overviewRest*time.Since(start))
	one.now, one.next = now, time.Now().Add(rest)
	return now, nil
}

func (g *gauges) of(what string) *gauge {
	g.mu.Lock()
	defer g.mu.Unlock()
	for other, one := range g.latest {
		if time.Since(one.used) > time.Minute && other != what {
			delete(g.latest, other) // whoever still looks at it keeps it
		}
	}
	if g.latest[what] == nil {
		g.latest[what] = &gauge{}
	}
	g.latest[what].used = time.Now()
	return g.latest[what]
}
