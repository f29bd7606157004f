package store_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// relay forwards connections to Postgres. When it is silent, it reads data and discards it, but keeps the connections open,
// like a pooler whose server has vanished.
type relay struct {
	url    string
	silent atomic.Bool
}

func newRelay(t *testing.T, database string) *relay {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	network, target := "tcp", u.Host
	if dir := q.Get("host"); dir != "" {
		port := "5432"
		if p := q.Get("port"); p != "" {
			port = p
		}
		network, target = "unix", filepath.Join(dir, ".s.PGSQL."+port)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	u.Host, u.RawQuery = ln.Addr().String(), q.Encode()
	r := &relay{url: u.String()}
	var mu sync.Mutex
	var open []net.Conn // guarded by mu
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial(network, target)
			if err != nil {
				near.Close()
				continue
			}
			mu.Lock()
			open = append(open, near, far)
			mu.Unlock()
			serving.Go(func() { r.copy(far, near) })
			serving.Go(func() { r.copy(near, far) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return r
}

func (r *relay) copy(dst, src net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if err != nil {
			if !r.silent.Load() {
				dst.Close()
			}
			return
		}
		if r.silent.Load() {
			continue
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			_, _ = io.Copy(io.Discard, src) // until src is closed
			return
		}
	}
}

// When the server stops answering, all waits end: in the middle of a transaction, in a single statement, and on the
// listening connection.
func TestSilentServerIsGivenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: calls to a silent server, which must reach their timeouts; -short leaves it out")
	}
	t.Parallel()
	database := pgtest.Database(t, store.Migrate)
	direct, _ := openAt(t, database)
	exec(t, direct, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	job := create(t, direct, "a", parallel)
	link := newRelay(t, database)
	s, _ := openAt(t, link.url)
	run := start(t, s, job.ID)

	tx := pgtest.Begin(t, direct.Pool())
	if _, err := tx.Exec(t.Context(), `LOCK runs_live IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	bounded, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var asking errgroup.Group
	given := func(what string, f func() error) {
		asking.Go(func() error {
			if err := f(); domain.CodeOf(err) != domain.Unavailable || bounded.Err() != nil {
				t.Errorf("%s ended with %v, after a minute: %t", what, err, bounded.Err() != nil)
			}
			return nil
		})
	}
	given("a transaction", func() error {
		_, err := s.Settle(bounded, []engine.Ended{result(s, run, domain.OutcomeSucceeded)})
		return err
	})
	given("a statement", func() error {
		_, err := s.Silent(bounded, []string{"g"}, 0, 10)
		return err
	})
	listening := make(chan struct{}, 1)
	given("listening", func() error { return s.Listen(bounded, func() { listening <- struct{}{} }) })
	<-listening
	waitUntil(t, func() bool {
		return query[int](t, direct, `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'runs_live'::regclass`) >= 2
	})
	link.silent.Store(true)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := asking.Wait(); err != nil {
		t.Fatal(err)
	}
}
