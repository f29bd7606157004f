package freeport

import (
	"fmt"
	"net"
	"testing"
)

func TestTake(t *testing.T) {
	had := make(map[int]bool)
	for range 200 {
		port := Take(t)
		if had[port] || port < first || port >= last {
			t.Fatalf("got %d; before that %v", port, had)
		}
		had[port] = true
	}
	for port := range had { // they can be bound
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
	}
}

// Take returns neither a port that another process listens on nor one that another test has reserved.
func TestReserve(t *testing.T) {
	port := Take(t)
	if reserve(t, port) {
		t.Errorf("%d was given out twice", port)
	}
	release(port)
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	if reserve(t, port) {
		t.Errorf("%d was reserved, although a process listens on it", port)
	}
	ln.Close()
	if !reserve(t, port) {
		t.Errorf("%d is not given out again", port)
	}
}
