package embednats_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/embednats"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

const (
	childDir = "BELFRY_TEST_NATS_CHILD" // set in the process that TestKilled kills: its store directory
	messages = 100
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {} // until killed
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, cfg embednats.Config) *embednats.Server {
	t.Helper()
	s, err := embednats.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *embednats.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, s *embednats.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(s.URL(), append(s.SystemOptions(), nats.Timeout(time.Minute))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func port(t *testing.T, s *embednats.Server) int {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if u.Hostname() != "127.0.0.1" {
		t.Fatalf("listens on %s", u.Hostname())
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil || port == 0 {
		t.Fatalf("port %q", u.Port())
	}
	return port
}

func count(t *testing.T, js jetstream.JetStream, stream string) uint64 {
	t.Helper()
	s, err := js.Stream(context.Background(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

func TestRestartKeepsStreams(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "new", "nats")
	first := start(t, embednats.Config{StoreDir: dir})
	js := connect(t, first)
	if err := natsinfra.Ensure(ctx, js, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "belfry.v1.result.a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	issuer, err := first.Issuer().Seed()
	if err != nil {
		t.Fatal(err)
	}
	stop(t, first)
	stop(t, first) // a second stop has no effect

	second := start(t, embednats.Config{StoreDir: dir})
	if n := count(t, connect(t, second), natsinfra.Results); n != 1 {
		t.Errorf("%d messages", n)
	}
	if again, err := second.Issuer().Seed(); err != nil || string(again) != string(issuer) {
		t.Errorf("the issuer changed: %v", err)
	}
	for name, mode := range map[string]os.FileMode{"": 0o700, "issuer.seed": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != mode {
			t.Errorf("%q has mode %v", name, info.Mode())
		}
	}
}

// child is the process that the test kills. It prints a line when the server has acknowledged everything.
func child(dir string) error {
	ctx := context.Background()
	s, err := embednats.Start(ctx, embednats.Config{StoreDir: dir})
	if err != nil {
		return err
	}
	nc, err := nats.Connect(s.URL(), append(s.SystemOptions(), nats.Timeout(time.Minute))...)
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := natsinfra.Ensure(ctx, js, 1); err != nil {
		return err
	}
	for i := range messages {
		if _, err := js.Publish(ctx, "belfry.v1.result.a", []byte(strconv.Itoa(i))); err != nil {
			return err
		}
	}
	_, err = fmt.Println("acknowledged")
	return err
}

func TestKilled(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_, lockErr := embednats.Start(context.Background(), embednats.Config{StoreDir: dir})
	if kill := cmd.Process.Kill(); kill != nil {
		t.Fatal(kill)
	}
	_ = cmd.Wait() // returns an error after a kill
	if err != nil || strings.TrimSpace(line) != "acknowledged" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	if domain.CodeOf(lockErr) != domain.Conflict {
		t.Errorf("a directory in use by another process: %v", lockErr)
	}
	s := start(t, embednats.Config{StoreDir: dir})
	if n := count(t, connect(t, s), natsinfra.Results); n != messages {
		t.Errorf("%d of %d acknowledged messages are left", n, messages)
	}
}

func TestStartRefused(t *testing.T) {
	dir := t.TempDir()
	s := start(t, embednats.Config{StoreDir: dir})
	used := port(t, s)
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "issuer.seed"), []byte("SECRET"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	tests := []struct {
		name string
		ctx  context.Context
		cfg  embednats.Config
		code domain.Code
		says []string
	}{
		{"directory in use", nil, embednats.Config{StoreDir: dir}, domain.Conflict, []string{dir, "--data-dir"}},
		{"port in use", nil, embednats.Config{StoreDir: t.TempDir(), Port: used}, domain.Conflict, []string{strconv.Itoa(used), "in use", "--nats"}},
		{"port out of range", nil, embednats.Config{StoreDir: t.TempDir(), Port: 70000}, domain.Invalid, []string{"70000", "--nats"}},
		{"address of another machine", nil, embednats.Config{StoreDir: t.TempDir(), Host: "192.0.2.1"}, domain.Invalid, []string{"192.0.2.1", "--nats"}},
		{"no directory", nil, embednats.Config{}, domain.Invalid, nil},
		{"a file as directory", nil, embednats.Config{StoreDir: file}, domain.Internal, nil},
		{"broken issuer", nil, embednats.Config{StoreDir: broken}, domain.Invalid, []string{"issuer.seed"}},
		{"cancelled", cancelled, embednats.Config{StoreDir: t.TempDir()}, domain.Unavailable, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx := test.ctx
			if ctx == nil {
				ctx = context.Background()
			}
			s, err := embednats.Start(ctx, test.cfg)
			if err == nil {
				stop(t, s)
				t.Fatal("started")
			}
			if domain.CodeOf(err) != test.code {
				t.Errorf("code %s of %v", domain.CodeOf(err), err)
			}
			for _, word := range test.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
			if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%q repeats the seed", err)
			}
		})
	}
	// A refused start releases its directory and port.
	free := embednats.Config{StoreDir: tests[1].cfg.StoreDir}
	start(t, free)
}

func TestPortIsFreeAfterStop(t *testing.T) {
	dir := t.TempDir()
	s := start(t, embednats.Config{StoreDir: dir})
	used := port(t, s)
	stop(t, s)
	again := start(t, embednats.Config{StoreDir: dir, Port: used})
	if port(t, again) != used {
		t.Errorf("listens on %d", port(t, again))
	}
}

// Until a responder answers the auth callout, only the system side can log in.
func TestOthersAreRefusedWithoutResponder(t *testing.T) {
	s := start(t, embednats.Config{StoreDir: t.TempDir()})
	connect(t, s)
	if nc, err := nats.Connect(s.URL(), nats.Token("x"), nats.Timeout(10*time.Second)); err == nil {
		nc.Close()
		t.Error("let in")
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}

type lines chan slog.Record

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l lines) WithGroup(string) slog.Handler            { return l }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	select {
	case l <- r:
	default:
	}
	return nil
}

func TestLogReachesSlog(t *testing.T) {
	log := make(lines, 1000)
	s := start(t, embednats.Config{StoreDir: t.TempDir(), Log: slog.New(log)})
	stop(t, s)
	for {
		select {
		case r := <-log:
			if r.Level > slog.LevelDebug {
				t.Errorf("an ordinary start says %s: %v", r.Level, r.Message)
			}
			found := false
			r.Attrs(func(a slog.Attr) bool {
				found = found || strings.Contains(a.Value.String(), "Listening for client connections")
				return true
			})
			if found {
				return
			}
		default:
			t.Fatal("nothing about listening")
		}
	}
}

// Any client can cause warnings of the server, but no client can fill the log with them.
func TestWarningsAreBounded(t *testing.T) {
	log := make(lines, 1000)
	s := start(t, embednats.Config{StoreDir: t.TempDir(), Log: slog.New(log)})
	for range 200 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "nats://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("GARBAGE\r\n")); err != nil {
			t.Fatal(err)
		}
		// The server closes the connection after its warning.
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	stop(t, s)
	warnings := 0
	for len(log) > 0 {
		if r := <-log; r.Level >= slog.LevelWarn {
			warnings++
		}
	}
	if warnings == 0 || warnings > 150 {
		t.Errorf("%d warnings for 200 garbled connections", warnings)
	}
}
