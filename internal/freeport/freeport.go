// Package freeport gives tests ports for servers that are started later, or again.
//
// A port that the system has given out is free again as soon as it is closed, and the system may give it to anybody until the
// test binds it. So these ports lie below those that systems give out (from 32768 on with Linux, 49152 with others), and
// are reserved among all tests of this user, whatever process they run in, by a lock that ends with the process.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// The ports that are given out.
const (
	first = 10_000
	last  = 32_000
)

var (
	mu    sync.Mutex
	taken = make(map[int]bool) // by this process; guarded by mu
)

// Take reserves a TCP port of 127.0.0.1 until the test has ended.
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

// reserve reports whether the port is the test's now.
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
	if err != nil { // somebody else's
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
