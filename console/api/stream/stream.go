// Package stream sends server-sent events. It bounds the number of streams, and ends a stream when its caller loses the
// rights that the stream began with.
package stream

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
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/store/account"
)

const (
	// Beat is the longest silence of a stream. Then a comment keeps proxies from closing the connection.
	Beat = 15 * time.Second
	// WritePatience is how long a write waits for a client that does not read.
	WritePatience = 30 * time.Second

	maxStreams     = 400             // per process
	maxUserStreams = 100             // per user
	lifetime       = time.Hour       // then the client connects again
	defaultCheck   = 3 * time.Second // between two checks of the caller's rights
)

// Streams opens streams. Safe for concurrent use.
type Streams struct {
	accounts auth.Accounts
	open     prometheus.Gauge
	check    time.Duration
	closing  chan struct{} // closed when all streams end

	mu    sync.Mutex
	all   int
	users map[string]int
}

// New makes Streams. check is the time between two checks of a caller's rights, 0 for 3 s; open counts the open streams.
func New(accounts auth.Accounts, check time.Duration, open prometheus.Gauge) *Streams {
	if check == 0 {
		check = defaultCheck
	}
	return &Streams{accounts: accounts, open: open, check: check, closing: make(chan struct{}), users: map[string]int{}}
}

// Close ends all streams, so that a server can shut down. It must be called at most once.
func (s *Streams) Close() { close(s.closing) }

// Open answers with the events that write sends. The stream ends when write returns, the client disconnects, the server
// closes, the caller's rights change, or an hour has passed. Then clients connect again. If too many streams are open,
// Open returns a 503.
func (s *Streams) Open(id auth.Identity, write func(context.Context, *Stream)) (*rest.Streamed, error) {
	if !s.take(id.User) {
		return nil, problem.New(http.StatusServiceUnavailable, "too many streams are open").RetryAfter(5 * time.Second)
	}
	return &rest.Streamed{Body: func(hc huma.Context) {
		s.open.Inc()
		defer func() { s.open.Dec(); s.free(id.User) }()
		r, w := humachi.Unwrap(hc)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no")
		out := http.NewResponseController(w)
		ctx, stop := s.Watch(r.Context(), id)
		defer stop()
		write(ctx, &Stream{w: w, out: out, hides: rest.HidesSecrets(id)})
	}}, nil
}

// Watch returns a context for a long answer. It ends when the caller's token expires or no longer grants the same rights, when
// the server closes, and after an hour. stop must be called.
func (s *Streams) Watch(ctx context.Context, id auth.Identity) (watched context.Context, stop func()) {
	ctx, cancel := context.WithTimeout(ctx, lifetime)
	done := make(chan struct{})
	go func() { defer close(done); s.watchRights(ctx, id); cancel() }()
	return ctx, func() { cancel(); <-done }
}

// watchRights returns when the caller's token expires or no longer grants the same rights, when the server closes, or with
// ctx. While Postgres is unavailable, the stream stays open, because it cannot show anything new then.
func (s *Streams) watchRights(ctx context.Context, id auth.Identity) {
	tick := time.NewTicker(s.check)
	defer tick.Stop()
	var expired <-chan time.Time
	if !id.ExpiresAt.IsZero() {
		expiry := time.NewTimer(time.Until(id.ExpiresAt))
		defer expiry.Stop()
		expired = expiry.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.closing:
			return
		case <-expired:
			return
		case <-tick.C:
		}
		asking, cancel := context.WithTimeout(ctx, rest.RequestTimeout)
		now, err := s.accounts.Authenticate(asking, id.Token)
		cancel()
		if errors.Is(err, account.ErrCredentials) {
			return
		}
		if err == nil && (now.Role != id.Role || now.Scope != id.Scope || now.MustChangePassword || !slices.Equal(now.Groups, id.Groups)) {
			return
		}
	}
}

// take reserves a stream. One user cannot take all of them.
func (s *Streams) take(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == maxStreams || s.users[user] == maxUserStreams {
		return false
	}
	s.all++
	s.users[user]++
	return true
}

func (s *Streams) free(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.users[user]--; s.users[user] == 0 {
		delete(s.users, user)
	}
}

// Stream writes server-sent events. It is used by one goroutine.
type Stream struct {
	w     http.ResponseWriter
	out   *http.ResponseController
	buf   bytes.Buffer
	wrote time.Time
	hides bool // the secrets of params, because the caller is a viewer
}

// Event adds an event; id 0 is none. JSON has no line breaks, so the data fits in one line.
func (s *Stream) Event(name string, id int64, data any) {
	if s.hides {
		data = rest.WithoutSecrets(data)
	}
	b, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("api: encode an event: %v", err)) // the data of all streams can be encoded
	}
	if id > 0 {
		fmt.Fprintf(&s.buf, "id: %d\n", id)
	}
	fmt.Fprintf(&s.buf, "event: %s\ndata: %s\n\n", name, b)
}

// Flush sends the added events, or a comment after a long silence. The first Flush always sends, so that the client
// knows that the stream is open.
func (s *Stream) Flush() error {
	if s.buf.Len() == 0 {
		if time.Since(s.wrote) < Beat {
			return nil
		}
		s.buf.WriteString(": still here\n\n")
	}
	_ = s.out.SetWriteDeadline(time.Now().Add(WritePatience))
	if _, err := s.buf.WriteTo(s.w); err != nil {
		return err
	}
	s.wrote = time.Now()
	return s.out.Flush()
}

// Response describes a stream by the names of its events and the types of their data.
func Response(r *rest.Router, events map[string]reflect.Type) map[string]*huma.Response {
	var forms []*huma.Schema
	for _, name := range slices.Sorted(maps.Keys(events)) {
		forms = append(forms, &huma.Schema{Type: huma.TypeObject, Required: []string{"event", "data"}, Properties: map[string]*huma.Schema{
			"event": {Type: huma.TypeString, Enum: []any{name}}, "data": r.Schema(events[name]),
		}})
	}
	return map[string]*huma.Response{"200": {
		Description: "Server-sent events. Each event has one of these names, and its data is JSON in one line",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{OneOf: forms}}},
	}}
}
