package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/store/account"
)

const (
	maxStreams     = 400              // of this process
	maxUserStreams = 100              // and of one user
	streamBeat     = 15 * time.Second // a comment after so long a silence, so that proxies keep the connection
	streamLifetime = time.Hour        // then the client connects again
	streamCheck    = 10 * time.Second // how often a stream looks whether its caller still has the rights that it began with
	writePatience  = 30 * time.Second // for a client that does not read
)

// isStream says whether a path is that of a stream, whose answer has no end.
func isStream(path string) bool {
	path, below := strings.CutPrefix(path, Prefix)
	switch {
	case !below:
		return false
	case path == "/runs/stream" || path == "/overview/stream":
		return true
	}
	return strings.HasPrefix(path, "/runs/") && strings.HasSuffix(path, "/log/stream")
}

// eventResponse describes a stream by the names of its events and what they carry.
func (a *API) eventResponse(events map[string]reflect.Type) map[string]*huma.Response {
	var forms []*huma.Schema
	for _, name := range slices.Sorted(maps.Keys(events)) {
		forms = append(forms, &huma.Schema{Type: huma.TypeObject, Required: []string{"event", "data"}, Properties: map[string]*huma.Schema{
			"event": {Type: huma.TypeString, Enum: []any{name}}, "data": a.schema(events[name]),
		}})
	}
	return map[string]*huma.Response{"200": {
		Description: "Server-sent events: each has one of these names, and its data, as JSON, in one line",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{OneOf: forms}}},
	}}
}

// openStream answers with what write sends, until write returns, the client goes, the server closes, the caller's
// rights are no longer what they were, or an hour is over. Then clients connect again.
func (a *API) openStream(id auth.Identity, write func(context.Context, *stream)) (*streamed, error) {
	if !a.streams.take(id.User) {
		p := newProblem(http.StatusServiceUnavailable, "too many streams are open")
		p.retryAfter = 5 * time.Second
		return nil, p
	}
	return &streamed{func(hc huma.Context) {
		a.metrics.streams.Inc()
		defer func() { a.metrics.streams.Dec(); a.streams.free(id.User) }()
		r, w := humachi.Unwrap(hc)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no")
		out := http.NewResponseController(w)
		ctx, cancel := context.WithTimeout(r.Context(), streamLifetime)
		defer cancel()
		watched := make(chan struct{})
		go func() { defer close(watched); a.watchRights(ctx, id); cancel() }()
		defer func() { cancel(); <-watched }()
		write(ctx, &stream{w: w, out: out, hides: hidesParams(id)})
	}}, nil
}

// watchRights returns when the caller's token is no longer good for the same rights, when the server closes, or with ctx.
// While Postgres is away the stream stays: it shows nothing new then.
func (a *API) watchRights(ctx context.Context, id auth.Identity) {
	tick := time.NewTicker(a.StreamCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.closing:
			return
		case <-tick.C:
		}
		asking, cancel := context.WithTimeout(ctx, requestTimeout)
		now, err := a.Accounts.Authenticate(asking, id.Token)
		cancel()
		if errors.Is(err, account.ErrCredentials) {
			return
		}
		if err == nil && (now.Role != id.Role || now.Scope != id.Scope || !slices.Equal(now.Groups, id.Groups)) {
			return
		}
	}
}

// streamSlots bounds the streams, so that one user cannot take all of them.
type streamSlots struct {
	mu    sync.Mutex
	all   int
	users map[string]int
}

func (s *streamSlots) take(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == maxStreams || s.users[user] == maxUserStreams {
		return false
	}
	s.all++
	s.users[user]++
	return true
}

func (s *streamSlots) free(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.users[user]--; s.users[user] == 0 {
		delete(s.users, user)
	}
}

// stream writes server-sent events. It is used by one goroutine.
type stream struct {
	w     http.ResponseWriter
	out   *http.ResponseController
	buf   bytes.Buffer
	wrote time.Time
	hides bool // secrets of params, as the reader may only read
}

// event adds an event. JSON has no line breaks, so that its data is one line.
func (s *stream) event(name string, id int64, data any) {
	if s.hides {
		data = withoutSecrets(data)
	}
	b, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("api: encode an event: %v", err)) // what streams carry always has a JSON form
	}
	if id > 0 {
		fmt.Fprintf(&s.buf, "id: %d\n", id)
	}
	fmt.Fprintf(&s.buf, "event: %s\ndata: %s\n\n", name, b)
}

// flush sends what was added, or a comment after a long silence, the first time at once: the client then knows that the
// stream is open.
func (s *stream) flush() error {
	if s.buf.Len() == 0 {
		if time.Since(s.wrote) < streamBeat {
			return nil
		}
		s.buf.WriteString(": still here\n\n")
	}
	_ = s.out.SetWriteDeadline(time.Now().Add(writePatience))
	if _, err := s.buf.WriteTo(s.w); err != nil {
		return err
	}
	s.wrote = time.Now()
	return s.out.Flush()
}
