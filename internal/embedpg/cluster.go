package embedpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// elsewhere is the location of the cluster if root's Postgres runs as an account that cannot reach the data directory.
// Only root can write there.
const elsewhere = "/var/lib/belfry"

// cluster is the directory of one Postgres, locked by the caller.
type cluster struct {
	base      string // contains the data directory and all other files
	link      string // DataDir/postgres; differs from base only if the cluster is elsewhere
	account   account
	bin       binaries
	running   *os.File // the running lock, until the postmaster has inherited it
	ephemeral bool
}

func (c *cluster) data() string       { return filepath.Join(c.base, "data") }
func (c *cluster) freshData() string  { return filepath.Join(c.base, "data.new") }
func (c *cluster) configFile() string { return filepath.Join(c.base, "postgresql.conf") }
func (c *cluster) hbaFile() string    { return filepath.Join(c.base, "pg_hba.conf") }

// openCluster prepares the cluster under dir for a start: it chooses the account, stops processes that an earlier owner
// left running, finds the binaries, and creates the cluster if there is none.
func openCluster(ctx context.Context, dir string, cfg Config) (_ *cluster, err error) {
	c := &cluster{link: filepath.Join(dir, "postgres"), ephemeral: cfg.Ephemeral}
	defer func() {
		if err != nil {
			c.letGo()
		}
	}()
	if err := c.openBase(); err != nil {
		return nil, err
	}
	major, owner, err := c.existing()
	if err != nil {
		return nil, err
	}
	if c.account, err = chooseAccount(owner, cfg.noNamespaces); err != nil {
		return nil, err
	}
	cfg.Log.Debug("chose an account for Postgres", "mode", string(c.account.mode), "account", c.account.name)
	if err := stopOrphans(ctx, c.data(), cfg.Log); err != nil {
		return nil, err
	}
	if err := c.letAccountIn(owner); err != nil {
		return nil, err
	}
	if c.running, err = c.takeCluster(ctx); err != nil {
		return nil, err
	}
	if c.bin, err = findBinaries(ctx, cfg.BinDir, major, c.downloadDir(), cfg.Log); err != nil {
		return nil, err
	}
	cfg.Log.Debug("found Postgres", "dir", c.bin.dir, "major", c.bin.major)
	if major == 0 {
		if err := c.initialise(ctx, cfg.Log); err != nil {
			return nil, fmt.Errorf("create a Postgres cluster in %s: %w", c.base, err)
		}
	}
	return c, nil
}

// letGo closes this process's copy of the running lock. Copies that a postmaster has inherited keep it locked.
func (c *cluster) letGo() {
	if c.running != nil {
		closeQuietly(c.running)
		c.running = nil
	}
}

func (c *cluster) openBase() error {
	if err := os.Mkdir(c.link, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create the directory for Postgres: %w", err)
	}
	base, err := filepath.EvalSymlinks(c.link)
	if err != nil {
		return fmt.Errorf("find the directory for Postgres: %w", err)
	}
	c.base = base
	return nil
}

// existing returns the major version and the owner of the cluster, or 0 and -1 if there is none.
func (c *cluster) existing() (major, owner int, err error) {
	info, err := os.Lstat(c.data())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, -1, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("inspect the Postgres cluster: %w", err)
	}
	content, err := os.ReadFile(filepath.Join(c.data(), "PG_VERSION"))
	if err != nil {
		return 0, 0, fmt.Errorf("%s is not a Postgres cluster and was not changed: %w", c.data(), err)
	}
	if major, err = strconv.Atoi(strings.TrimSpace(string(content))); err != nil {
		return 0, 0, fmt.Errorf("read the version of the Postgres cluster %s: %w", c.data(), err)
	}
	if owner, err = ownerOf(info); err != nil {
		return 0, 0, err
	}
	return major, owner, nil
}

// letAccountIn makes the cluster's directories reachable for another account than the caller's, and gives it an
// existing cluster.
func (c *cluster) letAccountIn(owner int) error {
	if c.account.mode != asOther {
		return nil
	}
	// The account may pass through to its own files. It owns neither the directory nor the settings in it, so it cannot
	// plant files that root would use.
	if err := os.Chmod(c.base, 0o711); err != nil {
		return fmt.Errorf("make the Postgres cluster reachable: %w", err)
	}
	exists := owner >= 0
	if !c.account.reaches(c.base) {
		if exists {
			return fmt.Errorf("the kernel refuses user namespaces, so Postgres must run as %s, which cannot reach %s: move the data directory to where it can", c.account.name, c.base)
		}
		if err := c.moveElsewhere(); err != nil {
			return err
		}
	}
	if exists && owner != c.account.uid {
		if err := c.account.giveTree(c.data()); err != nil {
			return fmt.Errorf("change the owner of the Postgres cluster to %s: %w", c.account.name, err)
		}
	}
	return nil
}

// moveElsewhere moves the base of a cluster that does not exist yet to a location that every account can reach, and
// leaves a link to it.
func (c *cluster) moveElsewhere() error {
	parent := elsewhere
	if c.ephemeral {
		parent = os.TempDir()
	} else if err := os.MkdirAll(parent, 0o711); err != nil {
		return fmt.Errorf("create a directory for Postgres: %w", err)
	}
	base, err := os.MkdirTemp(parent, "postgres-")
	if err != nil {
		return fmt.Errorf("create a directory for Postgres: %w", err)
	}
	if err := os.Chmod(base, 0o711); err != nil {
		return fmt.Errorf("create a directory for Postgres: %w", err)
	}
	if !c.account.reaches(base) {
		return fmt.Errorf("the kernel refuses user namespaces, so Postgres must run as %s, which can reach neither %s nor %s", c.account.name, c.base, base)
	}
	if err := os.RemoveAll(c.base); err != nil {
		return fmt.Errorf("replace the directory for Postgres: %w", err)
	}
	if err := os.Symlink(base, c.link); err != nil {
		return fmt.Errorf("replace the directory for Postgres: %w", err)
	}
	c.base = base
	return nil
}

// downloadDir returns the user's cache. Another account cannot enter it, and a user without a home has none; then
// downloads are stored next to the cluster.
func (c *cluster) downloadDir() string {
	cache, err := os.UserCacheDir()
	if err != nil || c.account.mode == asOther {
		return filepath.Join(c.base, "download")
	}
	return filepath.Join(cache, "belfry")
}

// initialise creates the cluster in a temporary directory and renames it as the last step, so that an interrupted
// creation is detected and repeated.
func (c *cluster) initialise(ctx context.Context, log *slog.Logger) error {
	began := time.Now()
	fresh := c.freshData()
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	if err := c.account.give(fresh); err != nil {
		return err
	}
	// Locale C keeps the order of text the same on every machine, even after an upgrade of the system's libraries,
	// which would otherwise corrupt indexes.
	err := c.run(ctx, "initdb", "--pgdata="+fresh, "--username="+superuser, "--encoding=UTF8", "--locale=C",
		"--auth-local=trust", "--auth-host=reject", "--no-instructions", "--no-sync")
	if err != nil {
		return err
	}
	if !c.ephemeral {
		if err := c.run(ctx, "initdb", "--pgdata="+fresh, "--sync-only"); err != nil {
			return err
		}
	}
	if err := os.Rename(fresh, c.data()); err != nil {
		return err
	}
	if !c.ephemeral {
		if err := syncDir(c.base); err != nil {
			return err
		}
	}
	log.Info("created a Postgres cluster", "dir", c.data(), "major", c.bin.major, "took", time.Since(began).String())
	return nil
}

// run executes one of the programs and waits for it.
func (c *cluster) run(ctx context.Context, program string, args ...string) error {
	// As in supervise, the death signal is bound to this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := c.account.command(syscall.SIGKILL, c.bin.path(program), args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = immediateTimeout // a child of the program may keep its output open
	if err := cmd.Start(); err != nil {
		return err
	}
	release := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer release()
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s ended with %w: %s", program, err, bytes.TrimSpace(output.Bytes()))
	}
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// remove deletes the cluster and all related files.
func (c *cluster) remove(log *slog.Logger) {
	if err := errors.Join(os.RemoveAll(c.base), os.RemoveAll(c.link)); err != nil {
		log.Warn("cannot remove an ephemeral Postgres cluster, its files remain", "err", err)
	}
}
