// Package freeport reserves ports for tests whose servers are started later, or again.
//
// A port that the system has assigned is free again as soon as it is closed, and the system may assign it to any
// process before the test binds it. So these ports are below those that systems assign (from 32768 on Linux, 49152 on
// others). A lock, which ends with the process, reserves them among all tests of this user in all processes.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// The range of ports.
const (
	first = 10_000
	last  = 32_000
)

var (
	mu    sync.Mutex
	taken = make(map[int]bool) // by this process; guarded by mu
)

// Take reserves a TCP port of 127.0.0.1 until the test ends.
func Take(t testing.TB) int {
	t.Helper()
	for range last - first {
		port := first + rand.IntN(last-first)
		if !reserve(t, port) {
			continue
		}
		t.Cleanup(func() { release(port) })
		return port
	}
	t.Fatalf("no port from %d to %d is free", first, last)
	return 0
}

// reserve tries to reserve the port for the test, and reports whether it succeeded.
func reserve(t testing.TB, port int) bool {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if taken[port] {
		return false
	}
	locked, err := lock(port)
	if err != nil {
		t.Fatalf("reserve a port among all tests: %v", err)
	}
	if !locked {
		return false
	}
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil { // used by another process
		unlock(port)
		return false
	}
	ln.Close()
	taken[port] = true
	return true
}

func release(port int) {
	mu.Lock()
	defer mu.Unlock()
	delete(taken, port)
	unlock(port)
}
