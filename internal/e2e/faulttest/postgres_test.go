//go:build unix

package faulttest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/e2e/checker"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/embedpg"
	"github.com/belfryhq/belfry/internal/pgtest"
)

// postgres is Postgres: one server, or a primary and a standby that has each commit before the primary acknowledges it.
type postgres struct {
	t     testing.TB
	w     *world
	bin   string // as in embedpg.Config
	clock *pgtest.Clock

	mu      sync.Mutex // held during a fault
	sides   []*side
	primary int             // guarded by mu
	clocks  []checker.Clock // guarded by mu; how far the database's clock is ahead, since when
}

// side is one of the servers.
type side struct {
	dir    string
	server *embedpg.Server
	socket string
}

// settings returns the settings of a server. Without fsync, commits survive a kill of Postgres, but not a crash of the machine.
func (p *postgres) settings(i int) map[string]string {
	s := map[string]string{"fsync": "off", "full_page_writes": "off"}
	if p.w.setup.disks {
		s["max_wal_size"], s["min_wal_size"] = "64MB", "32MB"
	}
	if len(p.sides) > 1 {
		s["max_wal_senders"], s["wal_level"], s["wal_keep_size"] = "4", "replica", "512MB"
		if other := p.sides[1-i]; other.socket != "" {
			s["primary_conninfo"] = "host=" + filepath.Dir(other.socket) + " port=" + portOf(other.socket) + " user=belfry"
		}
	}
	return s
}

func portOf(socket string) string { return socket[strings.LastIndex(socket, ".")+1:] }

// start starts a server on its data directory.
func (p *postgres) start(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	s := p.sides[i]
	server, err := embedpg.Start(ctx, embedpg.Config{DataDir: s.dir, BinDir: p.bin, Settings: p.settings(i)})
	if err != nil {
		return fmt.Errorf("start Postgres: %w", err)
	}
	u, err := url.Parse(server.URL())
	if err != nil {
		return err
	}
	socket := filepath.Join(u.Query().Get("host"), ".s.PGSQL."+u.Query().Get("port"))
	if s.socket != "" && s.socket != socket {
		return fmt.Errorf("the socket of Postgres has moved from %s to %s", s.socket, socket)
	}
	s.server, s.socket = server, socket
	return nil
}

func (p *postgres) mustStart(i int) {
	p.t.Helper()
	if err := p.start(i); err != nil {
		p.t.Fatal(err)
	}
}

// startPostgres starts the servers that a test needs.
func startPostgres(w *world) *postgres {
	w.t.Helper()
	p := &postgres{t: w.t, w: w, sides: []*side{{dir: filepath.Join(w.dir, "pg")}}}
	if w.setup.clock {
		p.bin, p.clock = pgtest.WithClock(w.t)
	}
	if w.setup.disks {
		if why := rig.SmallDisk(w.t, p.sides[0].dir, "700m"); why != "" {
			w.t.Skip("NOT COVERED: full disks: " + why)
		}
	}
	if w.setup.standby {
		p.sides = append(p.sides, &side{dir: filepath.Join(w.dir, "pg2")})
	}
	w.t.Cleanup(p.stop)
	p.mustStart(0)
	if w.setup.standby {
		p.rebuild(1)
	}
	return p
}

func (p *postgres) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	for _, s := range p.sides {
		if s.server != nil {
			_ = s.server.Stop(ctx) // its data is not needed any more
		}
	}
}

// url returns the address of Postgres by its sockets. A client chooses the server that accepts writes.
func (p *postgres) url() string {
	if len(p.sides) == 1 {
		return p.sides[0].server.URL()
	}
	var hosts, ports []string
	for _, s := range p.sides {
		hosts, ports = append(hosts, filepath.Dir(s.socket)), append(ports, portOf(s.socket))
	}
	return "postgres:///belfry?" + url.Values{
		"host": {strings.Join(hosts, ",")}, "port": {strings.Join(ports, ",")}, "user": {"belfry"}, "sslmode": {"disable"},
		"target_session_attrs": {"read-write"},
	}.Encode()
}

// through returns the address of Postgres through a member's links.
func (p *postgres) through(links []*rig.Proxy) string {
	var hosts []string
	for _, l := range links {
		hosts = append(hosts, l.Addr())
	}
	return "postgres://belfry@" + strings.Join(hosts, ",") + "/belfry?sslmode=disable&target_session_attrs=read-write"
}

// kill sends SIGKILL to the postmaster of a server and waits for its end.
func (p *postgres) kill(i int) error {
	s := p.sides[i]
	content, err := os.ReadFile(filepath.Join(s.dir, "postgres", "data", "postmaster.pid"))
	first, _, _ := strings.Cut(string(content), "\n")
	pid, noNumber := strconv.Atoi(first)
	if err != nil || noNumber != nil || pid < 2 {
		return fmt.Errorf("the pid file of Postgres says %q (%v)", first, err)
	}
	if process, err := os.FindProcess(pid); err == nil {
		_ = process.Kill()
	}
	<-s.server.Done()
	return nil
}

// down ends a server that may have been killed.
func (p *postgres) down(i int) {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	_ = p.sides[i].server.Stop(ctx) // returns an error after a kill
}

// exec runs statements on one server, in one session.
func (p *postgres) exec(i int, do func(ctx context.Context, c *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	c, err := pgx.Connect(ctx, p.sides[i].server.URL())
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	return do(ctx, c)
}

func (p *postgres) mustExec(i int, do func(ctx context.Context, c *pgx.Conn) error) {
	p.t.Helper()
	if err := p.exec(i, do); err != nil {
		p.t.Fatal(err)
	}
}

// rebuild makes a server, which is down, a standby of the other one. It copies the files of the running primary. From then on, the
// primary acknowledges a commit when the standby has it.
func (p *postgres) rebuild(i int) {
	p.t.Helper()
	primary, standby := p.sides[1-i], p.sides[i]
	from, to := filepath.Join(primary.dir, "postgres"), filepath.Join(standby.dir, "postgres")
	if err := os.RemoveAll(to); err != nil {
		p.t.Fatal(err)
	}
	if err := os.MkdirAll(standby.dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	p.mustExec(1-i, func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, `SELECT pg_backup_start('standby', true)`); err != nil {
			return err
		}
		// cp fails if a file vanishes meanwhile, which does not matter.
		said, _ := exec.Command("cp", "-a", from, to).CombinedOutput()
		var label string
		if err := c.QueryRow(ctx, `SELECT labelfile FROM pg_backup_stop(false)`).Scan(&label); err != nil {
			return err
		}
		data := filepath.Join(to, "data")
		for _, name := range []string{"postmaster.pid", "postgresql.auto.conf"} {
			_ = os.Remove(filepath.Join(data, name)) // of the primary
		}
		for name, content := range map[string]string{"standby.signal": "", "backup_label": label} {
			// A copy has the owner of the original.
			file := filepath.Join(data, name)
			if out, err := exec.Command("cp", "-a", filepath.Join(data, "PG_VERSION"), file).CombinedOutput(); err != nil {
				return fmt.Errorf("%s, %s: %w", said, out, err)
			}
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				return err
			}
		}
		return nil
	})
	p.mustStart(i)
	p.mustExec(1-i, func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, `ALTER SYSTEM SET synchronous_standby_names = '*'`); err != nil {
			return err
		}
		_, err := c.Exec(ctx, `SELECT pg_reload_conf()`)
		return err
	})
	rig.Eventually(p.t, rig.Patience, "the standby has all commits", func() bool {
		n := 0
		err := p.exec(1-i, func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`).Scan(&n)
		})
		return err == nil && n == 1
	})
}

// failOver kills the primary and promotes the standby, which has all acknowledged commits.
func (p *postgres) failOver() error {
	old := p.primary
	if err := p.kill(old); err != nil {
		return err
	}
	p.down(old)
	if err := p.exec(1-old, func(ctx context.Context, c *pgx.Conn) error {
		var promoted bool
		if err := c.QueryRow(ctx, `SELECT pg_promote(true)`).Scan(&promoted); err != nil || !promoted {
			return fmt.Errorf("the standby was not promoted: %w", err)
		}
		return nil
	}); err != nil {
		return err
	}
	p.primary = 1 - old
	return nil
}

// recover waits until the primary accepts writes again. It starts the primary if it has ended.
func (p *postgres) recover() error {
	var err error
	for deadline := time.Now().Add(rig.Patience); time.Now().Before(deadline); <-time.After(200 * time.Millisecond) {
		select {
		case <-p.sides[p.primary].server.Done():
			p.down(p.primary)
			if err = p.start(p.primary); err != nil {
				continue
			}
		default:
		}
		if err = p.exec(p.primary, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, `SELECT pg_logical_emit_message(true, 'faulttest', repeat('x', 100000))`)
			return err
		}); err == nil {
			return nil
		}
	}
	return fmt.Errorf("after a full disk, Postgres accepts no writes: %w", err)
}

// readClock notes how far the database's clock is ahead of the machine's since an instant.
func (p *postgres) readClock(since time.Time) {
	p.t.Helper()
	var theirs time.Time
	var before, after time.Time
	p.mustExec(p.primary, func(ctx context.Context, c *pgx.Conn) error {
		for range 5 { // the fastest answer is the best measurement
			begin := time.Now()
			var now time.Time
			if err := c.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
				return err
			}
			if end := time.Now(); before.IsZero() || end.Sub(begin) < after.Sub(before) {
				theirs, before, after = now, begin, end
			}
		}
		return nil
	})
	ahead := theirs.Sub(before.Add(after.Sub(before) / 2)).Round(time.Millisecond)
	p.clocks = append(p.clocks, checker.Clock{From: since, Ahead: ahead})
}
