package inbound

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

// Callers says who may speak for which groups. *directory.Directory documents the methods.
type Callers interface {
	Speaker(ctx context.Context, app, token string, source netip.Addr) (gateway.Group, error)
	Speaks(token string, source netip.Addr) ([]string, error)
}

// Addresses keeps the registered addresses.
type Addresses interface {
	// Register records a registration, and returns after it is durable.
	Register(ctx context.Context, r gateway.Registration) error
	// Leave records that an executor stops.
	Leave(ctx context.Context, group, instance string) error
	// Check returns an error if the IP address in an address may not be reached for the group. It is not called for names.
	Check(group string, to netip.AddrPort) error
}

// Results keeps the ends of runs.
type Results interface {
	// Finish stores the ends that a caller has reported for runs of these groups, and returns after they are durable. It decides what becomes of ends
	// that belong to no run.
	Finish(ctx context.Context, groups []string, ends []gateway.End) error
	// Unusable keeps a callback that cannot be read for people.
	Unusable(ctx context.Context, groups []string, item []byte, why error)
}

// The limits of requests.
const (
	maxHeader      = 16 << 10
	headerTime     = 5 * time.Second
	smallTime      = 10 * time.Second // for a registration, and for a client to take an answer
	stallTime      = 5 * time.Second  // without a byte of a body of callbacks
	callbackTime   = 2 * time.Minute  // for a whole body
	idleTime       = 75 * time.Second // executors send every 10 to 30 s
	batchItems     = 500
	batchBytes     = 1 << 20
	readers        = 16 // bodies of callbacks that are read at the same time
	readersOfOne   = 4  // of them, those of callers that speak for the same groups
	readerPatience = 2 * time.Second
	refusalsEvery  = 10 * time.Second // a line of the log about a refused caller
)

// Server answers executors. It is safe for concurrent use.
type Server struct {
	callers   Callers
	addresses Addresses
	results   Results
	log       *slog.Logger
	readers   chan struct{}

	mu      sync.Mutex
	reading map[string]int // how many bodies are read for each set of groups; no zeros
	refused time.Time      // when a refused caller was last logged

	header, small, stall time.Duration
	most                 int64 // of a body of callbacks, in bytes
}

// New returns a Server.
func New(c Callers, a Addresses, r Results, log *slog.Logger) *Server {
	return &Server{callers: c, addresses: a, results: r, log: log, readers: make(chan struct{}, readers), reading: make(map[string]int), header: headerTime, small: smallTime, stall: stallTime, most: protocol.MaxCallbacks}
}

// HTTP returns an HTTP server with the limits of this package. The caller serves it on a listener of Limit.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler: s, ReadHeaderTimeout: s.header, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // clients cause these lines
	}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w) // a server of package net/http supports deadlines
	_ = control.SetReadDeadline(time.Now().Add(s.small))
	_ = control.SetWriteDeadline(time.Now().Add(callbackTime + s.small))
	status, err := s.judge(w, r)
	_ = control.SetWriteDeadline(time.Now().Add(s.small)) // some clients never read
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	answer(w, err)
}

// judge serves a request, and returns the HTTP status and what became of it.
func (s *Server) judge(w http.ResponseWriter, r *http.Request) (status int, err error) {
	endpoint, ok := protocol.EndpointOf(r.URL.Path)
	source, err := netip.ParseAddrPort(r.RemoteAddr)
	switch {
	case err != nil:
		return http.StatusOK, errors.New("the address of the caller cannot be read")
	case !ok && protocol.IsAdminAPI(r.URL.Path):
		return http.StatusOK, errAdminAPI
	case !ok:
		return http.StatusNotFound, errNoPath
	case r.Method != http.MethodPost:
		return http.StatusMethodNotAllowed, errors.New("executors send POST requests")
	}
	return http.StatusOK, s.serve(w, r, endpoint, source.Addr())
}

// serve serves an endpoint. It reads no body of a caller that speaks for no group.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, endpoint protocol.Endpoint, source netip.Addr) error {
	groups, err := s.callers.Speaks(r.Header.Get(protocol.HeaderToken), source)
	switch {
	case err != nil:
		s.logRefusal(r.Context(), source, err)
		return err
	case endpoint == protocol.EndpointCallback:
		return s.callback(w, r, groups)
	}
	return s.register(w, r, endpoint, source)
}

// logRefusal logs that a caller was refused. Anyone can cause this, so it logs only one of many refusals.
func (s *Server) logRefusal(ctx context.Context, source netip.Addr, err error) {
	s.mu.Lock()
	now := time.Now()
	silent := now.Sub(s.refused) < refusalsEvery
	if !silent {
		s.refused = now
	}
	s.mu.Unlock()
	if !silent {
		s.log.WarnContext(ctx, "refused an executor, it gets no runs and its callbacks are not stored", "remote", source, "err", err)
	}
}

var (
	errAdminAPI = errors.New("this is a Belfry gateway for executors of XXL-JOB; it does not have the admin's API. Belfry's own API is at /api/v1 of its console; " +
		"see https://github.com/belfryhq/belfry/blob/main/docs/xxl-job.md")
	errNoPath = errors.New("this is a Belfry gateway for executors of XXL-JOB; it serves /api/registry, /api/registryRemove and /api/callback")
)

// answer writes what became of a request. Errors that are not meant for callers are not shown to them.
func answer(w http.ResponseWriter, err error) {
	code, text := protocol.CodeOK, ""
	if err != nil {
		code, text = protocol.CodeFailed, err.Error()
		if de := (*domain.Error)(nil); errors.As(err, &de) {
			if text = de.Message; de.Code == domain.Internal || de.Code == domain.Unavailable {
				text = "the gateway cannot store this at the moment; try again"
			}
		}
	}
	//nolint:gosec // the answer is JSON, and no browser reads it as a page
	_, _ = w.Write(protocol.AppendReply(nil, code, text)) // the caller has gone, or it reads the answer
}

// register serves /registry and /registryRemove.
func (s *Server) register(w http.ResponseWriter, r *http.Request, endpoint protocol.Endpoint, source netip.Addr) error {
	ctx, cancel := context.WithTimeout(r.Context(), s.small)
	defer cancel()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, protocol.MaxRegistration))
	if err != nil {
		return errors.New("the body is too long, or came too slowly")
	}
	given, err := protocol.DecodeRegistration(body)
	if err != nil {
		return err
	}
	group, err := s.callers.Speaker(ctx, given.App, r.Header.Get(protocol.HeaderToken), source)
	if err != nil {
		s.logRefusal(ctx, source, err)
		return err
	}
	address, err := protocol.ParseAddress(given.Address)
	if err != nil {
		return err
	}
	if endpoint == protocol.EndpointRemove {
		return s.addresses.Leave(ctx, group.Name, address.Instance())
	}
	if to, ok := address.IP(); ok {
		if err := s.addresses.Check(group.Name, to); err != nil {
			s.log.WarnContext(ctx, "an executor registered an address that may not be reached, and was refused", "group", group.Name, "url", address.String(), "remote", source, "err", err)
			return err
		}
	}
	agent := r.UserAgent()
	return s.addresses.Register(ctx, gateway.Registration{
		Group: group.Name, Instance: address.Instance(), URL: address.String(), Source: source.Unmap(), Kind: string(protocol.KindOf(agent)),
		Agent: protocol.Clip(agent, 200), BootID: rand.Text(),
	})
}

// callback serves /callback.
func (s *Server) callback(w http.ResponseWriter, r *http.Request, groups []string) error {
	ctx, cancel := context.WithTimeout(r.Context(), callbackTime)
	defer cancel()
	done, ok := s.begin(ctx, strings.Join(groups, " "))
	if !ok {
		return errors.New("the gateway reads too many callbacks at the moment; try again")
	}
	defer done()
	body := &steady{r: http.MaxBytesReader(w, r.Body, s.most), control: http.NewResponseController(w), stall: s.stall, until: time.Now().Add(callbackTime)}
	return s.store(ctx, groups, body)
}

// begin takes one of the places for bodies of callbacks, and returns how to give it back.
func (s *Server) begin(ctx context.Context, groups string) (done func(), ok bool) {
	s.mu.Lock()
	if ok = s.reading[groups] < readersOfOne; ok {
		s.reading[groups]++
	}
	s.mu.Unlock()
	if !ok {
		return nil, false
	}
	release := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.reading[groups]--; s.reading[groups] == 0 {
			delete(s.reading, groups)
		}
	}
	patience := time.NewTimer(readerPatience)
	defer patience.Stop()
	select {
	case s.readers <- struct{}{}:
		return func() { <-s.readers; release() }, true
	case <-patience.C:
	case <-ctx.Done():
	}
	release()
	return nil, false
}

// store stores the callbacks of a body in batches.
func (s *Server) store(ctx context.Context, groups []string, body io.Reader) error {
	var ends []gateway.End
	bytes := 0
	flush := func() error {
		if len(ends) == 0 {
			return nil
		}
		err := s.results.Finish(ctx, groups, ends)
		ends, bytes = ends[:0], 0
		return err
	}
	for c, err := range protocol.Callbacks(body) {
		var bad *protocol.ItemError
		switch {
		case errors.As(err, &bad):
			s.results.Unusable(ctx, groups, bad.Item, bad)
			continue
		case err != nil:
			return errors.Join(flush(), err)
		}
		if ends, bytes = append(ends, EndOf(c)), bytes+len(c.Message); len(ends) < batchItems && bytes < batchBytes {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return flush()
}

// steady reads a body that may be long, and gives up if the client stalls.
type steady struct {
	r       io.Reader
	control *http.ResponseController
	stall   time.Duration
	until   time.Time
}

func (s *steady) Read(b []byte) (int, error) {
	deadline := time.Now().Add(s.stall)
	if deadline.After(s.until) {
		deadline = s.until
	}
	_ = s.control.SetReadDeadline(deadline) // a server of package net/http supports it
	return s.r.Read(b)
}
