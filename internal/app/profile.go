package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/belfryhq/belfry/internal/config"
)

// start runs a role. The first line of its log says which build of Belfry it is.
func (a *App) start(ctx context.Context, role string, c config.Profiling, l config.Log, run func() error) error {
	log := newLog(a.Stderr, l)
	log.InfoContext(ctx, "starting", "role", role, "version", a.Build.Version, "commit", a.Build.Commit)
	return a.ended(l, a.profiled(ctx, c, l, run))
}

// profiled calls run, and meanwhile serves Go's profiler if the settings name an address. The profiler has an address of
// its own, because it gives access to the process's memory. It starts before run does anything, so that it also shows a
// process that hangs at its start or at its end.
func (a *App) profiled(ctx context.Context, c config.Profiling, l config.Log, run func() error) error {
	if c.Pprof == "" {
		return run()
	}
	ln, err := net.Listen("tcp", c.Pprof)
	if err != nil {
		return fmt.Errorf("listen on --pprof %s: %w", c.Pprof, err)
	}
	if at, ok := ln.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		newLog(a.Stderr, l).WarnContext(ctx, "the profiler is not on a loopback address, whoever reaches it can read parts of this process's memory", "server", ln.Addr().String())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second} // a profile takes as long as its request says
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(ln) // ends by Close; the role does not depend on it
	}()
	defer func() { s.Close(); <-served }()
	fmt.Fprintf(a.Stdout, "pprof: http://%s/debug/pprof/\n", ln.Addr())
	return run()
}
