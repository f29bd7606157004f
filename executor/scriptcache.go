package executor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// The limits of the script cache on disk. When they are exceeded, the least recently used scripts are deleted. Belfry
// sends them again when they are needed.
const (
	scriptCacheBytes = 64 << 20
	scriptCacheFiles = 4096
	maxScriptBytes   = 512 << 10 // bound of one script; Belfry accepts half of it
)

var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

func validDigest(s string) bool { return digest.MatchString(s) }

// scriptCache keeps the code of scripts on disk, by digest, for the current process and later processes of the
// instance. Each read checks the code against its digest, because scripts run as the user who owns the files and could
// change them.
type scriptCache struct {
	dir string
	log *slog.Logger

	mu      sync.Mutex // held for work in memory only
	held    map[string]*heldScript
	bytes   int64
	uses    int64
	awaited map[string]*arrival
	spare   map[string][]byte // the last code that could not be written to disk
}

type heldScript struct {
	size int64
	used int64 // a use counter; higher means later
}

// arrival is code that attempts are waiting for.
type arrival struct {
	waiting int
	come    chan struct{} // closed when code is set
	code    []byte
}

// openScripts opens the cache in a directory and creates the directory if needed.
func openScripts(dir string, log *slog.Logger) (*scriptCache, error) {
	c := &scriptCache{dir: dir, log: log, held: make(map[string]*heldScript), awaited: make(map[string]*arrival)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the cache of scripts: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // the directory may have been created with other permissions
		return nil, fmt.Errorf("set the permissions of the cache of scripts: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the cache of scripts: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !validDigest(e.Name()) || !info.Mode().IsRegular() {
			_ = os.RemoveAll(filepath.Join(dir, e.Name())) // for example a file that a dying process had not finished
			continue
		}
		c.held[e.Name()] = &heldScript{size: info.Size()}
		c.bytes += info.Size()
	}
	c.evict()
	return c, nil
}

// has reports whether the cache has the code. The file may still turn out to be invalid.
func (c *scriptCache) has(sha string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[sha] != nil || c.spare[sha] != nil
}

// await returns the code of a digest. It waits up to d for the code to arrive and returns early if stop is closed.
func (c *scriptCache) await(sha string, stop <-chan struct{}, d time.Duration) (code []byte, ok bool) {
	c.mu.Lock()
	if code := c.spare[sha]; code != nil {
		c.mu.Unlock()
		return code, true
	}
	if c.held[sha] != nil {
		c.mu.Unlock()
		return c.read(sha) // if the file is invalid, no one asked Belfry for the code, so waiting would not help
	}
	a := c.awaited[sha]
	if a == nil {
		a = &arrival{come: make(chan struct{})}
		c.awaited[sha] = a
	}
	a.waiting++
	c.mu.Unlock()

	patience := time.NewTimer(d)
	defer patience.Stop()
	select {
	case <-a.come:
	case <-stop:
	case <-patience.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.waiting--; a.waiting == 0 && c.awaited[sha] == a {
		delete(c.awaited, sha)
	}
	return a.code, a.code != nil
}

// read returns the code of a digest if the file matches the digest. Otherwise it deletes the file.
func (c *scriptCache) read(sha string) (code []byte, ok bool) {
	c.mu.Lock()
	h := c.held[sha]
	if h != nil {
		c.uses++
		h.used = c.uses
	}
	c.mu.Unlock()
	if h == nil {
		return nil, false
	}
	code, err := os.ReadFile(filepath.Join(c.dir, sha))
	if err == nil && sumOf(code) == sha {
		return code, true
	}
	c.log.Warn("a cached script does not match its digest, requesting it again", "sha256", sha, "err", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[sha] == h {
		c.drop(sha)
	}
	return nil, false
}

// put accepts code that Belfry sent, passes it to the waiting attempts, and stores it.
func (c *scriptCache) put(sha string, code []byte) error {
	switch {
	case len(code) == 0 || len(code) > maxScriptBytes:
		return fmt.Errorf("a script of %d bytes; 1 to %d are allowed", len(code), maxScriptBytes)
	case sumOf(code) != sha:
		return errors.New("the code does not match its sha256")
	}
	err := c.write(sha, code)
	if err != nil {
		c.log.Warn("cannot write a script to the cache, it is requested again when it is needed", "sha256", sha, "err", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.uses++
		if c.held[sha] == nil {
			c.bytes += int64(len(code))
		}
		c.held[sha] = &heldScript{size: int64(len(code)), used: c.uses}
		c.spare = nil
		c.evict()
	} else {
		c.spare = map[string][]byte{sha: code} // for an attempt that is about to wait for it
	}
	if a := c.awaited[sha]; a != nil {
		a.code = code
		close(a.come)
		delete(c.awaited, sha)
	}
	return nil
}

func (c *scriptCache) write(sha string, code []byte) error {
	f, err := os.CreateTemp(c.dir, "new-*") // created with permissions for this user only
	if err != nil {
		return err
	}
	_, err = f.Write(code)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(c.dir, sha))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// evict deletes the least recently used scripts until the limits hold. The caller holds mu; removing a file is quick.
func (c *scriptCache) evict() {
	for c.bytes > scriptCacheBytes || len(c.held) > scriptCacheFiles {
		oldest := ""
		for sha, h := range c.held {
			if oldest == "" || h.used < c.held[oldest].used {
				oldest = sha
			}
		}
		c.drop(oldest)
	}
}

func (c *scriptCache) drop(sha string) {
	c.bytes -= c.held[sha].size
	delete(c.held, sha)
	_ = os.Remove(filepath.Join(c.dir, sha)) // it may be gone already
}

func sumOf(code []byte) string {
	sum := sha256.Sum256(code)
	return hex.EncodeToString(sum[:])
}
