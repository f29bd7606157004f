package store_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// cost is what a store has sent to Postgres: statements, and how often it waited for their answers.
type cost struct{ statements, trips int }

// meter is a proxy in front of Postgres that counts what passes.
type meter struct {
	mu   sync.Mutex
	sent cost
}

// meterAt starts a meter in front of a database and returns its URL of that database.
func meterAt(t *testing.T, database string) (m *meter, through string) {
	t.Helper()
	to, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m = &meter{}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			network, address := pgconn.NetworkAddress(to.Host, to.Port)
			server, err := net.Dial(network, address)
			if err != nil {
				t.Error(err)
				client.Close()
				return
			}
			all.Go(func() {
				io.Copy(client, server) //nolint:errcheck // the end of the connection
				client.Close()
			})
			all.Go(func() {
				if err := m.pass(client, server); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				server.Close()
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	u := url.URL{Scheme: "postgres", User: url.UserPassword(to.User, to.Password), Host: l.Addr().String(), Path: to.Database, RawQuery: "sslmode=disable"}
	return m, u.String()
}

// pass copies the messages of a client, each of which begins with its type and its length, and counts those that cost something.
func (m *meter) pass(client, server net.Conn) error {
	r := bufio.NewReader(client)
	head := make([]byte, 5)
	for started := false; ; started = true {
		head := head[:5]
		if !started {
			head = head[:4] // the first message has no type
		}
		if _, err := io.ReadFull(r, head); err != nil {
			return err
		}
		if started {
			m.count(head[0])
		}
		if _, err := server.Write(head); err != nil {
			return err
		}
		if _, err := io.CopyN(server, r, int64(binary.BigEndian.Uint32(head[len(head)-4:]))-4); err != nil {
			return err
		}
	}
}

func (m *meter) count(kind byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch kind {
	case 'Q': // Query
		m.sent.statements++
		m.sent.trips++
	case 'E': // Execute
		m.sent.statements++
	case 'S': // Sync
		m.sent.trips++
	}
}

// of returns what f costs.
func (m *meter) of(t *testing.T, f func() error) cost {
	t.Helper()
	read := func() cost {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.sent
	}
	before := read()
	if err := f(); err != nil {
		t.Fatal(err)
	}
	after := read()
	return cost{after.statements - before.statements, after.trips - before.trips}
}

// The statements and round trips of a batch do not depend on its size. Most batches are small, so these are most of the cost of a run. A
// change of a figure is no fault, but must be meant.
func TestCostOfABatch(t *testing.T) {
	m, through := meterAt(t, pgtest.Database(t, store.Migrate))
	s, _ := openAt(t, through, 1)
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	child := create(t, s, "child")
	for _, c := range []struct {
		what  string
		edit  func(*domain.JobSpec)
		plain bool
		runs  int
		want  lifeCost
	}{
		{"a run of a plain job", parallel, true, 1, lifeCost{cost{8, 5}, cost{1, 1}, cost{3, 2}, cost{1, 1}}},
		{"runs of a plain job", parallel, true, 50, lifeCost{cost{8, 5}, cost{1, 1}, cost{3, 2}, cost{1, 1}}},
		{"runs of a job with children", func(sp *domain.JobSpec) {
			parallel(sp)
			sp.Children = []domain.Child{{JobID: child.ID, On: domain.OnSuccess}}
		}, false, 50, lifeCost{cost{8, 5}, cost{1, 1}, cost{3, 2}, cost{5, 4}}},
		{"a run of a serial job", func(*domain.JobSpec) {}, false, 1, lifeCost{cost{8, 5}, cost{7, 5}, cost{3, 2}, cost{8, 6}}},
	} {
		var got lifeCost
		for round := range 3 { // a statement that is new to its connection costs another round trip
			job := create(t, s, fmt.Sprint(c.what, round), everySecond, func(sp *domain.JobSpec) { sp.Misfire = domain.MisfireFireAll }, c.edit) // after a stall, nothing is missed
			got.plan = m.of(t, func() (err error) { _, err = s.PlanDue(t.Context(), 100, false); return err })
			exec(t, s, `DELETE FROM runs_live`)
			exec(t, s, `DELETE FROM job_due`)
			exec(t, s, `INSERT INTO runs_live (id, job_id, job_version, group_name, cause, plain, due_at)
				SELECT overlay(first_run_id(now())::text placing substr(md5(random()::text), 1, 12) from 25)::uuid, $1, 1, 'g', 'manual', $2, now()
				  FROM generate_series(1, $3::int)`, job.ID, c.plain, c.runs)
			in := admissions(t, s, claim(t, s))
			var out store.Admitted
			got.admit = m.of(t, func() (err error) { out, err = s.Admit(t.Context(), in); return err })
			if len(out.Bound) != c.runs {
				t.Fatalf("%s: %d are bound", c.what, len(out.Bound))
			}
			var started []engine.Started
			var ended []engine.Ended
			for _, r := range out.Bound {
				started = append(started, engine.Started{RunID: r.ID, Attempt: 1, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, StartedAt: s.Now()})
				ended = append(ended, result(s, r, domain.OutcomeSucceeded))
			}
			got.mark = m.of(t, func() (err error) { _, err = s.MarkRunning(t.Context(), started); return err })
			got.settle = m.of(t, func() (err error) { _, err = s.Settle(t.Context(), ended); return err })
			if n := query[int](t, s, `SELECT count(*) FROM runs_live`); n != 0 {
				t.Fatalf("%s: %d are not settled", c.what, n)
			}
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// lifeCost is the cost of each step in the life of a batch of runs.
type lifeCost struct{ plan, admit, mark, settle cost }
