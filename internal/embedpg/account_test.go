//go:build unix

package embedpg

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

const nobody = 65534

func TestAsOrdinaryUser(t *testing.T) {
	needsRoot(t)
	for name, uid := range map[string]uint32{"with an entry in passwd": nobody, "without one": 54321} {
		t.Run(name, func(t *testing.T) {
			shared := sharedTempDir(t)
			binary := copyOfSelf(t, shared)
			dir := filepath.Join(shared, "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(dir, int(uid), int(uid)); err != nil {
				t.Fatal(err)
			}
			user := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			owner := startChild(t, binary, dir, user)
			execute(t, owner.url, writeRow) // root may use the socket
			owner.kill(t)
			eventually(t, "the orphaned Postgres ends by itself", func() bool { return len(processesOn(t, dir)) == 0 })
			owner = startChild(t, binary, dir, user)
			if got := query(t, owner.url, readRow); got != "tenor" {
				t.Errorf("after its owner was killed: %q", got)
			}
			if err := owner.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := owner.cmd.Wait(); err != nil {
				t.Errorf("the clean stop ended with %v", err)
			}
			if left := processesOn(t, dir); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}

// In the namespace the files belong to root, so that the data directory may be in a home directory that no other user may
// enter.
func TestRootsFilesStayRoots(t *testing.T) {
	needsRoot(t)
	if other, err := unprivilegedAccount(); err != nil || !namespacesAllowed(other) {
		t.Skip("NOT COVERED: the kernel refuses user namespaces")
	}
	dir := t.TempDir()
	server := start(t, Config{DataDir: dir, Ephemeral: true})
	info, err := os.Stat(filepath.Join(dir, "postgres", "data", "PG_VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	if owner, err := ownerOf(info); err != nil || owner != 0 {
		t.Errorf("the cluster belongs to %d (%v)", owner, err)
	}
	if server.cluster.account.mode != inNamespace {
		t.Errorf("Postgres runs %s", server.cluster.account.mode)
	}
	stop(t, server)
}

func TestNobodyElseGetsIn(t *testing.T) {
	needsRoot(t)
	shared := sharedTempDir(t) // everyone can reach the data directory itself
	server := start(t, Config{DataDir: shared, Ephemeral: true})
	stranger := account{mode: asOther, uid: nobody, gid: nobody}
	for _, path := range []string{server.socket.path, server.cluster.data()} {
		if stranger.reaches(path) {
			t.Errorf("a stranger reaches %s", path)
		}
	}
	if !stranger.reaches(shared) {
		t.Error("this test proves nothing: the stranger cannot even reach the data directory")
	}
	stop(t, server)
}

// Without user namespaces, the fallback creates a cluster that belongs to another account. A later start runs Postgres as that
// account again.
func TestRootWithoutNamespaces(t *testing.T) {
	needsRoot(t)
	other, err := unprivilegedAccount()
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"where the account can pass": 0o755, "where it cannot": 0o700} {
		t.Run(name, func(t *testing.T) {
			dir := sharedTempDir(t)
			if err := os.Chmod(dir, mode); err != nil {
				t.Fatal(err)
			}
			// An ephemeral server keeps a cluster that is elsewhere in a temporary directory, which Stop deletes.
			cfg := Config{DataDir: dir, Ephemeral: true, noNamespaces: true, Settings: map[string]string{"synchronous_commit": "on"}}
			server := start(t, cfg)
			info, err := os.Stat(server.cluster.data())
			if err != nil {
				t.Fatal(err)
			}
			if owner, err := ownerOf(info); err != nil || owner != other.uid {
				t.Errorf("the cluster belongs to %d (%v), want %d", owner, err, other.uid)
			}
			if resolved, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err != nil || resolved != server.cluster.base {
				t.Errorf("DataDir/postgres leads to %s (%v), want %s", resolved, err, server.cluster.base)
			}
			execute(t, server.URL(), writeRow)
			server.process.kill(syscall.SIGKILL)
			<-server.Done()
			if err := server.lock.Close(); err != nil { // as after a crash of both
				t.Fatal(err)
			}
			cfg.noNamespaces = false
			server = start(t, cfg)
			if got := query(t, server.URL(), readRow); got != "tenor" {
				t.Errorf("after a crash: %q", got)
			}
			base := server.cluster.base
			stop(t, server)
			if exists(base) {
				t.Errorf("%s was left behind", base)
			}
		})
	}
}

// A host that stops allowing namespaces must not lose its data.
func TestNamespacesNoLongerAllowed(t *testing.T) {
	needsRoot(t)
	dir := sharedTempDir(t)
	server := start(t, Config{DataDir: dir})
	execute(t, server.URL(), writeRow)
	stop(t, server)
	server = start(t, Config{DataDir: dir, noNamespaces: true})
	if got := query(t, server.URL(), readRow); got != "tenor" {
		t.Errorf("as another account: %q", got)
	}
	stop(t, server)
}

// The watchdog serves systems other than Linux, but works on every Unix.
func TestShellWatchdog(t *testing.T) {
	sleeper := exec.Command("sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleeper.Wait() }()
	t.Cleanup(func() { _ = sleeper.Process.Kill() })

	release, err := startShellWatchdog(sleeper.Process.Pid, syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	release()
	if err := sleeper.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a watchdog that was released has signalled: %v", err)
	}

	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), childWatches+"="+strconv.Itoa(sleeper.Process.Pid))
	stdout, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the owner said %q (%v)", line, err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // returns an error after a kill
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Errorf("the watched process ended with %v, want a signal", err)
		}
	case <-time.After(patience):
		t.Error("the watchdog did not act on its owner's death")
	}
}
