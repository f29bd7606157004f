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
	const glance = 100 * time.Millisecond // how long silent waits for data, and the latency that the test sets
	silent := func(c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(glance))
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Fatal("data came through")
		} else if e, ok := err.(net.Error); !ok || !e.Timeout() {
			t.Fatalf("the connection ended: %v", err)
		}
	}
	ended := func(c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(Patience))
		_, err := c.Read(make([]byte, 1))
		if e, ok := err.(net.Error); err == nil || ok && e.Timeout() {
			t.Fatalf("the connection is still open: %v", err)
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

// A cluster of three servers keeps its streams if one server loses its storage, and has three copies again afterwards.
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
	Eventually(t, Patience, "the other servers notice that one is gone", func() bool { return !c.Current() })
	c.Wipe(0)
	c.Launch(0)
	Eventually(t, Patience, "all copies are current again", c.Current)
	s, err := js.Stream(t.Context(), natsinfra.Results)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("the stream has %d messages, want the one from before", n)
	}
}

// groupTokens is a verifier that knows one group.
type groupTokens struct{}

func (groupTokens) GroupOfToken(_ context.Context, token string) (string, time.Duration, error) {
	if token != "token-a" {
		return "", 0, domain.NewError(domain.Forbidden, "no such token")
	}
	return "a", 0, nil
}

// answerLogins answers log-ins of the cluster, over connections to these addresses, until the test ends.
func (c *NATSCluster) answerLogins(addrs ...string) {
	c.t.Helper()
	seed, err := os.ReadFile(c.Seed)
	if err != nil {
		c.t.Fatal(err)
	}
	issuer, err := natsauth.ParseIssuer(strings.TrimSpace(string(seed)))
	if err != nil {
		c.t.Fatal(err)
	}
	var running sync.WaitGroup
	c.t.Cleanup(running.Wait)
	for _, addr := range addrs {
		conn, err := nats.Connect("nats://"+addr, nats.Timeout(Patience), nats.UserInfo("belfry", NATSPassword), nats.MaxReconnects(-1))
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(conn.Close)
		r, err := natsauth.New(natsauth.Config{Verifier: groupTokens{}, Issuer: issuer})
		if err != nil {
			c.t.Fatal(err)
		}
		running.Go(func() { _ = r.Run(c.t.Context(), conn) })
		<-r.Ready()
	}
	Eventually(c.t, Patience, "an executor can log in", c.logsIn)
}

// logsIn reports whether an executor can log in at the last server. A log-in without an answer fails after 2 s.
func (c *NATSCluster) logsIn() bool {
	conn, err := nats.Connect("nats://"+c.Nodes[Replicas-1].Addr(), nats.Token("token-a"), nats.CustomInboxPrefix("_INBOX_a"), nats.NoReconnect())
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// logInsWork fails the test if more than a few log-ins fail before several in a row succeed.
func (c *NATSCluster) logInsWork() {
	c.t.Helper()
	const tries, enough = 12, 5
	for failed, row := 0, 0; row < enough; {
		if c.logsIn() {
			row++
			continue
		}
		row = 0
		if failed++; failed == tries {
			c.t.Fatalf("%d log-ins have failed", failed)
		}
	}
}

// If the server to which most responders are connected is frozen, its executors can log in at another server before their
// leases expire. A log-in that the cluster gives to a responder on the frozen server fails after 2 s, so the cluster must stop
// using those responders.
func TestFrozenServerKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	c := NewNATSCluster(t, t.TempDir())
	first := c.Nodes[0]
	c.answerLogins(first.Addr(), first.Addr(), first.Addr(), c.Nodes[1].Addr())
	first.Signal(syscall.SIGSTOP)
	defer first.Signal(syscall.SIGCONT)
	c.logInsWork()
}

// If the hosts of most responders lose power, executors can still log in. The servers notice the loss although no connection is
// closed.
func TestVanishedAnswerersKeepNobodyOut(t *testing.T) {
	t.Parallel()
	c := NewNATSCluster(t, t.TempDir())
	link := NewProxy(t, c.Nodes[0].Addr())
	c.answerLogins(link.Addr(), link.Addr(), link.Addr(), c.Nodes[1].Addr())
	link.Vanish()
	c.logInsWork()
}
