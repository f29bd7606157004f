package reports

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/stream"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/console/live"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/runstats"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
)

const (
	overviewPace = time.Second      // between two reads
	overviewRest = 4                // the pause after a read is this many times its duration
	overviewIdle = 10 * time.Second // then the overview is read without a change, because instances and the span change too
)

func (a *API) stream(ctx context.Context, id auth.Identity, in *struct {
	Span  string `query:"span" default:"24h" doc:"How far back runs count, a duration of up to 9600h"`
	Group string `query:"group" doc:"Only runs of this group"`
}) (*rest.Streamed, error) {
	span, err := time.ParseDuration(in.Span)
	if err != nil || span < time.Minute || span > statstore.HoursKept {
		return nil, problem.Invalid("span", "must be a duration from 1m to 9600h, such as 24h")
	}
	only, err := a.Visible.Scope(ctx, id, in.Group)
	if err != nil {
		return nil, err
	}
	seen := view.RunFilter{Only: only}
	watcher, err := a.Hub.Watch(live.Filter{Wants: func(c *engine.Change) bool { return seen.Sees(c.Group) }})
	if err != nil {
		return nil, err
	}
	answer, err := a.Streams.Open(id, func(ctx context.Context, s *stream.Stream) {
		defer watcher.Close()
		a.followOverview(ctx, s, watcher, only, span)
	})
	if err != nil {
		watcher.Close()
	}
	return answer, err
}

// followOverview sends the overview when it changes.
func (a *API) followOverview(ctx context.Context, s *stream.Stream, w *live.Watcher, only []string, span time.Duration) {
	var sent []byte
	for {
		now, err := a.gauges.look(ctx, fmt.Sprintf("%q %t %s", only, only == nil, span), func(ctx context.Context) (runstats.Overview, error) {
			to := time.Now()
			return a.look(ctx, statstore.Scope{Only: only, From: to.Add(-span), To: to})
		})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			a.Log.WarnContext(ctx, "cannot read the overview, retrying", "err", err)
		default:
			if numbers := withoutTimes(now); string(numbers) != string(sent) {
				sent = numbers
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

// withoutTimes encodes an overview without its times.
func withoutTimes(o runstats.Overview) []byte {
	o.From, o.To, o.CountedThrough = domain.Instant{}, domain.Instant{}, domain.Instant{}
	b, _ := json.Marshal(o) // numbers and texts can be encoded
	return b
}

// gauges reads each overview once for all streams that show it. A read that takes longer is followed by a longer pause.
// The zero value is ready for use.
type gauges struct {
	mu     sync.Mutex
	latest map[string]*gauge
}

type gauge struct {
	turn sync.Mutex // held during a read; guards now and next
	now  runstats.Overview
	next time.Time // the earliest next read
	used time.Time // guarded by gauges.mu
}

// look returns a recent overview, or reads a new one.
func (g *gauges) look(ctx context.Context, what string, look func(context.Context) (runstats.Overview, error)) (runstats.Overview, error) {
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
			delete(g.latest, other) // streams that still use the gauge have their own pointer to it
		}
	}
	if g.latest == nil {
		g.latest = make(map[string]*gauge)
	}
	if g.latest[what] == nil {
		g.latest[what] = &gauge{}
	}
	g.latest[what].used = time.Now()
	return g.latest[what]
}
