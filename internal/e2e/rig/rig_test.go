//go:build unix

package rig

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/natsauth"
	"github.com/belfryhq/belfry/internal/natsinfra"
)

func TestMain(m *testing.M) {
	if os.Getenv(EnvAs) == "nats" {
		os.Exit(NATSServer())
	}
	os.Exit(m.Run())
}

func TestProxy(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	p := NewProxy(t, ln.Addr().String())
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	say := func(c net.Conn, text string) {
		t.Helper()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(c net.Conn, text string) {
		t.Helper()
		got := make([]byte, len(text))
		_ = c.SetReadDeadline(time.Now().Add(Patience))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, []byte(text)) {
			t.Fatalf("got %q (%v), want %q", got, err, text)
		}
	}
	const glance = 100 * time.Millisecond // too short for nothing to be taken for something
	silent := func(c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(glance))
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Fatal("something came through")
		} else if e, ok := err.(net.Error); !ok || !e.Timeout() {
			t.Fatalf("the connection ended: %v", err)
		}
	}
	ended := func(c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(Patience))
		_, err := c.Read(make([]byte, 1))
		if e, ok := err.(net.Error); err == nil || ok && e.Timeout() {
			t.Fatalf("the connection lives: %v", err)
		}
	}

	one := dial()
	say(one, "a")
	hears(one, "a")
	p.Blackhole()
	two := dial()
	say(one, "b")
	say(two, "c")
	silent(one)
	silent(two)
	p.Heal()
	hears(one, "b")
	hears(two, "c")
	p.Delay(glance)
	sent := time.Now()
	say(one, "d")
	hears(one, "d")
	if passed := time.Since(sent); passed < 2*glance {
		t.Errorf("an answer came after %v, with a latency of %v each way", passed, glance)
	}
	p.Delay(0)
	p.Cut()
	ended(one)
	ended(two)
	if c, err := net.Dial("tcp", p.Addr()); err == nil { // the reset may come before the dial is done
		ended(c)
		c.Close()
	}
	p.Heal()
	three := dial()
	say(three, "e")
	hears(three, "e")
	p.Vanish()
	four := dial()
	say(three, "f")
	say(four, "g")
	silent(four)
	p.Heal()
	hears(four, "g")
	silent(three)
	say(three, "h")
	silent(three)
}

// A cluster of three keeps its streams when one server loses all that it had, and comes back to three copies.
func TestNATSCluster(t *testing.T) {
	t.Parallel()
	c := NewNATSCluster(t, t.TempDir())
	js, err := jetstream.New(c.Conn)
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, Patience, "the streams can be made", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), Patience)
		defer cancel()
		return natsinfra.Ensure(ctx, js, Replicas) == nil
	})
	if _, err := js.Publish(t.Context(), "belfry.v1.result.g", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	Eventually(t, Patience, "all copies are current", c.Current)
	c.Nodes[0].Kill()
	Eventually(t, Patience, "the others know that one is gone", func() bool { return !c.Current() })
	c.Wipe(0)
	c.Launch(0)
	Eventually(t, Patience, "all copies are current again", c.Current)
	s, err := js.Stream(t.Context(), natsinfra.Results)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("the stream has %d messages, want the one that was there", n)
	}
}

// groupTokens is a verifier that knows one group.
type groupTokens struct{}

func (groupTokens) GroupOfToken(_ context.Context, token string) (string, error) {
	if token != "token-a" {
		return "", domain.NewError(domain.NotFound, "no such token")
	}
	return "a", nil
}

// While a server is frozen, and with it most of those who answer log-ins, executors that were connected to it get in
// elsewhere before their leases are over: a log-in that is handed to the frozen one takes 2 s to fail, and all of them would.
func TestFrozenServerKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	c := NewNATSCluster(t, t.TempDir())
	seed, err := os.ReadFile(c.Seed)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := natsauth.ParseIssuer(strings.TrimSpace(string(seed)))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for _, on := range []int{0, 0, 0, 1} {
		conn, err := nats.Connect("nats://"+c.Nodes[on].Addr(), nats.UserInfo("belfry", NATSPassword), nats.MaxReconnects(-1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		r, err := natsauth.New(natsauth.Config{Verifier: groupTokens{}, Issuer: issuer})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = r.Run(t.Context(), conn) })
		<-r.Ready()
	}
	comesIn := func() bool {
		conn, err := nats.Connect("nats://"+c.Nodes[2].Addr(), nats.Token("token-a"), nats.CustomInboxPrefix("_INBOX_a"), nats.NoReconnect())
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	Eventually(t, Patience, "an executor can log in", comesIn)
	c.Nodes[0].Signal(syscall.SIGSTOP)
	defer c.Nodes[0].Signal(syscall.SIGCONT)
	const tries, enough = 12, 5
	for failed, row := 0, 0; row < enough; {
		if comesIn() {
			row++
			continue
		}
		row = 0
		if failed++; failed == tries {
			t.Fatalf("%d log-ins have failed", failed)
		}
	}
}
