// Package console is the HTTP server of Belfry. It serves the REST API and the web console.
//
// A console stores nothing itself, so any number of consoles can serve the same Postgres and NATS.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/belfryhq/belfry/console/api"
	"github.com/belfryhq/belfry/console/ui"
)

// Config configures a console.
type Config struct {
	API      api.Config
	Listener net.Listener // Run serves and closes it; if it is nil, Run must not be called
	// ShutdownTimeout bounds how long open requests may take after Run's context has ended; 0: 10 s. Streams end at once.
	ShutdownTimeout time.Duration
	// TrustedProxies are the proxies whose X-Forwarded-For header names the client. In requests from other addresses the
	// header is ignored.
	TrustedProxies []netip.Prefix
	// Around, if not nil, returns the REST API with something added, such as spans of its requests.
	Around func(http.Handler) http.Handler
}

// Timeouts and the size limit keep slow clients from holding connections. Streams set their own deadlines.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 20 * time.Second
	writeTimeout      = 60 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
)

// Server is the console's HTTP server.
type Server struct {
	api      *api.API
	handler  http.Handler // the API and the web console
	listener net.Listener
	shutdown time.Duration
	log      *slog.Logger
}

// New makes a Server. The error names every part that the configuration lacks.
func New(c Config) (*Server, error) {
	if err := validate(c); err != nil {
		return nil, err
	}
	s := &Server{api: api.New(c.API), listener: c.Listener, shutdown: c.ShutdownTimeout, log: c.API.Log}
	s.handler = trustProxies(c.TrustedProxies, harden(split(around(s.api, c.Around), ui.Handler()), c.API.SecureCookies))
	if s.shutdown == 0 {
		s.shutdown = 10 * time.Second
	}
	return s, nil
}

func validate(c Config) error {
	var faults []error
	for _, part := range []struct {
		name    string
		missing bool
	}{
		{"Jobs", c.API.Jobs == nil}, {"Calendars", c.API.Calendars == nil}, {"Pauses", c.API.Pauses == nil},
		{"Fleet", c.API.Fleet == nil}, {"Authenticator", c.API.Authenticator == nil},
		{"Users", c.API.Users == nil}, {"Sessions", c.API.Sessions == nil}, {"Tokens", c.API.Tokens == nil},
		{"Groups", c.API.Groups == nil}, {"AuditLog", c.API.AuditLog == nil}, {"Idempotency", c.API.Idempotency == nil},
		{"Views", c.API.Views == nil}, {"Registerer", c.API.Registerer == nil}, {"Gatherer", c.API.Gatherer == nil},
		{"Log", c.API.Log == nil},
	} {
		if part.missing {
			faults = append(faults, errors.New("console: API."+part.name+" is missing"))
		}
	}
	return errors.Join(faults...)
}

// around returns h, with what the caller adds to it.
func around(h http.Handler, add func(http.Handler) http.Handler) http.Handler {
	if add == nil {
		return h
	}
	return add(h)
}

// Handler returns the server's HTTP handler: the API and the web console.
func (s *Server) Handler() http.Handler { return s.handler }

// split sends GET and HEAD requests for paths outside the API to the web console, and all other requests to the API. The
// web console needs no credentials, because its files are the same for everyone and contain no data.
func split(rest, console http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && !api.Owns(r.URL.Path) {
			console.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})
}

// Run serves until ctx ends. Then it accepts no more connections, ends the streams, lets the other requests finish, and
// returns nil. An error means that the listener failed. Call Run once.
func (s *Server) Run(ctx context.Context) error {
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	s.api.CloseStreams()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.shutdown)
	defer cancel()
	if err := server.Shutdown(stop); err != nil {
		s.log.Warn("requests did not finish before the shutdown timeout, closing their connections", "err", err)
		server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}
